"""The backend: everything the gateway and the commands do with conversations, over the log, the
windows and the control topic.

One instance serves any number of callers in one event loop. A conversation is always named together
with its tenant, so what belongs to another tenant cannot be told from what does not exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from projections.errors import (
    Erased,
    Healing,
    InvalidPosition,
    InvalidRequest,
    KafkaUnavailable,
    UnknownConversation,
)
from projections.events.validation import Record
from projections.names import Key, Position, make_key, parse_key, parse_position, partition_of
from projections.policy.policy import Rules
from projections.redis.store import RedisStore
from projections.render.render import render_openai
from projections.storage.layout import HEAD, Head, decode_head
from projections.storage.protocol import Checkpoint, Stored, stored_form
from projections.storage.stubs import STUB
from projections.window.recent_ids import RecentIds
from projections.window.window import Window
from streams.control.follower import Control, State
from streams.control.key_ring import KeyRing, encrypting
from streams.log.log import KafkaLog
from streams.log.topics import partition_count
from streams.projector.tracing import compaction_span
from streams.recovery.hydrating_store import HydratingStore
from streams.recovery.revival import Revival, rules_of
from streams.recovery.snapshot_topic import KafkaSnapshots
from streams.settings.settings import Settings
from threadfold.service.appended import Appended, Applied, applied_of, make_appended
from threadfold.service.documents import check_format, document_of
from threadfold.service.drafts import UNCONDITIONED, Conditions, Drafter, is_heavy
from threadfold.service.ledger import Ledger
from threadfold.service.pages import flat_event, page
from threadfold.service.spill import append_drafts, check_page, unfold
from threadfold.service.waiting import Waiting
from threadfold.service.window_cache import WindowCache

MAX_PAGE = 500
"""Events in one page of history at most."""
PATIENCE = 5.0
"""Seconds that a read waits for a window that has to be folded from the log; then it is told to try
again.
"""

Found = TypeVar("Found")


class ConversationService:
    """Appending, waiting, windows and history. Start it before use (or ``async with``), stop it
    after.
    """

    log: KafkaLog
    ledger: Ledger
    snapshots: KafkaSnapshots
    """The log, the ledger of model calls, and what sleeping windows are read from; there once
    started.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.control = Control(settings)
        self.keys = KeyRing(settings, encrypting(self.control))
        self.store = HydratingStore(RedisStore(settings.redis, settings.topic_prefix))
        self._waiting = Waiting(self.store, lambda: self.control.state.live_generation.number)
        self._rules: Rules | None = None
        self._served: dict[int, int] = {}
        self._cache = WindowCache(settings.read_cache_bytes)
        self.control.on_change(self._forget_rules)
        self.keys.on_erased(self._forget_window)
        self.on_appended: (
            Callable[[Sequence[Record], Sequence[Position]], Awaitable[None]] | None
        ) = None
        """Awaited with what was appended before the caller is answered; it must not fail
        (``threadfold.streaming``).
        """

    async def start(self) -> ConversationService:
        """Connect to Kafka (Redis is connected to when it is first needed); returns itself.

        Raises:
            InvalidSettings: an address is missing. KafkaUnavailable: Kafka does not answer.
            TopicMismatch: topics or the live generation are missing, or the log's partition count
            was changed.
        """
        self.settings.require()
        try:
            await self.control.start()
            generation = self.control.state.live_generation
            partitions = await partition_count(self.settings)
            generation.check_partitions(self.settings.topic("events"), partitions)
            await self.keys.start()
        except BaseException:
            await self.keys.stop()
            await self.control.stop()
            raise
        self.log = KafkaLog(self.settings, partitions, seals=self.keys)
        self.ledger = Ledger(self.settings, self.control, self.log, self._window_at)
        self.snapshots = KafkaSnapshots(self.settings, partitions)
        cache = self.settings.read_cache_bytes // 4
        self.store.revival = Revival(
            self.snapshots, self.log, rules_of(self.control), cache_bytes=cache, patience=PATIENCE
        )
        return self

    async def stop(self) -> None:
        """End what waits, and close all connections."""
        await self._waiting.stop()
        if hasattr(self, "log"):
            await self.ledger.stop()
            if self.store.revival is not None:
                await self.store.revival.stop()
            await self.snapshots.stop()
            await self.log.stop()
        await self.keys.stop()
        await self.control.stop()
        await self.store.inner.close()

    async def __aenter__(self) -> ConversationService:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    # -- appending
    # ------------------------------------------------------------------------------------------

    async def append(
        self,
        tenant: str,
        items: Sequence[tuple[str, object]],
        *,
        noun: str = "event",
        operator: bool = False,
        id_seed: str | None = None,
        conditions: Conditions = UNCONDITIONED,
    ) -> list[Appended]:
        """Append flat events and return ids and positions once they are safe; all are checked
        before any is appended.

        Order is kept within a conversation. An event that repeats one of the last 1,024 ids of its
        conversation is appended and changes nothing; only :meth:`wait_applied` tells. A tool result
        that is too long for one event is spilled (``threadfold.service.spill``): its pieces are
        events of their own, which are not answered for here.

        Args:
            tenant: whose they are; recorded in the control topic first when it is new. items: pairs
            of a conversation and a decoded flat event. noun: what errors call an item; they count
            from 1. operator: whether the types reserved to operators are allowed. id_seed: derive
            the ids of events that have none from this, so that a repeated call repeats them.
            conditions: what the fold checks of each event; the items are of one conversation then.

        Raises:
            InvalidName, InvalidEvent, InvalidPolicy, EventTooLarge: an item is wrong; nothing was
            appended. Overloaded: too much is on its way into the log already (``streams.log.log``);
            nothing was appended. Erased: one of the conversations was erased; nothing was appended.
            KeyUnusable: the tenant's payloads are to be sealed, and no master key is configured;
            nothing was appended. KafkaUnavailable: after at most ``append_timeout`` seconds;
            unknown whether they are in, repeat with the same ids.
        """
        drafter = Drafter(
            tenant, self.live_rules(), self.log.partitions, self.settings.max_event_bytes
        )
        if is_heavy(items):
            drafts = await asyncio.to_thread(
                drafter.drafts, items, noun, operator, id_seed, conditions
            )
        else:
            drafts = drafter.drafts(items, noun, operator, id_seed, conditions)
        if not drafts.records:
            return []
        try:
            async with asyncio.timeout(self.settings.append_timeout):
                if tenant not in self.control.state.tenants:
                    await self.control.ensure_tenant(tenant)
                positions = await append_drafts(self.log, drafts)
        except TimeoutError:
            raise KafkaUnavailable(
                f"append: Kafka at {self.settings.kafka} did not answer within"
                f" {self.settings.append_timeout:g} s; unknown whether it is in: repeat it with the"
                " same ids"
            ) from None
        if self.on_appended is not None:
            await self.on_appended(drafts.records, positions)
        return list(
            map(
                make_appended,
                zip(
                    [record.id for record in drafts.records], positions, drafts.tokens, strict=True
                ),
            )
        )

    async def wait_applied(
        self,
        tenant: str,
        conversation: str,
        appended: Sequence[Appended],
        timeout: float = 10.0,  # noqa: ASYNC109
    ) -> list[Applied]:
        """Wait until the window holds these events of one conversation, and tell what the fold made
        of each.

        An event whose id has already left the last 1,024 by then is told as applied.

        Raises:
            WaitTimedOut: not within ``timeout`` seconds; the append itself stands.
            RedisUnavailable, Healing: it cannot be told now; the append itself stands. Erased: the
            conversation was erased meanwhile; the events are in nothing that can be read.
        """
        if not appended:
            return []
        key = make_key(tenant, conversation)
        await self._waiting.reach(max(item.position for item in appended), timeout)
        partition = partition_of(key, self.log.partitions)
        _, stored = await self._of_live(
            partition, lambda generation: self.store.head(generation, partition, key)
        )
        if stored is None:
            return [applied_of(item, RecentIds()) for item in appended]
        head, recents = _head_of(key, stored.fields), stored.recent_ids(key)
        return [applied_of(item, recents, head.parked) for item in appended]

    async def applied(self, position: Position, timeout: float = 10.0) -> None:  # noqa: ASYNC109
        """Wait until the windows of the position's partition include it; raises like
        :meth:`caught_up`.
        """
        await self._waiting.reach(position, timeout)

    async def caught_up(self, partitions: Iterable[int], timeout: float = 10.0) -> None:  # noqa: ASYNC109
        """Wait until the windows of these partitions hold everything that is in the log now.

        Raises:
            WaitTimedOut: they do not within ``timeout`` seconds.
            KafkaUnavailable, RedisUnavailable: it cannot be told now.
        """
        tops = await self.log.last_records()
        await asyncio.gather(
            *(self._waiting.reach(Position(p, tops[p] - 1), timeout) for p in partitions if tops[p])
        )

    # -- reading
    # ------------------------------------------------------------------------------------------

    async def window(
        self,
        tenant: str,
        conversation: str,
        *,
        after: str | None = None,
        timeout: float = 10.0,  # noqa: ASYNC109
    ) -> Window:
        """The conversation's window as it is now, or (``after``) once it includes that position.

        Raises:
            UnknownConversation: it has none: nothing was appended to it, or not yet folded.
            Erased: it was erased.
            InvalidPosition: ``after`` is not of this conversation's partition.
            WaitTimedOut: it does not include ``after`` within ``timeout`` seconds.
            Healing, CorruptWindow, RedisUnavailable: it cannot be read now.
        """
        key = make_key(tenant, conversation)
        self._refuse_erased(key)
        if after is not None:
            await self._waiting.reach(self._own_position(key, after), timeout)
        window = await self.window_or_none(key)
        if window is None:
            raise _unknown(key)
        return window

    async def context(
        self,
        tenant: str,
        conversation: str,
        *,
        fmt: str = "openai",
        max_tokens: int | None = None,
        after: str | None = None,
        timeout: float = 10.0,  # noqa: ASYNC109
    ) -> bytes:
        """The context document in a format of ``threadfold.service.documents``, as JSON.

        In OpenAI's, where nothing has to be shortened, bytes are joined and no message is parsed.

        Raises:
            InvalidRequest: there is no such format. DoesNotFit: what must not be left out is larger
            than the ceiling, or than ``max_tokens``. InvalidPosition, WaitTimedOut,
            UnknownConversation, Erased, Healing, CorruptWindow, RedisUnavailable: as :meth:`window`
            says.
        """
        key = make_key(tenant, conversation)
        check_format(fmt)
        self._refuse_erased(key)
        if after is not None:
            await self._waiting.reach(self._own_position(key, after), timeout)
        if fmt == "openai":
            joined = await self._joined(key, max_tokens)
            if joined is not None:
                return joined
        window = await self.window(tenant, conversation)
        render = render_openai(window, max_tokens)
        if render.made:
            compaction_span(
                key,
                round(render.made[0].tokens_before / window.limits.ceiling, 6),
                render.made,
                where="render",
            )
        return document_of(window, render, fmt)

    async def history(
        self, tenant: str, conversation: str, *, before: str | None = None, limit: int = 50
    ) -> dict[str, Any]:
        """A page of the conversation's events, newest first, as ``{"events": […], "next_before":
        cursor | None}`` (``threadfold.service.pages``).

        Raises:
            InvalidRequest: ``limit`` is not 1 to 500.
            InvalidPosition: ``before`` is not a cursor of this conversation.
            UnknownConversation, Erased, Healing, RedisUnavailable: as :meth:`window` says.
            KafkaUnavailable: the log cannot be read now.
        """
        if not 1 <= limit <= MAX_PAGE:
            raise InvalidRequest(f"limit is {limit}: it must be 1 to {MAX_PAGE}")
        return await page(self.log, await self.window(tenant, conversation), before, limit)

    async def event_at(
        self,
        tenant: str,
        conversation: str,
        position: str,
        *,
        offset: int | None = None,
        limit: int | None = None,
    ) -> dict[str, Any]:
        """One event whole, as :func:`threadfold.service.pages.flat_event` gives it; found as soon
        as it is in the log.

        A spilled result comes with its whole content. With ``offset`` or ``limit`` (characters)
        ``content`` is that page of the text, and ``page`` tells which
        (:func:`threadfold.service.spill.unfold`).

        Raises:
            InvalidPosition: the position is not one of an event of this conversation.
            InvalidRequest: offset or limit cannot be, or the event has no text content.
            SpillLost: the log does not hold the whole of a spilled result.
            Erased, Healing, RedisUnavailable: as :meth:`window` says.
            KafkaUnavailable: the log cannot be read now.
        """
        key = make_key(tenant, conversation)
        check_page(offset, limit)
        self._refuse_erased(key)
        at = self._own_position(key, position)
        # An erased conversation is refused. One that is not folded yet may be read, and one that
        # sleeps goes on sleeping.
        fields = await self.stored_fields(key, [HEAD, STUB])
        if HEAD in fields:
            _head_of(key, fields)
        raw = (await self.log.read([at])).get(at)
        flat = None if raw is None else flat_event(raw, key, self.log.seals)
        if flat is None:
            raise _not_its_position(key, position)
        return await unfold(self.log, key, flat, offset, limit)

    async def reach(self, position: Position, timeout: float = 10.0) -> None:  # noqa: ASYNC109
        """Return once the windows of the position's partition include it; raises like
        :meth:`wait_applied`.
        """
        await self._waiting.reach(position, timeout)

    async def stored(self, key: Key, *, recents: bool = True) -> tuple[Checkpoint, Stored | None]:
        """A conversation's window as it is stored in the generation that is live when this returns,
        erased or not, with its checkpoint.

        Raises:
            Healing, CorruptWindow, RedisUnavailable: it cannot be read now.
        """
        partition = partition_of(key, self.log.partitions)
        checkpoint, found = await self._of_live(
            partition,
            lambda generation: self.store.read(generation, partition, [key], recents=recents),
        )
        return checkpoint, found[0]

    async def head(self, key: Key) -> Head:
        """The head of a conversation's window: its counters, its turns, what is read first.

        Raises:
            UnknownConversation, Erased: as :meth:`window` says.
            Healing, CorruptWindow, RedisUnavailable: it cannot be read now.
        """
        self._refuse_erased(key)
        fields = await self.stored_fields(key, [HEAD])
        if HEAD not in fields:
            raise _unknown(key)
        return _head_of(key, fields)

    async def stored_fields(self, key: Key, names: list[bytes]) -> dict[bytes, bytes]:
        """Some fields of a window as it is stored (``projections.storage.layout``); raises like
        :meth:`stored`.
        """
        partition = partition_of(key, self.log.partitions)
        before = self.served(partition)
        checkpoint, fields = await self.store.fields(
            self.control.state.live_generation.number, partition, key, names
        )
        await self.check_served(partition, checkpoint, before)
        return fields

    async def _of_live(
        self,
        partition: int,
        read: Callable[[int], Awaitable[tuple[Checkpoint | None, Found]]],
    ) -> tuple[Checkpoint, Found]:
        """What ``read`` finds in the generation that is live when this returns; raises like
        :meth:`stored`.
        """
        while True:
            before, generation = self.served(partition), self.control.state.live_generation.number
            checkpoint, found = await read(generation)
            checked = await self.check_served(partition, checkpoint, before)
            # Else readers were switched meanwhile: whoever opens it does so by the rules that are
            # live now.
            if generation == self.control.state.live:
                return checked, found

    # -- parts
    # ------------------------------------------------------------------------------------------

    def _own_position(self, key: Key, text: str) -> Position:
        position = parse_position(text)
        if position.partition != partition_of(key, self.log.partitions):
            raise _not_its_position(key, text)
        return position

    async def _window_at(self, key: Key, position: str) -> Window:
        return await self.window(key.tenant, key.conversation, after=position)

    async def _joined(self, key: Key, max_tokens: int | None) -> bytes | None:
        """The context document, where it can be joined from what is stored; of a window that was
        read before, only what changed is read.
        """
        generation, partition = (
            self.control.state.live_generation.number,
            partition_of(key, self.log.partitions),
        )
        place = (generation, key)
        kept = self._cache.get(place)
        with stored_form(key):
            if kept is not None:
                before = self.served(partition)
                checkpoint, fields = await self.store.fields(
                    generation, partition, key, kept.names()
                )
                await self.check_served(partition, checkpoint, before)
                missing = kept.missing(decode_head(fields[HEAD]), fields) if HEAD in fields else []
                if missing:
                    # What the head names stays as it is or goes; what came instead has another seal
                    # and is not used.
                    fields |= (await self.store.fields(generation, partition, key, missing))[1]
                document = (
                    self._cache.context(place, partition, fields, max_tokens)
                    if HEAD in fields
                    else None
                )
                if document is not None:
                    return document
            stored = await self._stored(key, recents=False)
            return (
                None
                if stored is None
                else self._cache.context(place, partition, stored.fields, max_tokens)
            )

    async def window_or_none(self, key: Key) -> Window | None:
        """The conversation's window, None where it has none; raises like :meth:`window`."""
        stored = await self._stored(key)
        if stored is None:
            return None
        window = stored.load(key, partition_of(key, self.log.partitions), self.live_rules())
        if window.meta.erased:
            raise Erased(f"conversation {key.conversation} was erased")
        return window

    async def _stored(self, key: Key, *, recents: bool = True) -> Stored | None:
        return (await self.stored(key, recents=recents))[1]

    def served(self, partition: int) -> int:
        """The offset up to which windows of the partition were served here; to be asked before they
        are read (:meth:`check_served`).
        """
        return self._served.get(partition, -1)

    async def check_served(
        self, partition: int, checkpoint: Checkpoint | None, before: int
    ) -> Checkpoint:
        """The checkpoint; raises :class:`Healing` when what was read with it is not to be served.

        ``before`` is what :meth:`served` told before it was read: of two reads side by side the one
        that is answered last may be the older.
        """
        if (
            checkpoint is None
            or checkpoint.healing
            or await self._stepped_back(partition, checkpoint.offset, before)
        ):
            raise Healing(
                f"the windows of partition {partition} are being brought back from the log: try"
                " again shortly"
            )
        return checkpoint

    async def _stepped_back(self, partition: int, offset: int, before: int) -> bool:
        """Whether windows at ``offset`` are older than what was served here before (Redis was set
        back, or a generation switched).
        """
        if offset >= before:
            self._served[partition] = max(self.served(partition), offset)
            return False
        # A topic made anew is shorter than what was served: then there is nothing to wait for.
        before = min(before, (await self.log.last_records())[partition] - 1)
        self._served[partition] = max(before, offset)
        return offset < before

    def live_rules(self) -> Rules:
        """The rules of the live generation."""
        if self._rules is None:
            state = self.control.state
            self._rules = state.rules(state.live_generation)
        return self._rules

    def _forget_window(self, conversation: bytes) -> None:
        """Keep nothing of an erased conversation that was read here."""
        key = parse_key(conversation)
        if key is not None and self.control.state.live is not None:
            self._cache.drop((self.control.state.live_generation.number, key))
        if key is not None and self.store.revival is not None:
            self.store.revival.forget(key)

    def _refuse_erased(self, key: Key) -> None:
        """Raise :class:`Erased` for a conversation that was erased, or is being erased."""
        if self.keys.is_erased(str(key).encode()):
            # A read that was under way when it was erased may have kept something since.
            self._forget_window(str(key).encode())
            raise Erased(f"conversation {key.conversation} was erased")

    def _forget_rules(self, state: State) -> None:
        self._rules = None


def _head_of(key: Key, fields: Mapping[bytes, bytes]) -> Head:
    """The head among a window's fields; raises Erased, CorruptWindow."""
    with stored_form(key):
        head = decode_head(fields[HEAD])
    if head.erased:
        raise Erased(f"conversation {key.conversation} was erased")
    return head


def _unknown(key: Key) -> UnknownConversation:
    return UnknownConversation(
        f"conversation {key.conversation} is not known: nothing was appended to it"
    )


def _not_its_position(key: Key, text: str) -> InvalidPosition:
    return InvalidPosition(f"position {text} is not one of conversation {key.conversation}")
