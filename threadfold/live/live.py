"""Streams of one process: all its subscribers, over one reader of the log and one subscription to Redis."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from projections.errors import Erased, InvalidPosition, KafkaUnavailable, ThreadfoldError
from projections.fold import id_hash_of
from projections.names import Key, Position, make_key, parse_position, partition_of
from projections.recents import Recents
from threadfold.backend import Backend
from threadfold.live.catchup import SCAN, missed
from threadfold.live.channel import Channel
from threadfold.live.decoding import told
from threadfold.live.reader import MOST, MOST_BYTES, SLOW, Reader
from threadfold.live.sent import Sent
from threadfold.live.subscription import Joined, Subscription
from threadfold.live.tail import Tail
from threadfold.live.windows import Windows

logger = logging.getLogger(__name__)
CHECK_EVERY = 1.0
"""Seconds between two looks at whether subscribers are still allowed, at most."""
STOPPING = "this gateway is stopping: connect again with Last-Event-ID"
NOT_ALLOWED = "the key is not valid any more"


class Live:
    """The streams over one backend. Start it before use, stop it before the backend.

    Args:
        heartbeat: seconds a stream may be silent; None takes the setting ``stream_heartbeat``.
        most, most_bytes: what may wait for one subscriber.
    """

    def __init__(self, backend: Backend, *, heartbeat: float | None = None, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self.backend = backend
        self.heartbeat = heartbeat or backend.settings.stream_heartbeat
        self._most = most
        self._most_bytes = most_bytes
        self._windows = Windows(backend)
        self._channels: dict[Key, Channel] = {}
        self._readers: set[Reader] = set()
        self._tail = Tail(backend.settings, backend.settings.topic("events"), backend.log.partitions)
        self._ticker: asyncio.Task[None] | None = None
        self.stopping = False

    async def start(self) -> Live:
        """Begin; returns itself. Connects to nothing before it is needed."""
        self._ticker = asyncio.create_task(self._tick(), name="streams-ticker")
        return self

    def end_streams(self, reason: str = STOPPING) -> None:
        """End every stream cleanly, and let none begin: what a gateway does first when it stops."""
        self.stopping = True
        for reader in list(self._readers):
            reader.end(reason)

    async def stop(self) -> None:
        """End every stream and everything under way, and close the connections."""
        self.end_streams()
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
        for channel in list(self._channels.values()):
            channel.close(STOPPING)
        await self._tail.stop()

    # -- conversations -------------------------------------------------------------------------------------------------------

    async def open(
        self, tenant: str, conversation: str, after: str | None = None, still_allowed: Callable[[], bool] | None = None
    ) -> Subscription:
        """Subscribe to a conversation after a position, or (None) from now on; what is appended once this returned is not missed.

        Args:
            still_allowed: asked every second; once it answers False the stream ends.

        Raises:
            InvalidPosition: ``after`` is not of this conversation's partition, or not yet in the log.
            TooFarBehind: too much came after it.
            Erased: the conversation was erased.
            Healing, CorruptWindow, RedisUnavailable, KafkaUnavailable: it cannot be done now.
        """
        key = make_key(tenant, conversation)
        partition = partition_of(key, self.backend.log.partitions)
        position = None if after is None else self._own_position(key, after)
        if self.stopping:
            raise KafkaUnavailable("the gateway is stopping: connect to another one")
        reader = Reader(self._most, self._most_bytes, still_allowed)
        channel = await self._interested(key)
        try:
            if await self._windows.erased(key):
                raise Erased(f"conversation {conversation} was erased")
            end = await self._tail.end(partition)
            if position is None:
                since = end - 1
            elif position.offset >= end:
                raise InvalidPosition(f"position {after} is not one of conversation {conversation}")
            else:
                since = position.offset
            join = self._joiner(channel, reader)
            found = await join(since)
        except BaseException:
            self._left(channel, reader)
            raise
        self._readers.add(reader)
        reader.heard = asyncio.get_running_loop().time()
        open_still = [channel]

        def close() -> None:
            if open_still:
                self._left(open_still.pop(), reader)

        return Subscription(channel, reader, self._windows, found, join, close, self.heartbeat)

    async def conversation(self, tenant: str, conversation: str, after: str | None = None) -> AsyncIterator[Sent]:
        """A conversation's stream for callers in this process, without comments; one that falls behind goes on from where it was.

        It ends when the conversation is erased or this stops. Raises like :meth:`open`.
        """
        while True:
            subscription = await self.open(tenant, conversation, after)
            ended = ""
            try:
                async for batch in subscription.batches():
                    for sent in batch:
                        if sent.id is not None:
                            after = sent.id
                        if sent.event:
                            yield sent
                        else:
                            ended = sent.data.decode()
            finally:
                subscription.close()
            if ended != SLOW:
                return

    # -- parts ---------------------------------------------------------------------------------------------------------------

    def _own_position(self, key: Key, text: str) -> Position:
        position = parse_position(text)
        if position.partition != partition_of(key, self.backend.log.partitions):
            raise InvalidPosition(f"position {text} is not one of conversation {key.conversation}")
        return position

    def _joiner(self, channel: Channel, reader: Reader) -> Callable[[int], Awaitable[Joined]]:
        async def join(after: int) -> Joined:
            reader.join(after)
            upto = channel.add(reader)
            if after + 1 >= upto:
                return Joined(None, after + 1)
            return Joined(await missed(self.backend, channel.key, channel.partition, after, upto), upto)

        return join

    async def _interested(self, key: Key) -> Channel:
        """The conversation's channel, open, with one more who holds it (:meth:`_released`)."""
        channel = self._channels.get(key)
        if channel is not None:
            channel.holds += 1
            try:
                await asyncio.shield(channel.opened)
            except BaseException:
                self._released(channel)
                raise
            return channel
        partition = partition_of(key, self.backend.log.partitions)
        channel = self._channels[key] = Channel(key, partition, self._windows, self._tail.next, self._ended_by_message)
        channel.holds = 1
        try:
            await self._open(channel)
        except BaseException as error:
            if isinstance(error, ThreadfoldError):
                channel.opened.set_exception(error)
            else:
                channel.opened.set_exception(KafkaUnavailable("the stream could not be opened: try again shortly"))
            channel.opened.exception()  # it may be that nobody else waits for it
            if self._channels.get(key) is channel:
                del self._channels[key]
            self._released(channel)
            raise
        channel.opened.set_result(None)
        return channel

    async def _open(self, channel: Channel) -> None:
        key, partition = channel.key, channel.partition
        await self._tail.join(str(key).encode(), channel, [partition])
        first = self._tail.next(partition)
        checkpoint, stored = await self.backend.stored(key)
        recents = Recents() if stored is None else stored.recent_ids(key)
        if first - SCAN <= checkpoint.offset + 1 < first:
            # The windows lag: what came since them are recent ids, too. Further behind, repeats may be sent again.
            async for raw in self.backend.log.scan(partition, checkpoint.offset + 1, first - 1):
                found = told(raw, partition, key)
                if found is not None and recents.find(id_hash_of(found.id)) is None:
                    recents.add(id_hash_of(found.id), raw.offset)
        channel.recents = recents
        channel.open(await self._windows.state(key), first - 1, checkpoint.offset)

    def _left(self, channel: Channel, reader: Reader) -> None:
        reader.end("closed")
        channel.readers.discard(reader)
        self._readers.discard(reader)
        self._released(channel)

    def _released(self, channel: Channel) -> None:
        channel.holds -= 1
        if channel.holds == 0:
            if self._channels.get(channel.key) is channel:
                del self._channels[channel.key]
            self._tail.leave(str(channel.key).encode(), channel, [channel.partition])
            channel.close("closed")
            self._windows.forget(channel.key)

    def _ended_by_message(self, key: Key, turn: str, since: int) -> None:
        """A partial text is ended by a message that came in the log."""

    async def _tick(self) -> None:
        """Heart-beats, and whether subscribers are still allowed: one task for all of them."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(CHECK_EVERY, self.heartbeat / 2))
            now = loop.time()
            for reader in list(self._readers):
                if reader.still_allowed is not None and not reader.still_allowed():
                    reader.end(NOT_ALLOWED)
                else:
                    reader.beat(now, self.heartbeat)

    def count(self) -> int:
        """How many streams are open."""
        return len(self._readers)
