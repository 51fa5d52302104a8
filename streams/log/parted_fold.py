"""The fold of a long conversation in parts, for its rollbacks: each part begins at a copy of the
window (``projections.storage.window_copies``), and a rollback to before that is answered by the
part of its target.

A part is read and folded once, as far as targets lie in it. Else each rollback over rollbacks would
fold their parts again for each of them, and for each of these those before.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial

from projections.errors import LogTruncated
from projections.events.types import AnyEvent, SummaryEvent
from projections.fold.replay import COPIES_BYTES, ReplayCheckpoints, is_unsure
from projections.names import Key, Position, parse_position
from projections.storage.window_copies import (
    LARGE_BYTES,
    NamedCopy,
    WindowCopy,
    even_copy,
    large_copy,
)
from projections.window.shared_images import SharedImages
from projections.window.window import Window
from streams.log.event_reads import EventReads
from streams.log.history import (
    READ_BYTES,
    ROW_BYTES,
    Piece,
    events_of,
    pieces_backwards,
    read_events,
)
from streams.log.log import Log, Row

logger = logging.getLogger(__name__)

EVERY = 500
"""Events between two copies of a part in memory: earlier rollbacks on its way begin at one."""
PART_BYTES = 4 << 20
"""Bytes of these copies of one part."""
SHORT = 4_000
"""Events up to which a conversation without copies is one part, and folded up to now."""
NEAR = 500
"""Offsets from the end of a part to a copy behind it up to which the part is folded on, where
another one would begin at the copy.
"""
MOST_PARTS = 250
"""Parts that are kept for the next rollback, each with a window: more than there are copies."""
SLICE = 25
SLICE_BYTES = 2 << 20
PAUSE = 0.001
"""A thread that folds for a rollback lets the event loop have its turn after so many events, or
bytes of them, for as long as they took, and so many seconds at least: without, each step of the
loop waits five milliseconds for the interpreter's lock, and longer where others have the processor.
"""


class Unusable(Exception):
    """The log has lost an event of a copy's tail, or the copy cannot be read."""


@dataclass(slots=True)
class Part:
    """The fold of the events after ``begin`` up to the offset ``upto``.

    Up to ``goal`` it is under way: ``piece`` is read, ``offsets`` are not. It has to be folded up
    to ``unsure``, where an event that takes another one out may be a repeat. ``made`` are copies on
    the way, with their offsets; ``since`` are the bytes that came after the last one.
    """

    begin: int
    fold: ReplayCheckpoints
    upto: int
    goal: int
    offsets: list[int] = field(default_factory=list)
    piece: Piece | None = None
    unsure: int = -1
    made: list[tuple[int, NamedCopy]] = field(default_factory=list)
    since: int = 0
    window_bytes: int = 0

    def __post_init__(self) -> None:
        self.weigh()

    @property
    def size(self) -> int:
        """Bytes that it takes alone, about."""
        return self.fold.held + self.window_bytes

    def weigh(self) -> None:
        """Know the bytes of its window, as often as that was folded on."""
        self.window_bytes = sum([len(e.body) + ROW_BYTES for e in self.fold.window.tail])

    @property
    def read_bytes(self) -> int:
        """Bytes that are read of it and not folded, about."""
        return 0 if self.piece is None else self.piece.size

    def put_back(self) -> None:
        """Have what was read of it and is not folded be read again."""
        if self.piece is not None:
            reached = self.fold.reached
            self.offsets = [at for at in self.piece.asked if at > reached] + self.offsets
            self.end_piece()

    def end_piece(self) -> None:
        """What was read is folded, or not needed now."""
        if self.piece is not None:
            self.fold.texts.weigh(self.piece.asked, self.piece.size)
            self.piece = None

    def take_made(self) -> list[NamedCopy]:
        """The copies that were made since the last call, but for those after which something was
        taken out.
        """
        made, self.made = self.made, []
        return [copy for offset, copy in made if offset > self.fold.last_dropped]


class PartedFold:
    """What was read and folded of one conversation for its rollbacks. It holds for as long as
    nothing is taken out of the conversation. One call at a time; after one that failed or was
    cancelled, it is of no use any more.
    """

    def __init__(self, log: Log, key: Key, partition: int) -> None:
        self.reads = EventReads(log, key, partition)
        """The events that were read, and reads them."""
        self._log = log
        self._parts: list[Part] = []
        self._images = SharedImages()

    @property
    def size(self) -> int:
        """Bytes of all that is kept, about."""
        return self.reads.texts.size + self._images.size + sum(part.size for part in self._parts)

    def shrink(self, most: int) -> None:
        """Forget events, and then the parts that were used longest ago, until that is no more than
        ``most``; all, if what they share is more.
        """
        del self._parts[:-MOST_PARTS]
        if self.size > most:
            texts = self.reads.texts
            texts.forget(max(0, most - (self.size - texts.forgettable)))
        while self._parts and self.size > most:
            del self._parts[0]
        if self.size > most:
            self.reads.forget_all()
            self._images = SharedImages()

    async def part_of(
        self,
        window: Window,
        target: int,
        lower: WindowCopy | None,
        upper: WindowCopy | None,
        count: int,
    ) -> Part:
        """The part in which the target of a rollback of ``window`` lies, folded up to there.

        Args:
            lower, upper: the copies to use before and after the target, where there are some.
            count: the number of events that says which copies are made on the way.

        Raises:
            TooOld: a rollback in between goes back to before the part. Give what that needs, and
                call this again: it goes on from there.
            Unusable: the copy before the target is.
            LogTruncated: the log has lost events that this needs, and that is not accepted.
        """
        if lower is None and upper is None and count > SHORT:
            return await self._whole(window, target, count)
        begin = -1 if lower is None else lower.offset
        part = next((one for one in self._parts if one.begin < target <= one.upto), None)
        if part is None:
            part = next((one for one in self._parts if one.begin == begin), None)
        if part is None:
            # The copies after rollbacks may be as many as these.
            near = (one for one in self._parts if one.begin <= begin <= one.upto + NEAR)
            part = max(near, key=lambda one: one.begin, default=None)
        if part is None:
            part = await self._begun(window, target, lower, PART_BYTES)
        else:
            self._parts.remove(part)
        self._parts.append(part)
        goal = target
        if begin < 0:
            # What was taken out after the target has to be known. Nothing was after a copy.
            goal = window.meta.position if upper is None else upper.offset
        if part.upto < goal:
            if part.goal < goal:
                seen = window if upper is None else _bare(upper, window)
                part.offsets = await self._offsets(seen, target, goal, part.upto)
                part.goal = goal
            await self._go_on(window, target, part, count)
        return part

    async def _whole(self, window: Window, target: int, count: int) -> Part:
        """All of a long conversation of which there is no copy, up to the target: the next rollback
        has the copies that this makes.
        """
        goal = target
        while True:
            part = await self._begun(window, target, None, COPIES_BYTES)
            part.goal = part.unsure = goal
            part.offsets = await self._offsets(window, target, goal, -1, behind=True)
            await self._go_on(window, target, part, count)
            if part.unsure == goal:
                return part
            goal = part.unsure

    async def _begun(
        self, window: Window, target: int, lower: WindowCopy | None, copies_bytes: int
    ) -> Part:
        key, partition, rules, texts = window.key, window.partition, window.rules, self.reads.texts
        base, begin = None, -1
        if lower is not None:
            begin = lower.offset
            try:
                refilled = await asyncio.to_thread(lower.refilled, key, partition, rules)
                await asyncio.to_thread(refilled.put, texts.get)
                async for found in self.reads.pieces(refilled.missing):
                    await asyncio.to_thread(refilled.put, dict(found).get)
                base = refilled.window()
            except (KeyError, ValueError) as error:
                raise Unusable from error
        fold = ReplayCheckpoints(
            key,
            partition,
            rules,
            copies_bytes,
            every=EVERY,
            at={target},
            base=base,
            texts=texts,
            images=self._images,
        )
        return Part(begin, fold, begin, begin)

    async def _offsets(
        self, seen: Window, target: int, goal: int, above: int, *, behind: bool = False
    ) -> list[int]:
        """Where the conversation's events from behind ``above`` to the goal are, which ``seen``
        knows; those ``behind`` it, too, at least where they may take another one out.
        """
        below = None if behind else goal + 1
        offsets: set[int] = set()
        span_of = None if seen.meta.summary is None else seen.meta.summary.offset
        async for at, piece in pieces_backwards(
            self._log, seen, below=below, above=above, wanted=lambda row: _needed(row, goal)
        ):
            offsets.update(piece)
            span_of = span_of if at is None else at
        await _check_beginning(self._log, seen, target, offsets, span_of, above)
        return sorted(offsets)

    async def _go_on(self, window: Window, target: int, part: Part, count: int) -> None:
        """Fold a part on to its goal."""
        while part.piece or part.offsets:
            if part.piece is None:
                for other in self._parts:
                    # They wait for one another, and may be many.
                    if sum(one.read_bytes for one in self._parts) > READ_BYTES:
                        other.put_back()
                part.piece = await self.reads.rows(part.offsets)
                part.offsets = part.offsets[len(part.piece.asked) :]
            rows = part.piece.rows
            await self.reads.done(partial(self._fold_rows, window, target, part, rows, count))
            part.end_piece()
        part.upto = part.goal
        part.weigh()

    def _fold_rows(
        self, window: Window, target: int, part: Part, rows: dict[Position, Row], count: int
    ) -> None:
        """In a thread: fold what was read up to the goal, and know what is behind it."""
        fold = part.fold
        order = deque(
            position
            for position, row in sorted(rows.items())
            if position.offset > fold.reached and _needed(row, part.goal)
        )
        while order:
            begun, size, some = time.perf_counter(), 0, dict[Position, Row]()
            while order and len(some) < SLICE and size < SLICE_BYTES:
                position = order.popleft()
                some[position] = rows[position]
                size += len(rows[position].value or b"")
            before = fold.window.meta.count
            found = events_of(some, window.key, self._log.seals)
            drops = [at for at, event in found if is_unsure(window, target, at, event)]
            part.unsure = max([part.unsure, *drops])
            fold.extend(found, upto=part.goal)
            self._take_copies(part, before, count, size)
            time.sleep(max(PAUSE, time.perf_counter() - begun))

    def _take_copies(self, part: Part, before: int, count: int, size: int) -> None:
        """Take the copies that are due now that ``size`` bytes were folded."""
        window, part.since = part.fold.window, part.since + size
        copies = [even_copy(window, before, count)]
        if part.since >= LARGE_BYTES:
            copies.append(large_copy(window))
        for copy in copies:
            if copy is not None:
                part.since = 0
                part.made.append((window.meta.position, copy))


def _needed(row: Row, goal: int) -> bool:
    """Whether a record is folded, or may be an ``event.dropped`` behind, whose type another
    producer may have written with escapes.
    """
    value = row.value or b""
    return row.offset <= goal or b"event.dropped" in value or b"\\u" in value


def _bare(upper: WindowCopy, window: Window) -> Window:
    """A copy's window without text; the window itself where it cannot be read."""
    try:
        return upper.bare(window.key, window.partition, window.rules)
    except ValueError:
        return window


async def _check_beginning(
    log: Log, seen: Window, target: int, offsets: Collection[int], span_of: int | None, above: int
) -> None:
    """Check that the log still has the conversation's events after offset ``above``, of which
    ``offsets`` and the summary at ``span_of`` are the first ones that were found.

    What is missing is logged where that is accepted.

    Raises:
        LogTruncated: it has lost some, and that is not accepted.
    """
    begin = await beginning(log, seen.partition)
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
        at = summary_before(event)
    if not any(above < first < begin for first in firsts):
        return
    refuse_lost(
        log,
        seen.partition,
        begin,
        f"a rollback of {seen.key.shown} to {Position(seen.partition, target)} needs events before"
        " that, which are gone",
        "the conversation begins with what is left",
    )


async def beginning(log: Log, partition: int) -> int:
    return (await log.beginning_offsets()).get(partition, 0)


def refuse_lost(log: Log, partition: int, begin: int, gone: str, then: str) -> None:
    """Raise :class:`LogTruncated`; where that is accepted, log what is gone and what then is."""
    lost = f"partition {partition} of the log begins at offset {begin}: {gone}"
    if not log.accepts_lost_beginning:
        raise LogTruncated(
            f"{lost}: restore them, or accept it with THREADFOLD_ACCEPT_TRUNCATED_LOG=true, and"
            " retry the event, or drop it"
        )
    logger.warning("%s, which is accepted: %s", lost, then)


def summary_before(event: AnyEvent | None) -> int:
    """Where the summary before one stands, -1 where there is none, or the log lost it."""
    if not isinstance(event, SummaryEvent) or event.data.previous_position is None:
        return -1
    return parse_position(event.data.previous_position).offset
