"""The streams of one process: all its subscribers share one reader of the log and one subscription
to Redis.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from weakref import WeakValueDictionary

from projections.errors import Erased, InvalidPosition, KafkaUnavailable
from projections.names import Key, Position, check_name, make_key, parse_position, partition_of
from streams.runtime.keyed_limit import KeyedLimit
from streams.runtime.tasks import end_tasks
from threadfold.service.append_result import Appended
from threadfold.service.conversations import ConversationService
from threadfold.service.turns import stale_fence
from threadfold.streaming.catchup import missed
from threadfold.streaming.channel import Channel
from threadfold.streaming.channels import Channels
from threadfold.streaming.partial_store import PartialStore
from threadfold.streaming.partials import Partials
from threadfold.streaming.reader import MOST, MOST_BYTES, SLOW, Reader
from threadfold.streaming.sse_event import SseEvent
from threadfold.streaming.subscription import Joined, Subscription
from threadfold.streaming.summaries import Summaries, SummariesSubscription
from threadfold.streaming.sweeper import Sweeper
from threadfold.streaming.text_endings import TextEndings
from threadfold.streaming.unsent import OnTurn, TenantStreams
from threadfold.streaming.windows import Windows

CHECK_EVERY = 1.0
"""Seconds between two checks whether subscribers are still allowed, at most."""
OPENING, OPENING_OF_TENANT = 16, 8
"""Streams that are opened at once, in all and of one tenant. After a gateway stops, all its
subscribers come at the same time, and Redis has few connections; and a tenant whose clients leave
and come again keeps out no other one.
"""
STOPPING = "this gateway is stopping: connect again with Last-Event-ID"
NOT_ALLOWED = "the key is not valid any more"


class Live:
    """The streams of one backend. Start it before use; stop it before the backend.

    Args:
        heartbeat: seconds a stream may be silent; None takes the setting ``stream_heartbeat``.
        most, most_bytes: messages, and bytes of them, that may wait for one subscriber.
        turn: is awaited with a tenant's name before a stream of it sends something; None: nothing
            is.
    """

    def __init__(
        self,
        backend: ConversationService,
        *,
        heartbeat: float | None = None,
        most: int = MOST,
        most_bytes: int = MOST_BYTES,
        turn: OnTurn | None = None,
    ) -> None:
        self._turn = turn
        self.backend = backend
        self.heartbeat = heartbeat or backend.settings.stream_heartbeat
        self._most = most
        self._most_bytes = most_bytes
        timeout = backend.settings.partial_timeout
        self._windows = Windows(backend)
        self.store = PartialStore(backend.settings.redis, backend.settings.topic_prefix, timeout)
        self.endings = TextEndings(backend, self._windows)
        self.channels = Channels(
            backend,
            self.store,
            self._windows,
            self.endings,
            lambda *text: self.partials.on_message(*text),
            lambda *at: self.partials.on_rollback(*at),
        )
        self.partials = Partials(
            backend, self.store, self._windows, self.channels, self.endings, timeout
        )
        self.sweeper = Sweeper(
            self.store,
            self.partials,
            self.endings,
            every=max(0.1, min(2.0, timeout / 6)),
            claim=backend.settings.append_timeout + 10.0,
        )
        self._summaries = Summaries(backend.settings, backend.log.partitions, backend.log.seals)
        self._opening = asyncio.Semaphore(OPENING)
        self._opening_of = KeyedLimit(OPENING_OF_TENANT)
        self._tenants: WeakValueDictionary[str, TenantStreams] = WeakValueDictionary()
        self._turns = KeyedLimit(1)
        self.readers: set[Reader] = set()
        self._ticker: asyncio.Task[None] | None = None
        self.stopping = False

    async def start(self) -> Live:
        """Begin; returns itself. Connects to nothing before it is needed."""
        self._ticker = asyncio.create_task(self._tick(), name="streams-ticker")
        self.sweeper.start()
        self.backend.on_appended = self.partials.appended
        return self

    def end_streams(self, reason: str = STOPPING) -> None:
        """End every stream cleanly, and let none begin: what a gateway does first when it stops."""
        self.stopping = True
        for reader in list(self.readers):
            reader.end(reason)

    async def stop(self) -> None:
        """End every stream and everything under way, and close the connections."""
        self.end_streams()
        self.backend.on_appended = None
        await end_tasks([self._ticker])
        await self.sweeper.stop()
        await self.channels.stop(STOPPING)
        await self.partials.stop()
        await self._summaries.stop()
        await self.store.close_connections()

    # -- conversations
    # ------------------------------------------------------------------------------------------

    async def open(
        self,
        tenant: str,
        conversation: str,
        after: str | None = None,
        still_allowed: Callable[[], bool] | None = None,
    ) -> Subscription:
        """Subscribe to a conversation, after a position or (None) from now on. The stream has
        everything that is appended once this has returned.

        Args:
            still_allowed: called every second; the stream ends once it answers False.

        Raises:
            InvalidPosition: ``after`` is not of this conversation's partition, or is not in the log
                yet.
            TooFarBehind: too many events came after it.
            Erased: the conversation was erased.
            Healing, CorruptWindow, RedisUnavailable, KafkaUnavailable: try again later.
        """
        key = make_key(tenant, conversation)
        position = None if after is None else self._own_position(key, after)
        if self.stopping:
            raise KafkaUnavailable("the gateway is stopping: connect to another one")
        shared = self._shared(tenant)
        reader = Reader(self._most, self._most_bytes, still_allowed, shared)
        async with self._opening_of.of(tenant), self._opening:
            return await self._opened(key, position, reader, shared)

    async def _opened(
        self, key: Key, position: Position | None, reader: Reader, shared: TenantStreams
    ) -> Subscription:
        channel = await self.channels.acquire(key)
        try:
            if await self._windows.erased(key):
                raise Erased(f"conversation {key.conversation} was erased")
            end = (await self.backend.log.end_offsets())[channel.partition]
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
        self.readers.add(reader)
        reader.last_put = asyncio.get_running_loop().time()
        open_still = [channel]

        def close() -> None:
            if open_still:
                self._left(open_still.pop(), reader)

        return Subscription(
            channel, reader, self._windows, found, join, close, self.heartbeat, shared
        )

    async def conversation(
        self, tenant: str, conversation: str, after: str | None = None
    ) -> AsyncGenerator[SseEvent, None]:
        """A conversation's stream for callers in this process, without comments. A caller that
        falls behind resumes where it was.

        The stream ends when the conversation is erased or :meth:`stop` is called. Raises like
        :meth:`open`.
        """
        while True:
            subscription = await self.open(tenant, conversation, after)
            ended = ""
            try:
                async for batch in subscription.batches():
                    for sse in batch:
                        if sse.id is not None:
                            after = sse.id
                        if sse.event:
                            yield sse
                        else:
                            ended = sse.data.decode()
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
    ) -> SummariesSubscription:
        """Subscribe to a tenant's summaries after a cursor, from the beginning, or from now on.

        Raises:
            InvalidName: ``tenant`` is not a name.
            InvalidPosition: ``cursor`` is not of this tenant's stream.
            KafkaUnavailable: try again later.
        """
        check_name("tenant", tenant)
        if self.stopping:
            raise KafkaUnavailable("the gateway is stopping: connect to another one")
        shared = self._shared(tenant)
        erased = self._summaries.seals.is_erased
        reader = Reader(self._most, self._most_bytes, still_allowed, shared, erased)
        async with self._opening_of.of(tenant), self._opening:
            since = await self._summaries.open(tenant, reader, cursor, beginning)
        self.readers.add(reader)
        reader.last_put = asyncio.get_running_loop().time()

        def close() -> None:
            reader.close()
            self.readers.discard(reader)
            self._summaries.leave(tenant, reader)

        return SummariesSubscription(self._summaries, shared, reader, since, self.heartbeat, close)

    async def summaries(
        self, tenant: str, cursor: str | None = None, *, beginning: bool = False
    ) -> AsyncGenerator[SseEvent, None]:
        """A tenant's summaries for callers in this process, without comments. A caller that falls
        behind resumes where it was.

        Delivery is at least once: dedupe on ``summary_id``. Raises like :meth:`open_summaries`.
        """
        while True:
            subscription = await self.open_summaries(tenant, cursor, beginning=beginning)
            ended = ""
            try:
                async for batch in subscription.batches():
                    for sse in batch:
                        if sse.event:
                            cursor = sse.id
                            yield sse
                        else:
                            ended = sse.data.decode()
            finally:
                subscription.close()
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
        """Add to an assistant's text in progress; returns how many characters it has now.

        Args:
            fence: a fencing token, which the window must have as the current one.

        Raises:
            InvalidName: ``turn_id`` is not a name.
            Conflict: the turn of ``fence`` is over.
            Others: as :meth:`Partials.post` says.
        """
        key = make_key(tenant, conversation)
        check_name("turn_id", turn_id)
        if self._windows.erasing(key):
            raise Erased(f"conversation {conversation} was erased")
        if fence is not None:
            token = await self._windows.token(key)
            if token != fence:
                raise stale_fence(fence, token)
        return await self.partials.post(key, turn_id, delta, offset)

    def on_kept(self, callback: Callable[[str, Sequence[Appended]], None]) -> None:
        """Call back whenever a text in progress is appended as an interrupted message, with the
        tenant and what was appended.
        """
        self.partials.on_kept = callback

    async def forget(self, tenant: str, conversation: str, erased: bool = False) -> bool:
        """Delete a conversation's text in progress, which is not encrypted; returns whether there
        was any. Of one that was ``erased``, no gateway takes any more.

        Raises:
            RedisUnavailable: try again later.
        """
        return await self.partials.forget(make_key(tenant, conversation), erased)

    # -- parts
    # ------------------------------------------------------------------------------------------

    def _shared(self, tenant: str) -> TenantStreams:
        """What the tenant's streams share, while there is one."""
        shared = self._tenants.get(tenant)
        if shared is None:
            shared = self._tenants[tenant] = TenantStreams(tenant, self._turns, self._turn)
        return shared

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
            known = channel.recent_ids.since
            return Joined(
                await missed(
                    self.backend, channel.key, channel.partition, after, upto, known=known
                ),
                upto,
            )

        return join

    def _left(self, channel: Channel, reader: Reader) -> None:
        reader.close()
        channel.readers.discard(reader)
        self.readers.discard(reader)
        self.channels.release(channel)

    async def _tick(self) -> None:
        """Send heart-beats and check whether subscribers are still allowed, in one task for all."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(CHECK_EVERY, self.heartbeat / 2))
            now = loop.time()
            self.partials.expire()
            self.channels.mute_erased()
            for reader in list(self.readers):
                if reader.still_allowed is not None and not reader.still_allowed():
                    reader.end_now(NOT_ALLOWED)
                else:
                    reader.beat(now, self.heartbeat)

    def count(self) -> int:
        """How many streams are open."""
        return len(self.readers)
