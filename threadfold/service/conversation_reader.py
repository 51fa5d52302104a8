"""Reads conversations: windows, context documents, history and single events.

A conversation is always named together with its tenant: another tenant's conversation looks like
one that does not exist.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Self

from projections.errors import (
    Erased,
    InvalidPosition,
    InvalidRequest,
    UnknownConversation,
    WaitTimedOut,
)
from projections.names import Key, Position, make_key, parse_key, parse_position, partition_of
from projections.policy.policy import Rules
from projections.redis.store import RedisStore
from projections.storage.layout import HEAD, Head, decode_head
from projections.storage.records import Checkpoint, stored_form
from projections.storage.stubs import STUB
from projections.window.window import Window
from streams.control.control_topic import Control
from streams.control.key_ring import KeyRing, encrypting
from streams.control.state import State
from streams.log.kafka_log import KafkaLog
from streams.log.topics import partition_count
from streams.projector.tracing import compaction_span
from streams.recovery.hydrating_reader import HydratingReader
from streams.recovery.revival import Revival, rules_of
from streams.recovery.snapshot_topic import KafkaSnapshots
from streams.runtime.keyed_limit import KeyedLimit
from streams.runtime.processor import Processor, Threads
from streams.settings.settings import Settings
from threadfold.service.checkpoint_waits import CheckpointWaits
from threadfold.service.documents import (
    PATIENCE,
    check_format,
    document_beside,
    turns_of_large,
    window_beside,
)
from threadfold.service.lag import Lag, explained, name_halt, refuse_halted
from threadfold.service.ledger import Ledger
from threadfold.service.pages import MAX_PAGE, PAGES, known_types, page
from threadfold.service.past_windows import PastWindows
from threadfold.service.stored_windows import LARGE_READS, PARKED, Owner, StoredWindows
from threadfold.service.whole_event import check_page, whole_event

LISTS = 2
"""Lists of conversations that one tenant reads at a time."""


class ConversationReader:
    """Reads windows and history. Start it before use (or ``async with``), and stop it after."""

    log: KafkaLog
    past: PastWindows
    ledger: Ledger
    snapshots: KafkaSnapshots
    """They exist once the service is started."""

    def __init__(self, settings: Settings, processor: Processor | None = None) -> None:
        """Args: ``processor`` works out what takes a processor for long; None: threads do."""
        self.settings = settings
        self.processor = processor or Threads()
        self.control = Control(settings)
        self.keys = KeyRing(settings, encrypting(self.control))
        self.turns_to_read = turns = KeyedLimit(LARGE_READS, PATIENCE)
        """Of each tenant, reads of large windows, and the work on what was read."""
        self.store = RedisStore(settings.redis, settings.topic_prefix, turns=turns.of)
        self.store.reader = self._reader = HydratingReader(self.store, apart=turns.apart)
        self._waiting = CheckpointWaits(
            self.store, lambda: self.control.state.live_generation.number
        )
        self._rules: Rules | None = None
        self._turns_to_page = KeyedLimit(PAGES, PATIENCE)
        self.turns_to_list = KeyedLimit(LISTS, PATIENCE)
        """Of each tenant, lists of conversations: each is dozens of small reads at once."""
        self.turns_to_render = turns_of_large()
        self.windows = StoredWindows(
            self._reader, self.control, lambda: self.log, settings.read_cache_bytes, turns
        )
        self.control.on_change(self._forget_rules)
        self.keys.on_erased(self._forget_window)

    async def start(self) -> Self:
        """Connect to Kafka, and return itself. The first use of Redis connects to Redis.

        Raises:
            InvalidSettings: an address is missing.
            KafkaUnavailable: Kafka does not answer.
            TopicMismatch: topics or the live generation are missing, or have other partitions.
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
        admit = self.control.state.check_appends
        self.log = KafkaLog(self.settings, partitions, seals=self.keys, admit=admit)
        self.past = PastWindows(self.log, self._window_at, self.processor, self.settings.callables)
        self.ledger = Ledger(self.settings, self.control, self.log, self.past)
        self.snapshots = KafkaSnapshots(self.settings, partitions)
        cache = self.settings.read_cache_bytes // 4
        known = rules_of(self.control)
        self._reader.revival = Revival(
            self.snapshots, self.log, known, cache_bytes=cache, patience=PATIENCE, strict=True
        )
        self._lag = Lag(self.log, self.settings.stale_after, self.windows.applied)
        self._lag.start()
        return self

    async def stop(self) -> None:
        """End all waits, and close all connections."""
        await self._waiting.stop()
        if hasattr(self, "log"):
            await self._lag.stop()
            await self.ledger.stop()
            if self._reader.revival is not None:
                await self._reader.revival.stop()
            await self.snapshots.stop()
            await self.log.stop()
        await self.keys.stop()
        await self.control.stop()
        await self.store.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def wait_for(
        self,
        position: Position,
        timeout: float = 10.0,  # noqa: ASYNC109
        *,
        whose: Key | str | None = None,
    ) -> None:
        """Wait until the windows of the position's partition include it; those of a key or of a
        tenant are enough, if given: it does not wait while others go back to an old event.

        Raises:
            WaitTimedOut: they do not within ``timeout`` seconds, or the partition halted before it.
            RedisUnavailable: the checkpoint cannot be read.
        """
        refuse_halted(self.control.state, position)
        try:
            await self._waiting.wait_for(position, timeout, whose)
        except WaitTimedOut as error:
            raise await explained(error, position, self.store, self.log) from None

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
            UnknownConversation: it has no events, or nothing is folded yet.
            Erased: the conversation was erased.
            InvalidPosition: ``after`` is not of this conversation's partition.
            WaitTimedOut: the window does not include ``after`` within ``timeout`` seconds.
            Healing, CorruptWindow, RedisUnavailable, CallableUnavailable: it cannot be read now.
        """
        key = make_key(tenant, conversation)
        self._refuse(key)
        if after is not None:
            await self.wait_for(self._own_position(key, after), timeout, whose=key)
        window = await self.window_or_none(key)
        if window is None:
            raise unknown(key)
        return window

    async def window_or_none(self, key: Key) -> Window | None:
        """The conversation's window, None if it has none; raises like :meth:`window`."""
        _, window = await self.checkpoint_and_window(key)
        if window is not None and window.meta.erased:
            raise Erased(f"{key.shown} was erased")
        return window

    async def checkpoint_and_window(self, key: Key) -> tuple[Checkpoint, Window | None]:
        """Its partition's checkpoint, and the window, also one that was erased."""
        async with self.turns_to_read.together(key.tenant):
            checkpoint, stored = await self.windows.read(key)
            if stored is None:
                return checkpoint, None
            number, rules = partition_of(key, self.log.partitions), self.live_rules()
            return checkpoint, await window_beside(stored, key, number, rules, self.turns_to_render)

    async def head(self, key: Key) -> Head:
        """The head of a conversation's window: its counters, its turns and its read header. Raises
        like :meth:`window`.
        """
        self._refuse(key)
        fields = await self.windows.fields(key, [HEAD])
        if HEAD not in fields:
            raise unknown(key)
        return head_of(key, fields)

    async def owner(self, key: Key) -> Owner | None:
        """Whose the conversation is now; None if there is none, or if it was erased. A conversation
        that sleeps stays asleep.

        Raises:
            Healing, CorruptWindow, RedisUnavailable: it cannot be known now.
        """
        return await self.windows.owner(key)

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
        """The context document in a format of ``threadfold.service.documents``, as JSON. One that
        is older than ``stale_after`` says so (``"stale"``, seconds), and so does one whose
        partition is halted (``"halted_since"``, a time).

        Raises:
            InvalidRequest: there is no such format.
            DoesNotFit: the messages that must stay are larger than the ceiling or ``max_tokens``.
            ConversationParked: ``after`` waits in a parked conversation.
            Others: as :meth:`window` says.
        """
        key = make_key(tenant, conversation)
        check_format(fmt)
        self._refuse(key)
        if after is not None:
            await self.wait_for(self._own_position(key, after), timeout, whose=key)
        document = await self._context(key, fmt, max_tokens)
        if after is not None and PARKED in document:
            await self.windows.check_includes(key, parse_position(after))
        partition = partition_of(key, self.log.partitions)
        document = self._lag.stamped(document, partition, self.windows.served_of(key))
        return name_halt(document, self.control.state, partition)

    async def _context(self, key: Key, fmt: str, max_tokens: int | None) -> bytes:
        # A large window is in memory only while its reader has a place.
        async with self.turns_to_read.together(key.tenant):
            if fmt == "openai":
                joined = await self.windows.context(key, max_tokens)
                if joined is not None:
                    return joined
            window = await self.window(*key)
            render, made = await document_beside(window, fmt, max_tokens, self.turns_to_render)
        if steps := render.made:
            share = round(steps[0].tokens_before / window.limits.ceiling, 6)
            compaction_span(key, share, steps, where="render")
        return made

    async def history(
        self,
        tenant: str,
        conversation: str,
        *,
        before: str | None = None,
        limit: int = 50,
        types: Collection[str] | None = None,
        after: str | None = None,
        wait: bool = False,
    ) -> dict[str, Any]:
        """A page of the conversation's events, newest first, as ``{"events": […], "next_before":
        cursor | None}`` (``threadfold.service.pages``).

        Args:
            types: short names of events; None: all.
            after: a position that the page must be able to show; ``wait``: all that is in the log.

        Raises:
            InvalidRequest: ``limit`` is not 1 to 500, or there is no such type.
            InvalidPosition: ``before`` is not a cursor of this conversation.
            KafkaUnavailable: the log cannot be read now.
            Others: as :meth:`window` says.
        """
        if not 1 <= limit <= MAX_PAGE:
            raise InvalidRequest(f"limit is {limit}: it must be 1 to {MAX_PAGE}")
        wanted = known_types(types)
        key = make_key(tenant, conversation)
        self._refuse(key)
        partition = partition_of(key, self.log.partitions)
        if wait and (end := (await self.log.last_records())[partition]):
            await self.wait_for(Position(partition, end - 1), whose=key)
        if after is not None:
            await self.wait_for(self._own_position(key, after), whose=key)
        async with self._turns_to_page.of(tenant) as turn:
            # A window may be large: only those are in memory whose turn it is.
            window = await self.window(tenant, conversation)
            return await page(self.log, window, before, limit, wanted, turn)

    async def event_at(
        self,
        tenant: str,
        conversation: str,
        position: str,
        *,
        offset: int | None = None,
        limit: int | None = None,
    ) -> dict[str, Any]:
        """One event, as soon as it is in the log, with the whole content of a spilled result. With
        ``offset`` or ``limit`` (characters) ``content`` is that page of the text, and ``page`` says
        which (:func:`threadfold.service.whole_event.unfold`).

        Raises:
            InvalidPosition: no event of this conversation is at that position.
            InvalidRequest: offset or limit is out of range, or the event has no text content.
            SpillLost: the log lacks a part of a spilled result.
            KafkaUnavailable: the log cannot be read now.
            Erased, Healing, RedisUnavailable: as :meth:`window` says.
        """
        key = make_key(tenant, conversation)
        check_page(offset, limit)
        self._refuse(key)
        at = self._own_position(key, position)
        # An erased one is refused; one not folded yet can be read; one that sleeps stays asleep.
        fields = await self.windows.fields(key, [HEAD, STUB])
        if HEAD in fields:
            head_of(key, fields)
        async with self._turns_to_page.of(tenant) as turn:
            found = await whole_event(self.log, key, at, offset, limit, turn)
        if found is None:
            raise _not_its_position(key, position)
        return found

    def live_rules(self) -> Rules:
        """The rules of the live generation."""
        if self._rules is None:
            state = self.control.state
            self._rules = state.rules(state.live_generation)
        return self._rules

    def _own_position(self, key: Key, text: str) -> Position:
        position = parse_position(text)
        if position.partition != partition_of(key, self.log.partitions):
            raise _not_its_position(key, text)
        return position

    async def _window_at(self, key: Key, position: str) -> Window:
        return await self.window(key.tenant, key.conversation, after=position)

    def _forget_window(self, conversation: bytes) -> None:
        """Cache nothing of an erased conversation any more."""
        key = parse_key(conversation)
        if key is None:
            return
        self.windows.forget(key)
        if self._reader.revival is not None:
            self._reader.revival.forget(key)

    def _refuse(self, key: Key) -> None:
        """Raise :class:`Erased` for a conversation that was erased, or is being erased, and
        :class:`UnusablePolicy` for one of a tenant whose policy does not hold here.
        """
        self.live_rules().check_usable(key.tenant)
        if self.keys.is_erased(str(key).encode()):
            # A read that ran during the erasure may have cached something.
            self._forget_window(str(key).encode())
            raise Erased(f"{key.shown} was erased")

    def _forget_rules(self, state: State) -> None:
        self._rules = None


def head_of(key: Key, fields: Mapping[bytes, bytes]) -> Head:
    """The head among a window's fields; raises Erased, CorruptWindow."""
    with stored_form(key):
        head = decode_head(fields[HEAD])
    if head.erased:
        raise Erased(f"{key.shown} was erased")
    return head


def unknown(key: Key) -> UnknownConversation:
    """The error for a conversation that is not there, or that the caller may not know of."""
    return UnknownConversation(
        f"conversation {key.conversation} is not known: it has no events, or none is applied yet"
    )


def _not_its_position(key: Key, text: str) -> InvalidPosition:
    return InvalidPosition(f"position {text} is not one of conversation {key.conversation}")
