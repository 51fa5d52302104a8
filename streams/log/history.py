"""Backwards through a conversation without an index: the tail's positions, then each summary's
span, then the summary before it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import NamedTuple

from projections.events.types import AnyEvent, SummaryEvent, absolute
from projections.events.untrusted import Undecodable
from projections.fold.replay import Logged
from projections.names import Key, Position, parse_position
from projections.window.window import Window
from streams.encryption.payload_cipher import PayloadCipher, read_event
from streams.log.log import Log, Row
from streams.runtime.time_slices import TimeSlices

SCAN_PART = 2_000
"""Offsets read at once where only the bounds of a range are known."""
READ_FIRST = 8
READ_PART = 16_000
READ_BYTES = 16 << 20
"""Records read at once: at first, when it is known how large they are, and bytes of them."""
FEW_BYTES = 2 << 20
"""Bytes read at once where requests are served."""
ROW_BYTES = 500
"""What a record or an event takes in memory beside its value, about."""
SLICE = 0.002
"""Seconds for which events are decoded before others have their turn: what reads many of them is
beside others' work, whose every step would wait so long.
"""


def event_of(raw: Row, key: Key, seals: PayloadCipher) -> AnyEvent | None:
    """The record's event when it belongs to the conversation ``key`` and can be decoded, else None
    (both are nobody's history).

    ``seals`` are those of the log it was read from. One whose key is deleted is of a type that
    nobody knows. Raises ``KeyUnusable``.
    """
    if raw.key is None or raw.key != str(key).encode() or raw.value is None:
        return None
    try:
        event = read_event(seals, raw.key, raw.value)
    except Undecodable:
        return None
    return event if event.source == key.source else None


async def offsets_backwards(
    log: Log, window: Window, *, above: int = -1
) -> AsyncIterator[list[int]]:
    """The offsets of the conversation's events after ``above``, newest first, in descending pieces
    (:func:`pieces_backwards`).
    """
    async for _, piece in pieces_backwards(log, window, above=above):
        yield piece


async def offsets_of(
    log: Log, window: Window, *, below: int | None = None, most: int | None = None
) -> list[int] | None:
    """The offsets of the conversation's events (those before ``below``), ascending; None if there
    are more than ``most``.
    """
    offsets: set[int] = set()
    async for _, piece in pieces_backwards(log, window, below=below):
        offsets.update(piece)
        if most is not None and len(offsets) > most:
            return None
    return sorted(offsets)


async def pieces_backwards(
    log: Log,
    window: Window,
    *,
    below: int | None = None,
    span_of: int | None = None,
    above: int = -1,
    wanted: Callable[[Row], bool] | None = None,
) -> AsyncIterator[tuple[int | None, list[int]]]:
    """The same, each piece with the offset of the summary event whose span it is (None: it is of
    the window's tail).

    The first pieces come from the window, each later one from the span of one summary further back
    (one scattered read each).

    Args:
        below: only offsets less than this one.
        above: only offsets greater than this one.
        wanted: which of the conversation's records matter where only the bounds of a range are
            known, and all in them is read to find them; None: its events.
        span_of: begin with the span of the summary event at this offset: going on deep in a history
            costs no more than at its top.
    """
    at = span_of
    if at is None:
        async for piece in _tail_backwards(log, window, below, above, wanted):
            yield None, piece
        at = window.meta.summary.offset if window.meta.summary else None
    event = None if at is None or at <= above else await _summary_at(log, window, at)
    while at is not None and event is not None and at > above:
        before = _before(event)
        previous = None if before is None else await _summary_at(log, window, before)
        piece = await _since_the_one_before(log, window, event, previous)
        if below is not None or above >= 0:
            piece = [
                offset for offset in piece if above < offset and (below is None or offset < below)
            ]
        if piece:
            yield at, piece
        at, event = before, previous


def _before(event: SummaryEvent) -> int | None:
    """Where the summary before one stands."""
    previous = event.data.previous_position
    return parse_position(previous).offset if previous else None


async def _since_the_one_before(
    log: Log, window: Window, event: SummaryEvent, previous: SummaryEvent | None
) -> list[int]:
    """The offsets from the end of the span before up to the end of this one, newest first.

    A summary may cover what earlier ones went around, and go around some itself: each event is
    named where it stands.
    """
    offsets = absolute(event.data.span.positions) or await _span_offsets(log, window, event)
    covered = -1 if previous is None else parse_position(previous.data.span.to).offset
    return sorted(
        {offset for offset in [*offsets, *absolute(event.data.span.kept)] if offset > covered},
        reverse=True,
    )


async def _tail_backwards(
    log: Log,
    window: Window,
    below: int | None,
    above: int,
    wanted: Callable[[Row], bool] | None,
) -> AsyncIterator[list[int]]:
    for entry in reversed(window.tail):
        if entry.offset <= max(window.covered_to, above):
            continue
        if below is not None and entry.start >= below:
            continue
        known = entry.offsets()
        if known is not None:
            yield [
                offset
                for offset in reversed(known)
                if above < offset and (below is None or offset < below)
            ]
            continue
        last = entry.offset if below is None else min(entry.offset, below - 1)
        begin = max(entry.start, above + 1)
        while last >= begin:
            # A long range is scanned in parts, so that one page of a history does not read all of
            # it.
            first = max(begin, last - SCAN_PART + 1)
            offsets = await _scan_offsets(log, window.key, window.partition, first, last, wanted)
            yield offsets[::-1]
            last = first - 1


async def summaries_backwards(log: Log, window: Window) -> AsyncIterator[SummaryEvent]:
    """The summaries in force, newest first, as far as the log has them."""
    at = window.meta.summary.offset if window.meta.summary else None
    while at is not None and (event := await _summary_at(log, window, at)):
        yield event
        at = _before(event)


async def _summary_at(log: Log, window: Window, offset: int) -> SummaryEvent | None:
    return await summary_at(log, window.key, Position(window.partition, offset))


async def summary_at(log: Log, key: Key, position: Position) -> SummaryEvent | None:
    """The conversation's summary at a position; None where the log has none there."""
    raw = (await log.read([position])).get(position)
    event = event_of(raw, key, log.seals) if raw is not None else None
    return event if isinstance(event, SummaryEvent) else None


async def _span_offsets(log: Log, window: Window, event: SummaryEvent) -> list[int]:
    """A span whose summary (another producer's) carries no positions is scanned for."""
    first, last = (
        parse_position(event.data.span.from_).offset,
        parse_position(event.data.span.to).offset,
    )
    return await _scan_offsets(log, window.key, window.partition, first, last)


async def _scan_offsets(
    log: Log,
    key: Key,
    partition: int,
    first: int,
    last: int,
    wanted: Callable[[Row], bool] | None = None,
) -> list[int]:
    name = str(key).encode()
    return [
        raw.offset
        async for raw in log.scan(partition, first, last)
        if raw.key == name
        and (event_of(raw, key, log.seals) is not None if wanted is None else wanted(raw))
    ]


class Piece(NamedTuple):
    """What a log has at some offsets, and how many bytes that takes in memory, about."""

    asked: Sequence[int]
    rows: dict[Position, Row]
    size: int


class Pieces:
    """Reads many records a piece at a time, so that each is not too many bytes. Where records are
    large, the next read does not try too many again.
    """

    def __init__(
        self, log: Log, partition: int, most: int = READ_PART, most_bytes: int | None = None
    ) -> None:
        """Args: ``most``: records of one piece; ``most_bytes`` of it, about (``READ_BYTES``)."""
        self._log, self._partition, self._most = log, partition, most
        self._bytes = READ_BYTES if most_bytes is None else most_bytes
        self._at_once = READ_FIRST

    async def read(self, offsets: Sequence[int]) -> Piece:
        """The records at the first of these offsets; at least one is read."""
        asked = offsets[: self._at_once]
        places = [Position(self._partition, at) for at in asked]
        rows, read = await self._log.read_within(places, self._bytes)
        size = sum(len(row.value or b"") + ROW_BYTES for row in rows.values())
        room = self._bytes * 3 // 4 * read // max(1, size)
        self._at_once = max(1, min(self._most, room if read == len(asked) else read))
        return Piece(asked[:read], dict(rows), size)

    async def all(self, offsets: Sequence[int]) -> AsyncIterator[Piece]:
        """The records at these offsets, in pieces; one is read when the one before was used."""
        while offsets:
            piece = await self.read(offsets)
            offsets = offsets[len(piece.asked) :]
            yield piece

    async def events(
        self, key: Key, offsets: Sequence[int], shown: Callable[[AnyEvent], AnyEvent] | None = None
    ) -> AsyncIterator[tuple[Piece, list[Logged]]]:
        """The conversation's events at these offsets, in the same order, each piece of them with
        its records, which are gone. What is not one of its events is left out. Others have their
        turns while they are decoded: a few large ones take seconds.

        Args:
            shown: what is kept of an event.
        """
        with TimeSlices(SLICE).begin() as part:
            while offsets:
                part.give_up()
                piece = await self.read(offsets)
                offsets, found = offsets[len(piece.asked) :], list[Logged]()
                for position in sorted(piece.rows):
                    if part.over:
                        await part.rest()
                    event = event_of(piece.rows.pop(position), key, self._log.seals)
                    if event is not None:
                        found.append((position.offset, shown(event) if shown else event))
                yield piece, found


async def read_events(log: Log, key: Key, partition: int, offsets: Sequence[int]) -> list[Logged]:
    """The conversation's events at these offsets, ascending (:meth:`Pieces.events`)."""
    pieces = Pieces(log, partition).events(key, sorted(set(offsets)))
    return [one async for _, found in pieces for one in found]


def events_of(rows: Mapping[Position, Row], key: Key, seals: PayloadCipher) -> list[Logged]:
    """The conversation's events among these records, ascending."""
    found: list[Logged] = []
    for position in sorted(rows):
        event = event_of(rows[position], key, seals)
        if event is not None:
            found.append((position.offset, event))
    return found
