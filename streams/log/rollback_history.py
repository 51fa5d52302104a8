"""What a rollback beyond its window needs of the log: the fold as it stood at its target, and the
summaries that stand or fall with it.

The fold begins at the nearest copy of the window before the target
(``projections.storage.window_copies``), and the events from there on are found through the nearest
copy after it; without copies all of the conversation is read, back to its first event. Copies
change what is read, never what comes out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol

from projections.errors import LogTruncated
from projections.events.types import AnyEvent, SummaryEvent
from projections.fold.outcomes import History, Outcome
from projections.fold.replay import ReplayCheckpoints, TooOld, is_unsure, summary_chain
from projections.names import Position, parse_position
from projections.storage.window_copies import NamedCopy, WindowCopy, even_copy
from projections.window.window import Window
from streams.encryption.payload_cipher import PayloadCipher
from streams.log.history import events_of, pieces_backwards, read_events
from streams.log.log import Log, Row

logger = logging.getLogger(__name__)

EVERY = 500
"""Events between two copies of a fold that is made for a rollback: earlier rollbacks on its way
begin at one.
"""
READ_PART = 16_000
"""Events read at once for a rollback."""
SLICE = 25
PAUSE = 0.001
"""A thread that folds for a rollback lets the event loop have its turn after so many events, for as
long as they took, and so many seconds at least: without, each step of the loop waits five
milliseconds for the interpreter's lock, and longer where others have the processor.
"""


class Copies(Protocol):
    """The copies of a window, where they are kept."""

    async def read(self) -> Sequence[WindowCopy]:
        """The copies, by offset."""

    def keep(self, made: Sequence[NamedCopy]) -> None:
        """Keep copies that were made on the way, with the window's next write."""


class NoCopies:
    """Copies of nothing: all is read, and nothing is kept."""

    async def read(self) -> Sequence[WindowCopy]:
        return ()

    def keep(self, made: Sequence[NamedCopy]) -> None:
        pass


NO_COPIES = NoCopies()
Fetch = Callable[[Log, Window, Outcome, Copies], Awaitable[History]]
"""How the log is read back for an event that needs it, with the copies of its window."""


async def fetch_needed(
    log: Log, window: Window, outcome: Outcome, copies: Copies = NO_COPIES
) -> History:
    """What an event needs of the log that the fold answered ``NEEDS_HISTORY`` to.

    Raises:
        KafkaUnavailable: and ``LogTruncated``, as :func:`fetch_history`.
    """
    if outcome.target is not None:
        return await fetch_history(log, window, outcome.target, copies)
    texts = dict(await read_events(log, window.key, window.partition, outcome.texts))
    lost = [offset for offset in outcome.texts if offset not in texts]
    if lost and outcome.needs_all_texts:
        begin = await _beginning(log, window.partition)
        if min(lost) < begin:
            first = Position(window.partition, min(lost))
            gone = (
                f"what a rollback of {window.key.shown} makes whole again, from {first} on, is gone"
            )
            _refuse_lost(log, window.partition, begin, gone, "it stays shortened")
    return History(texts=texts)


async def fetch_history(log: Log, window: Window, target: int, kept: Copies = NO_COPIES) -> History:
    """What a rollback of ``window`` to offset ``target`` needs, when the target lies outside the
    window's tail.

    It is folded part by part and in a thread: a long one takes longer than the worker's group waits
    for a sign of life. Nobody may change ``window`` meanwhile.

    Args:
        kept: the copies of this window. Without one before the target the whole conversation is
            read; those that are made on the way are kept for the next rollback.

    Raises:
        LogTruncated: the log has lost events that this needs, and that is not accepted.
    """
    copies = [copy for copy in await kept.read() if copy.offset < window.meta.position]
    upper = next((copy for copy in copies if copy.offset >= target), None)
    below = [copy for copy in copies if copy.offset <= target]
    upto = target
    while True:
        lower = below[-1] if below else None
        try:
            fold, made = await _fold_to(log, window, target, lower, upper, upto, kept)
            history = await asyncio.to_thread(fold.history, window, target)
            break
        except (_Unusable, TooOld):
            below = below[:-1]
        except _Unsure as drop:
            upto = drop.offset
    kept.keep(made)
    if history.window is None:
        return history
    texts = dict(history.texts)
    await _read_chains(log, window, history.window, copies, texts)
    return History(history.window, summary_chain(window, texts, target), texts)


class _Unsure(Exception):
    """The events up to an old ``event.dropped`` have to be folded: else it is not known whether it
    is a repeat, which takes nothing out.
    """

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


class _Unusable(Exception):
    """The log has lost an event of a copy's tail, or the copy cannot be read."""


async def _fold_to(
    log: Log,
    window: Window,
    target: int,
    lower: WindowCopy | None,
    upper: WindowCopy | None,
    upto: int,
    kept: Copies,
) -> tuple[ReplayCheckpoints, list[NamedCopy]]:
    """The fold of the conversation's events up to the target, and copies of it on the way; raises
    :class:`_Unsure` where they have to be folded beyond ``upto``, which is the target or later.

    A rollback in between that goes further back has a history of its own: its fold begins at
    another of the copies that are ``kept``.
    """
    key, partition = window.key, window.partition
    texts = [] if lower is None else [*lower.texts(), lower.offset]
    rows = await log.read(Position(partition, offset) for offset in texts)
    fold, seen = await asyncio.to_thread(_begun, window, target, lower, upper, rows, log.seals)
    # Where there is a copy before the target, nothing was taken out after it.
    below, above = (None, -1) if lower is None else (target + 1, lower.offset)
    offsets: set[int] = set()
    made: list[tuple[int, NamedCopy]] = []
    unsure = upto

    def needed(row: Row) -> bool:
        return row.offset <= upto or _may_drop(row)

    span_of = None if seen.meta.summary is None else seen.meta.summary.offset
    async for at, piece in pieces_backwards(log, seen, below=below, above=above, wanted=needed):
        offsets.update(piece)
        span_of = span_of if at is None else at
    await _check_beginning(log, seen, target, offsets, span_of, above)

    def go_on(rows: Mapping[Position, Row]) -> None:
        nonlocal unsure
        order = sorted(
            position
            for position, row in rows.items()
            if needed(row) and position.offset > fold.reached
        )
        for i in range(0, len(order), SLICE):
            begun = time.perf_counter()
            some = {position: rows[position] for position in order[i : i + SLICE]}
            before = fold.window.meta.count
            found = list(events_of(some, key, log.seals))
            drops = [at for at, event in found if is_unsure(window, target, at, event)]
            unsure = max([unsure, *drops])
            fold.extend(found, upto=upto)
            copy = even_copy(fold.window, before, window.meta.count)
            if copy is not None:
                made.append((fold.window.meta.position, copy))
            time.sleep(max(PAUSE, time.perf_counter() - begun))

    order = sorted(offsets)
    for i in range(0, len(order), READ_PART):
        part = order[i : i + READ_PART]
        rows = await log.read(Position(partition, offset) for offset in part)
        while True:
            try:
                await asyncio.to_thread(go_on, rows)
                break
            except TooOld as older:
                if older.offset is None:
                    raise
                fold.give(older.offset, await fetch_history(log, fold.window, older.target, kept))
    if unsure > upto:
        raise _Unsure(unsure)
    # What was taken out later is in the earlier ones yet.
    return fold, [copy for offset, copy in made if fold.last_dropped < offset <= target]


async def _check_beginning(
    log: Log, seen: Window, target: int, offsets: Collection[int], span_of: int | None, above: int
) -> None:
    """Check that the log still has the conversation's events after offset ``above``, of which
    ``offsets`` and the summary at ``span_of`` are the first ones that were found.

    What is missing is logged where that is accepted.

    Raises:
        LogTruncated: it has lost some, and that is not accepted.
    """
    begin = await _beginning(log, seen.partition)
    if begin <= above + 1:
        return
    firsts = [*offsets, *(e.start for e in seen.tail if e.offset > seen.covered_to)]
    at: int | None = span_of
    while at is not None and at > above:
        firsts.append(at)
        found = await read_events(log, seen.key, seen.partition, [at])
        event = found[0][1] if found else None
        if isinstance(event, SummaryEvent):
            firsts.append(parse_position(event.data.span.from_).offset)
        at = _before(event)
    if not any(above < first < begin for first in firsts):
        return
    _refuse_lost(
        log,
        seen.partition,
        begin,
        f"a rollback of {seen.key.shown} to {Position(seen.partition, target)} needs events before"
        " that, which are gone",
        "the conversation begins with what is left",
    )


async def _beginning(log: Log, partition: int) -> int:
    return (await log.beginning_offsets()).get(partition, 0)


def _refuse_lost(log: Log, partition: int, begin: int, gone: str, then: str) -> None:
    """Raise :class:`LogTruncated`; where that is accepted, log what is gone and what then is."""
    lost = f"partition {partition} of the log begins at offset {begin}: {gone}"
    if not log.accepts_lost_beginning:
        raise LogTruncated(
            f"{lost}: restore them, or accept it with THREADFOLD_ACCEPT_TRUNCATED_LOG=true, and"
            " retry the event, or drop it"
        )
    logger.warning("%s, which is accepted: %s", lost, then)


def _begun(
    window: Window,
    target: int,
    lower: WindowCopy | None,
    upper: WindowCopy | None,
    rows: Mapping[Position, Row],
    seals: PayloadCipher,
) -> tuple[ReplayCheckpoints, Window]:
    """The fold as it begins, at the copy before the target; and the window by which the events
    from there on are found. ``rows`` are the text of that copy.
    """
    key, partition, rules = window.key, window.partition, window.rules
    texts = dict(events_of(rows, key, seals))
    try:
        base = None if lower is None else lower.window(key, partition, rules, texts)
    except (KeyError, ValueError) as error:
        raise _Unusable from error
    fold = ReplayCheckpoints(
        key, partition, rules, every=EVERY, at={target}, base=base, texts=texts
    )
    try:
        return fold, window if upper is None else upper.bare(key, partition, rules)
    except ValueError:
        return fold, window


async def _read_chains(
    log: Log,
    window: Window,
    restored: Window,
    copies: Sequence[WindowCopy],
    known: dict[int, AnyEvent],
) -> None:
    """Read the summaries from the active one back to where the restored window's begin, and those
    back to the same.
    """
    mine, its = _active(window), _active(restored)
    # Each copy names a summary on the way: what lies between is read side by side.
    first, last = min(mine, its), max(mine, its)
    starts = {copy.summary for copy in copies if copy.summary is not None}
    wanted = {at for at in {last, *starts} if first < at <= last}
    while wanted:
        await _read(log, window, wanted, known)
        befores = {_before(known.get(at)) for at in wanted}
        wanted = {at for at in befores if at > first and at not in known}
    while mine != its:
        last = max(mine, its)
        await _read(log, window, {last}, known)
        before = _before(known.get(last))
        mine, its = (before, its) if mine == last else (mine, before)
    if mine >= 0:
        await _read(log, window, {mine}, known)


def _active(window: Window) -> int:
    return -1 if window.meta.summary is None else window.meta.summary.offset


def _before(event: AnyEvent | None) -> int:
    """Where the summary before one stands, -1 where there is none, or the log lost it."""
    if not isinstance(event, SummaryEvent) or event.data.previous_position is None:
        return -1
    return parse_position(event.data.previous_position).offset


async def _read(log: Log, window: Window, offsets: set[int], known: dict[int, AnyEvent]) -> None:
    missing = sorted(offsets - known.keys())
    if missing:
        known.update(await read_events(log, window.key, window.partition, missing))


def _may_drop(row: Row) -> bool:
    """Whether a record may be an ``event.dropped``, whose type another producer may have written
    with escapes.
    """
    value = row.value or b""
    return b"event.dropped" in value or b"\\u" in value
