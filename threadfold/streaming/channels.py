"""The channels of one process: one for each conversation that somebody here follows or writes to.

A channel joins the log's tail and Redis' pub/sub when the first user acquires it, and leaves both
when the last one releases it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from projections.errors import RedisUnavailable, WaitTimedOut
from projections.fold.apply import id_hash_of
from projections.names import Key, partition_of
from projections.window.recent_ids import RecentIds
from streams.runtime.tasks import end_tasks
from threadfold.service.conversations import ConversationService
from threadfold.streaming.catchup import SCAN
from threadfold.streaming.channel import Channel, OnMessage, OnRollback
from threadfold.streaming.decoding import decode_record
from threadfold.streaming.partial_store import PartialStore, parse_message
from threadfold.streaming.pubsub import PubSub
from threadfold.streaming.tail import Tail
from threadfold.streaming.text_endings import TextEndings
from threadfold.streaming.windows import AGAIN, Windows

logger = logging.getLogger(__name__)


class Channels:
    """Opens, shares and closes channels. Used within one event loop; stop it after.

    Args:
        on_message: called with each partial text that a message of the log ended.
        on_rollback: called with each rollback.
    """

    def __init__(
        self,
        backend: ConversationService,
        store: PartialStore,
        windows: Windows,
        endings: TextEndings,
        on_message: OnMessage,
        on_rollback: OnRollback,
    ) -> None:
        self.tail = Tail(
            backend.settings,
            backend.settings.topic("events"),
            backend.log.partitions,
            backend.log.end_offsets,
            backend.log.seals,
        )
        self._backend = backend
        self._store = store
        self._windows = windows
        self._endings = endings
        self._on_message = on_message
        self._on_rollback = on_rollback
        self._pubsub = PubSub(
            store.servers,
            f"{backend.settings.topic_prefix}:partials",
            self._on_published,
            self._on_resubscribed,
        )
        self._channels: dict[Key, Channel] = {}
        self._by_name: dict[str, Channel] = {}
        """Channels by the name of their pub/sub channel in Redis."""
        self._reads: dict[Channel, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._channels)

    def mute_erased(self) -> None:
        """Send nothing more of conversations whose erasure has begun. Its event, which ends their
        streams, may come late: who erases writes it only then.
        """
        for key, channel in self._channels.items():
            if self._windows.erasing(key):
                for reader in channel.readers:
                    reader.mute()

    def users(self, key: Key) -> int:
        """How many subscribers and writers use a conversation's channel."""
        channel = self._channels.get(key)
        return 0 if channel is None else channel.users

    async def acquire(self, key: Key) -> Channel:
        """The conversation's channel, open, with one user more; :meth:`release` it after.

        Raises:
            Healing, CorruptWindow, RedisUnavailable, KafkaUnavailable: it cannot be opened now.
        """
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = Channel(
                key,
                partition_of(key, self._backend.log.partitions),
                self._windows,
                self._backend.log.seals,
                self.tail.next,
                self._on_message,
                self._on_rollback,
            )
            # A task of its own: who asked first may leave, and others wait for it, too.
            channel.opening = asyncio.create_task(self._open(channel), name="stream-opening")
        channel.users += 1
        try:
            await asyncio.shield(channel.opening)
        except BaseException:
            self.release(channel)
            raise
        return channel

    def release(self, channel: Channel) -> None:
        """One user less; the last one closes the channel, or ends its opening."""
        channel.users -= 1
        if channel.users:
            return
        channel.opening.cancel()
        if self._channels.get(channel.key) is channel:
            del self._channels[channel.key]
        self.tail.leave(str(channel.key).encode(), channel, [channel.partition])
        name = self._store.channel(channel.key)
        if self._by_name.get(name) is channel:
            del self._by_name[name]
            self._pubsub.leave(name)
        channel.close("closed")
        self._windows.forget(channel.key)

    async def stop(self, reason: str) -> None:
        """End all channels and everything under way, and close the connections."""
        await end_tasks(self._reads.values())
        for channel in list(self._channels.values()):
            channel.close(reason)
        await self._pubsub.stop()
        await self.tail.stop()

    async def _open(self, channel: Channel) -> None:
        key, partition = channel.key, channel.partition
        await self.tail.join(str(key).encode(), channel, [partition])
        first = self.tail.next(partition)
        checkpoint, stored = await self._backend.windows.head(key)
        recent_ids = RecentIds() if stored is None else stored.recent_ids(key)
        if first - SCAN <= checkpoint.offset + 1 < first:
            # The windows lag: ids that came since are recent, too. If the windows are further
            # behind, repeats may be sent again.
            log = self._backend.log
            async for raw in log.scan(partition, checkpoint.offset + 1, first - 1):
                found = decode_record(raw, partition, key, log.seals)
                if found is not None and recent_ids.find(id_hash_of(found.id)) is None:
                    recent_ids.add(id_hash_of(found.id), raw.offset)
        channel.recent_ids = recent_ids
        await self._open_text(channel, first)
        channel.open(await self._windows.state(key), first - 1, checkpoint.offset)

    async def _open_text(self, channel: Channel, first: int) -> None:
        """Send the text in progress from now on, and what there is of it; unless what ended it
        stands in the log before ``first``, the channel's first record.
        """
        name = self._store.channel(channel.key)
        self._by_name[name] = channel
        channel.read_again = lambda: self._read_again(channel)
        await self._pubsub.join(name)
        text = await self._store.read(channel.key)
        if text is None:
            return
        ending = None
        if text.since < first:
            # Where that is not known soon it is shown; who ends it looks again.
            with suppress(WaitTimedOut):
                ending = await self._endings.find(channel.key, text, 0)
        if ending is not None and ending.offset < first:
            channel.partial.message(ending.offset, "complete")
        else:
            channel.on_stored_text(*text)

    def _on_published(self, name: str, message: bytes) -> None:
        channel = self._by_name.get(name)
        if channel is not None:
            is_delta, delta = parse_message(message)
            if is_delta:
                channel.on_delta(delta)
            else:
                channel.on_dropped(delta.turn, delta.since)

    def _on_resubscribed(self, name: str) -> None:
        channel = self._by_name.get(name)
        if channel is not None:
            self._read_again(channel)

    def _read_again(self, channel: Channel) -> None:
        """Read a text in progress from Redis, because a part of it was missed."""
        if channel not in self._reads:
            task = self._reads[channel] = asyncio.create_task(
                self._read_text(channel), name="partial-read"
            )
            task.add_done_callback(lambda _: self._reads.pop(channel, None))

    async def _read_text(self, channel: Channel) -> None:
        while channel.users:
            try:
                text = await self._store.read(channel.key)
                if text is not None:
                    channel.on_stored_text(*text)
                return
            except RedisUnavailable as error:
                logger.debug("the text in progress of %s cannot be read: %s", channel.key, error)
                await asyncio.sleep(AGAIN)
