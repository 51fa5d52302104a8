"""The events of a span that the long-term memory learns from, as they stand in the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from projections.events.types import (
    AnyEvent,
    MessageEvent,
    RollbackEvent,
    SessionClosedEvent,
    SummaryEvent,
    absolute,
)
from projections.fold.replay import Logged
from projections.memory.branches import Branches, target_of
from projections.names import Key, Position, parse_position
from projections.window.entry import Kind
from projections.window.window import Window
from streams.log.history import summaries_backwards, summary_at
from streams.log.log import Log
from streams.log.said import chars_of, said_at, said_between

MAX_EVENTS = 20_000
MAX_CHARS = 500_000
"""Events of one span, and characters of their texts; of a longer one, the latest."""
CONTEXT = 32
"""Events before a summary's span that are read with it, for a call whose failure stands there."""


async def span_of_summary(log: Log, key: Key, at: Position) -> tuple[list[Logged], set[int]]:
    """What the summary at a position covers, together with the last events that the one before
    covers, in the log's order; and the offsets of the former. They need not be the last ones: the
    one before may have gone around some of them.
    """
    event = await summary_at(log, key, at)
    if event is None:
        return [], set()
    before: list[Logged] = []
    if event.data.previous_position is not None:
        previous = await summary_at(log, key, parse_position(event.data.previous_position))
        if previous is not None:
            offsets = (await standing_offsets(log, key, at.partition, previous))[-CONTEXT:]
            before = await _latest(log, key, at.partition, offsets)
    offsets = (await standing_offsets(log, key, at.partition, event))[-MAX_EVENTS:]
    span = await _latest(log, key, at.partition, offsets)
    events = sorted([*before, *span], key=lambda one: one[0])
    return events, {offset for offset, _ in span}


async def _latest(log: Log, key: Key, partition: int, offsets: Sequence[int]) -> list[Logged]:
    """The events at these offsets, of more than ``MAX_CHARS`` characters the latest."""
    found, chars = list[Logged](), 0
    async for step in said_at(log, key, partition, offsets[::-1]):
        for one in reversed(step):
            found.append(one)
            chars += chars_of(one[1])
            if chars >= MAX_CHARS:
                return found[::-1]
    return found[::-1]


async def span_of_session(
    log: Log, window: Window, below: int, *, summarised: bool
) -> list[Logged]:
    """What came before the close at ``below`` and after the close before that.

    Args:
        summarised: also what summaries cover, and what one is asked for.
    """
    found = await _session(log, window, below, summarised=summarised)
    due = window.meta.due
    if summarised or due is None:
        return found
    # It is learnt from with that summary.
    return [
        (offset, event)
        for offset, event in found
        if not due.first <= offset <= due.last or offset in due.kept
    ]


async def _session(log: Log, window: Window, below: int, *, summarised: bool) -> list[Logged]:
    key, partition, session = window.key, window.partition, _Session(window.partition)
    known: list[int] = []
    for entry in reversed(window.tail):
        if entry.start >= below or entry.kind in (Kind.NOTE, Kind.ABANDONED):
            continue
        offsets, gone = entry.offsets(), set(absolute(entry.gone or []))
        if offsets is not None:
            known += [one for one in reversed(offsets) if one < below and one not in gone]
            continue
        if await _read(log, key, known, session):
            return session.events()
        known = []
        last = min(entry.offset, below - 1)
        if session.take(await latest_between(log, key, partition, entry.start, last)):
            return session.events()
    over = await _read(log, key, known, session)
    if summarised and not over:
        async for summary in summaries_backwards(log, window):
            offsets = await standing_offsets(log, key, partition, summary)
            earlier = [offset for offset in reversed(offsets) if offset < below]
            if await _read(log, key, earlier, session):
                break
    return session.events()


async def latest_between(log: Log, key: Key, partition: int, first: int, last: int) -> list[Logged]:
    """The events between two offsets, of more than ``MAX_CHARS`` characters the latest."""
    found, chars = deque[Logged](), 0
    async for one in said_between(log, key, partition, first, last):
        found.append(one)
        chars += chars_of(one[1])
        while chars - (oldest := chars_of(found[0][1])) >= MAX_CHARS:
            found.popleft()
            chars -= oldest
    return list(found)


async def _read(log: Log, key: Key, offsets: Sequence[int], session: _Session) -> bool:
    """Take the events at these offsets, newest first; returns whether the session is whole."""
    async for step in said_at(log, key, session.partition, offsets):
        if session.take(step):
            return True
    return False


async def standing(log: Log, window: Window, offsets: Iterable[int]) -> set[int]:
    """Those of earlier events, by their offsets, that no rollback abandoned: by the window's tail,
    or else by the summaries in force. What the policy dropped without a summary counts as standing.
    """
    left, found = set(offsets), set[int]()
    for offset in list(left):
        known = _in_tail(window, offset)
        if known is not None:
            left.discard(offset)
            found |= {offset} if known else set()
    active = window.meta.summary
    found |= {offset for offset in left if active is None or offset > active.to}
    left -= found
    if left:
        async for summary in summaries_backwards(log, window):
            stand = await standing_offsets(log, window.key, window.partition, summary)
            found |= left.intersection(stand)
            left -= {*found, *absolute(summary.data.span.positions)}
            if not left:
                break
    return found


def _in_tail(window: Window, offset: int) -> bool | None:
    """Whether the event at an offset stands by the window's tail; None if that does not hold it."""
    known = None
    for entry in window.tail:
        if not entry.start <= offset <= entry.offset:
            continue
        if entry.kind == Kind.ABANDONED or offset in absolute(entry.gone or []):
            return False
        if any(first <= offset <= last for first, last in entry.voids or ()):
            return False
        known = True
    return known


async def standing_offsets(log: Log, key: Key, partition: int, event: SummaryEvent) -> list[int]:
    """The offsets of a summary's span that count. Where its writer does not say which, the span's
    rollbacks do.
    """
    span = event.data.span
    offsets = absolute(span.positions)
    if span.stands is not None:
        return [offset for offset, stood in zip(offsets, span.stands, strict=False) if stood == "1"]
    names: dict[str, int] = {}
    rollbacks: list[tuple[int, int]] = []
    kept = absolute(span.kept) if span.kept else []
    async for step in said_at(log, key, partition, sorted({*offsets, *kept})):
        for offset, one in step:
            if isinstance(one, RollbackEvent):
                target = target_of(one.data.to, names)
                # An id that the span does not have stands before it.
                rollbacks.append((offset, -1 if target is None else target))
            names.setdefault(one.id, offset)
    branches = Branches(rollbacks)
    return [offset for offset in offsets if branches.stands(offset)]


class _Session:
    """The events of one session, taken from its end to its begin."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self._found: dict[int, AnyEvent] = {}
        self._chars = 0
        self._after: str | None = None
        """The message that a close which was met claims to follow: else the close was void."""

    def take(self, rows: Sequence[Logged]) -> bool:
        """Take events that come before those taken; returns whether the session is whole."""
        for offset, event in reversed(rows):
            if isinstance(event, MessageEvent) and self._after is not None:
                if self._after == str(Position(self.partition, offset)):
                    return True
                self._after = None
            elif isinstance(event, SessionClosedEvent):
                if event.data.after is None:
                    return True
                self._after = event.data.after
            self._found[offset] = event
            self._chars += chars_of(event)
            if self._chars >= MAX_CHARS:
                return True
        return len(self._found) >= MAX_EVENTS

    def events(self) -> list[Logged]:
        """What was taken, in the log's order: a summary may have gone around events that a later
        one covers.
        """
        return sorted(self._found.items(), key=lambda one: one[0])[-MAX_EVENTS:]
