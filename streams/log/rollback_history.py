"""What a rollback beyond its window needs of the log: the fold as it stood at its target, and the
summaries that stand or fall with it.

The fold begins at the nearest copy of the window before the target
(``projections.storage.window_copies``), and the events from there on are found through the nearest
copy after it; without copies all of the conversation is read, back to its first event. Copies
change what is read, never what comes out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from projections.fold.known_events import NotRead
from projections.fold.outcomes import History, Outcome
from projections.fold.replay import TooOld, summary_chain
from projections.fold.rollback import LaterSummaries
from projections.fold.undone_cuts import undone
from projections.names import Position
from projections.storage.window_copies import NamedCopy, WindowCopy
from projections.window.window import Window
from streams.log.log import Log
from streams.log.parted_fold import (
    Part,
    PartedFold,
    Unusable,
    beginning,
    refuse_lost,
    summary_before,
)


class Copies(Protocol):
    """The copies of a window, where they are kept."""

    async def read(self) -> Sequence[WindowCopy]:
        """The copies, by offset."""

    def keep(self, made: Sequence[NamedCopy]) -> None:
        """Keep copies that were made on the way, with the window's next write."""

    def take_fold(self) -> PartedFold | None:
        """What was kept by :meth:`keep_fold`, if nothing was taken out since, and only once."""

    def keep_fold(self, fold: PartedFold) -> None:
        """Keep what was read and folded for the next rollback."""


class NoCopies:
    """Copies of nothing: all is read, and nothing is kept."""

    async def read(self) -> Sequence[WindowCopy]:
        return ()

    def keep(self, made: Sequence[NamedCopy]) -> None:
        pass

    def take_fold(self) -> PartedFold | None:
        return None

    def keep_fold(self, fold: PartedFold) -> None:
        pass


class _Rollback(NamedTuple):
    """One whose history is wanted; ``give``: to the fold of another one, which goes over it."""

    window: Window
    target: int
    give: Callable[[History], None] | None = None


LONG_TEXTS = 50_000
"""Tokens of the texts that are read back for an event, from which on that is done beside others."""
NO_COPIES = NoCopies()
Fetch = Callable[[Log, Window, Outcome, Copies], Awaitable[History]]
"""How the log is read back for an event that needs it, with the copies of its window."""


def takes_long(window: Window, needs: Outcome) -> bool:
    """Whether reading what the fold answered ``NEEDS_HISTORY`` to may take long."""
    if needs.target is not None:
        return True
    wanted = set(needs.texts)
    return sum(entry.full for entry in window.tail if entry.offset in wanted) > LONG_TEXTS


async def fetch_needed(
    log: Log, window: Window, outcome: Outcome, copies: Copies = NO_COPIES
) -> History:
    """What an event needs of the log that the fold answered ``NEEDS_HISTORY`` to. Nobody may change
    ``window`` meanwhile.

    Raises:
        KafkaUnavailable: and ``LogTruncated``, as :func:`fetch_history`.
    """
    if outcome.target is not None:
        return await fetch_history(log, window, outcome.target, copies)
    kept = copies.take_fold()
    parts = kept or PartedFold(log, window.key, window.partition)
    texts = parts.reads.texts
    texts.trim()
    if outcome.late is not None:
        history = History(await parts.reads.done(partial(outcome.late.go_on, texts)))
    else:
        await _make_whole(log, parts, window, outcome)
        history = History(texts=texts.only_made())
    if kept or takes_long(window, outcome):
        copies.keep_fold(parts)
    return history


async def _make_whole(log: Log, parts: PartedFold, window: Window, outcome: Outcome) -> None:
    """Make the texts that a rollback within the window needs; raises as :func:`fetch_history`."""
    work = partial(undone, window, outcome.texts, outcome.since, parts.reads.texts)
    found = await parts.reads.done(work)
    if lost := [offset for offset in outcome.texts if offset not in found]:
        begin = await beginning(log, window.partition)
        if min(lost) < begin:
            first = Position(window.partition, min(lost))
            gone = (
                f"what a rollback of {window.key.shown} makes whole again, from {first} on, is gone"
            )
            refuse_lost(log, window.partition, begin, gone, "it stays shortened")


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
    copies = [copy for copy in await kept.read() if copy.offset <= window.meta.position]
    parts = kept.take_fold() or PartedFold(log, window.key, window.partition)
    asked = [_Rollback(window, target)]
    while True:
        one = asked[-1]
        lower = next((copy for copy in reversed(copies) if copy.offset <= one.target), None)
        upper = next((copy for copy in copies if copy.offset >= one.target), None)
        try:
            part = await parts.part_of(one.window, one.target, lower, upper, window.meta.count)
            found = await _found(parts, part, one, copies)
        except NotRead as needed:
            await parts.reads.read_needed(needed)
            continue
        except (TooOld, Unusable) as error:
            if isinstance(error, TooOld) and error.window is not None:
                # Rollbacks over rollbacks may be many: they are a list, and not calls in calls.
                asked.append(_Rollback(error.window, error.target, error.give))
            elif lower is None:
                raise
            else:
                copies.remove(lower)
            continue
        kept.keep(part.take_made())
        asked.pop()
        if one.give is None:
            kept.keep_fold(parts)
            return found
        one.give(found)


async def _found(
    parts: PartedFold, part: Part, one: _Rollback, copies: Sequence[WindowCopy]
) -> History:
    """The history, from the part in which the target is; raises as that part's fold does."""
    window, target = one.window, one.target
    restored = await asyncio.to_thread(part.fold.restored, window, target)
    if restored is None:
        return History()
    await _read_chains(parts, window, restored, copies)
    chain = summary_chain(window, parts.reads.texts, target)
    later = LaterSummaries(restored, chain, target)
    await parts.reads.done(partial(later.go_on, parts.reads.texts))
    parts.reads.texts.trim()
    return History(restored, parts.reads.texts)


async def _read_chains(
    parts: PartedFold, window: Window, restored: Window, copies: Sequence[WindowCopy]
) -> None:
    """Read the summaries from the active one back to where the restored window's begin, and those
    back to the same.
    """
    known, mine, its = parts.reads.texts, _active(window), _active(restored)
    # Each copy names a summary on the way: what lies between is read side by side.
    first, last = min(mine, its), max(mine, its)
    starts = {copy.summary for copy in copies if copy.summary is not None}
    wanted = {at for at in {last, *starts} if first < at <= last}
    while wanted:
        await parts.reads.read(wanted)
        befores = {summary_before(known.get(at)) for at in wanted}
        wanted = set(known.unread(at for at in befores if at > first))
    while mine != its:
        last = max(mine, its)
        await parts.reads.read({last})
        before = summary_before(known.get(last))
        mine, its = (before, its) if mine == last else (mine, before)
    if mine >= 0:
        await parts.reads.read({mine})


def _active(window: Window) -> int:
    return -1 if window.meta.summary is None else window.meta.summary.offset
