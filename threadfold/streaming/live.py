"""Streams of one process: all its subscribers, over one reader of the log and one subscription to
Redis.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from projections.errors import (
    Erased,
    InvalidPosition,
    KafkaUnavailable,
    RedisUnavailable,
    ThreadfoldError,
)
from projections.fold.apply import id_hash_of
from projections.names import Key, Position, check_name, make_key, parse_position, partition_of
from projections.window.recent_ids import RecentIds
from streams.runtime.tasks import end_tasks
from threadfold.service.appended import Appended
from threadfold.service.conversations import ConversationService
from threadfold.service.turns import not_in_force
from threadfold.streaming.catchup import SCAN, missed
from threadfold.streaming.channel import Channel
from threadfold.streaming.decoding import told
from threadfold.streaming.partial_store import PartialStore, delta_of
from threadfold.streaming.partials import Partials
from threadfold.streaming.pubsub import PubSub
from threadfold.streaming.reader import MOST, MOST_BYTES, SLOW, Reader
from threadfold.streaming.sse_event import SseEvent
from threadfold.streaming.subscription import Joined, Subscription
from threadfold.streaming.summaries import Summaries, SummariesSubscription
from threadfold.streaming.sweeper import Sweeper
from threadfold.streaming.tail import Tail
from threadfold.streaming.windows import AGAIN, Windows

logger = logging.getLogger(__name__)
CHECK_EVERY = 1.0
"""Seconds between two looks at whether subscribers are still allowed, at most."""
OPENING = 16
"""Streams that are opened at once: all come back together after a gateway stopped, and Redis'
connections are few.
"""
STOPPING = "this gateway is stopping: connect again with Last-Event-ID"
NOT_ALLOWED = "the key is not valid any more"


class Live:
    """The streams over one backend. Start it before use, stop it before the backend.

    Args:
        heartbeat: seconds a stream may be silent; None takes the setting ``stream_heartbeat``.
        most, most_bytes: what may wait for one subscriber.
    """

    def __init__(
        self,
        backend: ConversationService,
        *,
        heartbeat: float | None = None,
        most: int = MOST,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.backend = backend
        self.heartbeat = heartbeat or backend.settings.stream_heartbeat
        self._most = most
        self._most_bytes = most_bytes
        self._windows = Windows(backend)
        self._channels: dict[Key, Channel] = {}
        self._readers: set[Reader] = set()
        self._opening = asyncio.Semaphore(OPENING)
        self._tail = Tail(
            backend.settings,
            backend.settings.topic("events"),
            backend.log.partitions,
            backend.log.seals,
        )
        timeout = backend.settings.partial_timeout
        self._held = PartialStore(backend.settings.redis, backend.settings.topic_prefix, timeout)
        self._hearing = PubSub(
            self._held.servers,
            f"{backend.settings.topic_prefix}:partials",
            self._heard,
            self._heard_again,
        )
        self._named: dict[str, Channel] = {}
        self._partials = Partials(
            backend, self._held, self._windows, self._interested, self._released, timeout
        )
        claim = backend.settings.append_timeout + 10.0
        every = max(0.1, min(2.0, timeout / 6))
        self._summaries = Summaries(backend.settings, backend.log.partitions, backend.log.seals)
        self._sweeper = Sweeper(
            self._held, self._partials, backend.log.partitions, every=every, claim=claim
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._reading: dict[Channel, asyncio.Task[None]] = {}
        self.stopping = False

    async def start(self) -> Live:
        """Begin; returns itself. Connects to nothing before it is needed."""
        self._tasks = [
            asyncio.create_task(self._tick(), name="streams-ticker"),
            asyncio.create_task(self._sweeper.run(), name="partials-sweeper"),
        ]
        self.backend.on_appended = self._partials.appended
        return self

    def end_streams(self, reason: str = STOPPING) -> None:
        """End every stream cleanly, and let none begin: what a gateway does first when it stops."""
        self.stopping = True
        for reader in list(self._readers):
            reader.end(reason)

    async def stop(self) -> None:
        """End every stream and everything under way, and close the connections."""
        self.end_streams()
        self.backend.on_appended = None
        await end_tasks([*self._tasks, *self._reading.values()])
        for channel in list(self._channels.values()):
            channel.close(STOPPING)
        await self._partials.stop()
        await self._hearing.stop()
        await self._tail.stop()
        await self._summaries.stop()
        await self._held.close_connections()

    # -- conversations
    # ------------------------------------------------------------------------------------------

    async def open(
        self,
        tenant: str,
        conversation: str,
        after: str | None = None,
        still_allowed: Callable[[], bool] | None = None,
    ) -> Subscription:
        """Subscribe to a conversation after a position, or (None) from now on; what is appended
        once this returned is not missed.

        Args:
            still_allowed: asked every second; once it answers False the stream ends.

        Raises:
            InvalidPosition: ``after`` is not of this conversation's partition, or not yet in the
            log. TooFarBehind: too much came after it. Erased: the conversation was erased. Healing,
            CorruptWindow, RedisUnavailable, KafkaUnavailable: it cannot be done now.
        """
        key = make_key(tenant, conversation)
        position = None if after is None else self._own_position(key, after)
        if self.stopping:
            raise KafkaUnavailable("the gateway is stopping: connect to another one")
        reader = Reader(self._most, self._most_bytes, still_allowed)
        async with self._opening:
            return await self._opened(key, position, reader)

    async def _opened(self, key: Key, position: Position | None, reader: Reader) -> Subscription:
        channel = await self._interested(key)
        try:
            if await self._windows.erased(key):
                raise Erased(f"conversation {key.conversation} was erased")
            end = await self._tail.end(channel.partition)
            if position is None:
                since = end - 1
            elif position.offset >= end:
                raise InvalidPosition(
                    f"position {position} is not one of conversation {key.conversation}"
                )
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

    async def conversation(
        self, tenant: str, conversation: str, after: str | None = None
    ) -> AsyncIterator[SseEvent]:
        """A conversation's stream for callers in this process, without comments; one that falls
        behind goes on from where it was.

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

    # -- summaries
    # ------------------------------------------------------------------------------------------

    async def open_summaries(
        self,
        tenant: str,
        cursor: str | None = None,
        *,
        beginning: bool = False,
        still_allowed: Callable[[], bool] | None = None,
    ) -> tuple[SummariesSubscription, Callable[[], None]]:
        """Subscribe to a tenant's summaries after a cursor, from the beginning, or from now on;
        returns how to leave, too.

        Raises:
            InvalidName, InvalidPosition: the tenant's name, or the cursor is not one of this
            tenant's stream. KafkaUnavailable: it cannot be done now.
        """
        check_name("tenant", tenant)
        if self.stopping:
            raise KafkaUnavailable("the gateway is stopping: connect to another one")
        reader = Reader(self._most, self._most_bytes, still_allowed)
        subscription = await self._summaries.open(tenant, reader, cursor, beginning)
        self._readers.add(reader)
        reader.heard = asyncio.get_running_loop().time()

        def close() -> None:
            reader.end("closed")
            self._readers.discard(reader)
            self._summaries.leave(tenant, reader)

        return subscription, close

    async def summaries(
        self, tenant: str, cursor: str | None = None, *, beginning: bool = False
    ) -> AsyncIterator[SseEvent]:
        """A tenant's summaries for callers in this process, without comments; one that falls behind
        goes on from where it was.

        Delivery is at least once: dedupe on ``summary_id``. Raises like :meth:`open_summaries`.
        """
        while True:
            subscription, close = await self.open_summaries(tenant, cursor, beginning=beginning)
            ended = ""
            try:
                async for batch in subscription.batches():
                    for sent in batch:
                        if sent.event:
                            cursor = sent.id
                            yield sent
                        else:
                            ended = sent.data.decode()
            finally:
                close()
            if ended != SLOW:
                return

    # -- text in progress
    # ------------------------------------------------------------------------------------------

    async def partial(
        self,
        tenant: str,
        conversation: str,
        turn_id: str,
        delta: str,
        offset: int | None = None,
        fence: int | None = None,
    ) -> int:
        """Add to an assistant's text in progress; returns the characters held now.

        Args:
            fence: a fencing token: its turn has to be in force, as the window tells when this is
                called.

        Raises like :meth:`Partials.post`, and :class:`InvalidName` for a turn that is none,
        :class:`Conflict` for one that is over.
        """
        key = make_key(tenant, conversation)
        check_name("turn_id", turn_id)
        if fence is not None:
            token = await self._windows.token(key)
            if token != fence:
                raise not_in_force(fence, token)
        return await self._partials.post(key, turn_id, delta, offset)

    def on_kept(self, callback: Callable[[str, Sequence[Appended]], None]) -> None:
        """Call back with the tenant and what was appended, whenever a text in progress was kept as
        an interrupted message.
        """
        self._partials.on_kept = callback

    async def forget(self, tenant: str, conversation: str) -> bool:
        """Delete what is held of a conversation's text in progress (it is not sealed); returns
        whether there was anything.

        Raises:
            RedisUnavailable: it cannot be deleted now.
        """
        return await self._partials.forget(make_key(tenant, conversation))

    def _heard(self, name: str, message: bytes) -> None:
        channel = self._named.get(name)
        if channel is not None:
            said, delta = delta_of(message)
            if said:
                channel.said(delta)
            else:
                channel.dropped(delta.turn, delta.since)

    def _heard_again(self, name: str) -> None:
        channel = self._named.get(name)
        if channel is not None:
            self._read_again(channel)

    def _read_again(self, channel: Channel) -> None:
        """Read a text in progress from Redis, of which something was missed."""
        if channel not in self._reading:
            task = self._reading[channel] = asyncio.create_task(
                self._read_text(channel), name="partial-read"
            )
            task.add_done_callback(lambda _: self._reading.pop(channel, None))

    async def _read_text(self, channel: Channel) -> None:
        while channel.holds:
            try:
                text = await self._held.read(channel.key)
                if text is not None:
                    channel.said_so_far(*text)
                return
            except RedisUnavailable as error:
                logger.debug("the text in progress of %s cannot be read: %s", channel.key, error)
                await asyncio.sleep(AGAIN)

    # -- parts
    # ------------------------------------------------------------------------------------------

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
            known = channel.recents.since
            return Joined(
                await missed(
                    self.backend, channel.key, channel.partition, after, upto, known=known
                ),
                upto,
            )

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
        seals = self.backend.log.seals
        channel = self._channels[key] = Channel(
            key, partition, self._windows, seals, self._tail.next, self._partials.ended_by_message
        )
        channel.holds = 1
        try:
            await self._open(channel)
        except BaseException as error:
            if isinstance(error, ThreadfoldError):
                channel.opened.set_exception(error)
            else:
                channel.opened.set_exception(
                    KafkaUnavailable("the stream could not be opened: try again shortly")
                )
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
        recents = RecentIds() if stored is None else stored.recent_ids(key)
        if first - SCAN <= checkpoint.offset + 1 < first:
            # The windows lag: what came since them are recent ids, too. Further behind, repeats may
            # be sent again.
            async for raw in self.backend.log.scan(partition, checkpoint.offset + 1, first - 1):
                found = told(raw, partition, key, self.backend.log.seals)
                if found is not None and recents.find(id_hash_of(found.id)) is None:
                    recents.add(id_hash_of(found.id), raw.offset)
        channel.recents = recents
        await self._open_text(channel, first)
        channel.open(await self._windows.state(key), first - 1, checkpoint.offset)

    async def _open_text(self, channel: Channel, first: int) -> None:
        """What is being said now, and from now on; unless its message stands in the log before the
        channel's first record.
        """
        name = self._held.channel(channel.key)
        self._named[name] = channel
        channel.torn = lambda: self._read_again(channel)
        await self._hearing.join(name)
        text = await self._held.read(channel.key)
        if text is None:
            return
        ended = {}
        if text.since < first:
            ended = await self._partials.came_since(channel.partition, {channel.key: text})
        if channel.key in ended and ended[channel.key] < first:
            channel.saying.message(ended[channel.key], "complete")
        else:
            channel.said_so_far(*text)

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
            name = self._held.channel(channel.key)
            if self._named.get(name) is channel:
                del self._named[name]
                self._hearing.leave(name)
            channel.close("closed")
            self._windows.forget(channel.key)

    async def _tick(self) -> None:
        """Heart-beats, and whether subscribers are still allowed: one task for all of them."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(CHECK_EVERY, self.heartbeat / 2))
            now = loop.time()
            self._partials.expire()
            for reader in list(self._readers):
                if reader.still_allowed is not None and not reader.still_allowed():
                    reader.end(NOT_ALLOWED)
                else:
                    reader.beat(now, self.heartbeat)

    def count(self) -> int:
        """How many streams are open."""
        return len(self._readers)
