"""One step of the fold with all that can go wrong in it: live projection, rebuild, verify and
mending share it, so that they agree.

What stands under a well-formed key and cannot be decoded, or what the fold fails on, quarantines
its conversation: the window stays as before that event, later events wait in the log.
``event.dropped`` that names it makes the fold pass it over and go on with what waits. A record
whose key is malformed or of another partition, that names another source than its key, or that has
no value, is nobody's event: it quarantines nothing.

Kafka or Redis being away and an unusable master key are never an event's doing: they are raised as
they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from projections.errors import (
    KafkaUnavailable,
    KeyUnusable,
    Overloaded,
    RedisUnavailable,
    UnusablePolicy,
)
from projections.events.codec import decode_event
from projections.events.types import AnyEvent, ErasedEvent
from projections.events.untrusted import Undecodable
from projections.fold.apply import Outcome, Status, apply
from projections.fold.quarantine import (
    cause_of,
    dropped_offset,
    is_poison,
    waiting_offsets,
)
from projections.names import Key, Position, parse_key, partition_of
from projections.window.meta import Quarantine
from projections.window.window import Window
from streams.encryption.payload_cipher import PayloadCipher, read_event
from streams.log.clients import KafkaError
from streams.log.log import Log, Row
from streams.log.rollback_history import NO_COPIES, Copies, Fetch, fetch_needed

AWAY = (KafkaUnavailable, RedisUnavailable, KeyUnusable, Overloaded, KafkaError, OSError)
RECORD, POISON, WAITING = "record", "poison", "waiting"
"""What a dead letter is of: a record that is nobody's event, an event that quarantined its
conversation, one that waits behind such a one.
"""


class InvalidRecord(NamedTuple):
    """Why a record is no event, and whether that quarantines the conversation its key names."""

    cause: str
    quarantines: bool = False


class Letter(NamedTuple):
    """What of a conversation became a dead letter."""

    offset: int
    kind: str
    cause: str


@dataclass(slots=True)
class StepResult:
    """What steps of a conversation have to say: outcomes of events that were folded, and dead
    letters; in the order they came about.
    """

    outcomes: list[tuple[AnyEvent, Outcome]] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)


class FoldFailure(Exception):
    """The fold failed on an event in the middle: the window is of no use any more, and is folded
    again up to before ``offset``.
    """

    def __init__(self, offset: int, cause: str) -> None:
        super().__init__(cause)
        self.offset = offset
        self.cause = cause

    @property
    def of_code(self) -> bool:
        """Whether code failed. A policy that cannot be used is its tenant's matter, and says
        nothing of the partition.
        """
        return not isinstance(self.__cause__, UnusablePolicy)


Read: TypeAlias = AnyEvent | InvalidRecord
"""What stands in a record: an event, or why there is none."""
Found = tuple[int, Read]
"""An offset and what stands there."""


def read_row(seals: PayloadCipher | None, row: Row, source: str | None = None) -> Read:
    """The event of a record, or why it is none; ``source`` is what its key says, where that is
    known already; ``seals`` is None where the value is known not to be sealed. Raises
    ``KeyUnusable``.
    """
    if row.key is None:
        return InvalidRecord("the record's key is not tenant/conversation")
    if source is None:
        key = parse_key(row.key)
        if key is None:
            return InvalidRecord("the record's key is not tenant/conversation")
        source = key.source
    if row.value is None:
        return InvalidRecord("the record has no value")
    try:
        event = decode_event(row.value) if seals is None else read_event(seals, row.key, row.value)
    except Undecodable as error:
        return InvalidRecord(f"the value is not an event: {error}", quarantines=True)
    return (
        event
        if event.source == source
        else InvalidRecord(f"source {event.source[:300]!r} is not that of the record's key")
    )


def astray(key: Key, partition: int, partitions: int) -> InvalidRecord | None:
    """Why a record with this key is nobody's in this partition; None: it is at home. Readers,
    rollbacks and erasures look for a conversation in its own partition alone.
    """
    home = partition_of(key, partitions)
    if home == partition:
        return None
    return InvalidRecord(
        f"its key belongs to partition {home}: its producer uses another partitioner"
    )


def why_nobodys(found: AnyEvent | InvalidRecord, row: Row, partition: int, partitions: int) -> str:
    """Why a record that was set aside is nobody's event."""
    key = None if row.key is None else parse_key(row.key)
    why = (None if key is None else astray(key, partition, partitions)) or found
    return why.cause if isinstance(why, InvalidRecord) else ""


def belongs(found: AnyEvent | InvalidRecord) -> bool:
    """Whether what was read is of the conversation its key names: an event, or one that cannot be
    decoded.
    """
    return not isinstance(found, InvalidRecord) or found.quarantines


async def step(
    log: Log,
    window: Window,
    offset: int,
    found: AnyEvent | InvalidRecord,
    result: StepResult,
    fetch: Fetch = fetch_needed,
) -> Window:
    """Take one record of a conversation into its window; returns the window, which is another
    object where it went on after a drop.

    What it has already is passed over. ``found`` is one that :func:`belongs`; ``fetch`` reads the
    log back for it.

    Raises:
        FoldFailure: the fold failed: see :func:`refold`.
        KafkaUnavailable, KeyUnusable: it is unknown now; the window may be spoiled.
    """
    meta = window.meta
    if offset <= meta.position:
        return window
    if meta.quarantine is None and not isinstance(found, InvalidRecord):
        outcome = await _fold(log, window, offset, found, fetch)
        result.outcomes.append((found, outcome))
        return window
    return await step_aside(log, window, offset, found, result)


async def step_aside(
    log: Log, window: Window, offset: int, found: AnyEvent | InvalidRecord, result: StepResult
) -> Window:
    """The part of :func:`step` for a window that is quarantined, or is to be by what cannot be
    decoded.
    """
    quarantine = window.meta.quarantine
    if quarantine is None:
        if window.meta.erased:
            # As whatever comes after an erasure: in a generation that took it early, it may come
            # before it.
            window.advance(offset)
        elif isinstance(found, InvalidRecord):
            _quarantine(window, offset, found.cause, result)
        return window
    if offset <= quarantine.last:
        return window
    if isinstance(found, ErasedEvent):
        # Nothing may hold an erasure up; it makes all windows of whatever came before alike.
        result.outcomes.append((found, apply(window, offset, found)))
        return window
    if (
        not isinstance(found, InvalidRecord)
        and dropped_offset(found, window.partition) == quarantine.offset
    ):
        return await go_on(log, window, result, then=[(offset, found)])
    window.add_waiting(offset)
    result.letters.append(
        Letter(offset, WAITING, f"it waits behind {Position(window.partition, quarantine.offset)}")
    )
    return window


async def go_on(
    log: Log, window: Window, result: StepResult, *, again: bool = False, then: Sequence[Found] = ()
) -> Window:
    """Fold on what waits in a quarantined window, and ``then`` more; it may be quarantined again
    further on.

    Args:
        again: begin with the event at which it was quarantined (a retry), else pass that one over
            (it was dropped).

    Returns:
        Another window; the given one stays as it is. All that waits is in memory meanwhile.
    """
    quarantine = window.meta.quarantine
    if quarantine is None:
        return window
    events = [*await _waiting(log, window, quarantine, again), *then]
    dropped = {
        offset
        for _, event in events
        if not isinstance(event, InvalidRecord)
        and (offset := dropped_offset(event, window.partition)) is not None
    }
    base = window.copy()
    base.release()
    known: dict[int, str] = {}
    while True:
        now, mine = base.copy(), StepResult()
        try:
            for offset, event in events:
                cause = known.get(offset, event.cause if isinstance(event, InvalidRecord) else None)
                if cause is not None and now.meta.quarantine is None:
                    if offset not in dropped:
                        _quarantine(now, offset, cause, mine)
                elif now.meta.quarantine is not None and not isinstance(event, ErasedEvent):
                    # What drops it is among these: it would have been passed over.
                    now.add_waiting(offset)
                elif not isinstance(event, InvalidRecord):
                    mine.outcomes.append((event, await _fold(log, now, offset, event)))
        except FoldFailure as spoiled:
            known[spoiled.offset] = spoiled.cause
            continue
        now.pop_cut()
        result.outcomes += mine.outcomes
        result.letters += mine.letters
        return now


async def refold(log: Log, base: Window, rows: Iterable[Found], known: dict[int, str]) -> Window:
    """A conversation's records folded onto ``base``, which stays as it is; raises
    ``KafkaUnavailable``, ``KeyUnusable``.

    Args:
        known: offsets at which the fold is known to fail, with why; what fails beside is added.
    """
    rows = list(rows)
    while True:
        window, result = base.copy(), StepResult()
        try:
            for offset, found in rows:
                if (
                    offset in known
                    and window.meta.quarantine is None
                    and offset > window.meta.position
                ):
                    window.quarantine(offset, known[offset])
                else:
                    window = await step(log, window, offset, found, result)
        except FoldFailure as spoiled:
            known[spoiled.offset] = spoiled.cause
            continue
        # Whoever folded these before has reported their cuts.
        window.pop_cut()
        return window


async def records_of(log: Log, key: Key, partition: int, first: int, last: int) -> list[Found]:
    """The records of a conversation from offset ``first`` to ``last``, both included."""
    name, source = str(key).encode(), key.source
    rows = [row async for row in log.scan(partition, first, last) if row.key == name]
    return [
        (row.offset, event) for row in rows if belongs(event := read_row(log.seals, row, source))
    ]


async def _fold(
    log: Log, window: Window, offset: int, event: AnyEvent, fetch: Fetch = fetch_needed
) -> Outcome:
    try:
        outcome = apply(window, offset, event)
    except BaseException as error:
        raise spoiled_by(error, offset) from error
    return (
        await with_history(log, window, offset, event, outcome, fetch)
        if outcome.status is Status.NEEDS_HISTORY
        else outcome
    )


async def with_history(
    log: Log,
    window: Window,
    offset: int,
    event: AnyEvent,
    needs: Outcome,
    fetch: Fetch = fetch_needed,
    copies: Copies = NO_COPIES,
) -> Outcome:
    """Fold an event that needs the log; raises :class:`FoldFailure`, and what says that Kafka or a
    key is away.
    """
    try:
        return apply(window, offset, event, await fetch(log, window, needs, copies))
    except (*AWAY, asyncio.CancelledError):
        raise
    except BaseException as error:
        # Reading the log back folds as well: a native library's panic may come from there, too.
        raise spoiled_by(error, offset) from error


def spoiled_by(error: BaseException, offset: int) -> FoldFailure:
    """What to raise for an error of the fold; raises the error itself where it is not the event's
    doing.
    """
    if not is_poison(error):
        raise error
    spoiled = FoldFailure(offset, cause_of(error))
    spoiled.__cause__ = error
    return spoiled


def _quarantine(window: Window, offset: int, cause: str, result: StepResult) -> None:
    window.quarantine(offset, cause)
    result.letters.append(Letter(offset, POISON, cause))


async def _waiting(log: Log, window: Window, quarantine: Quarantine, again: bool) -> list[Found]:
    """What waits in a quarantined window, in order; with ``again`` the event at which it is
    quarantined comes first.
    """
    key, partition = window.key, window.partition
    offsets = ([quarantine.offset] if again else []) + waiting_offsets(quarantine)
    rows = await log.read(Position(partition, offset) for offset in offsets)
    found: list[Found] = []
    for offset in offsets:
        row = rows.get(Position(partition, offset))
        if (
            row is not None
            and row.key == str(key).encode()
            and belongs(event := read_row(log.seals, row, key.source))
        ):
            found.append((offset, event))
    if quarantine.count > len(quarantine.waiting):
        found += await records_of(log, key, partition, offsets[-1] + 1, quarantine.last)
    return found
