"""Backwards through a conversation without an index: the tail's positions, then each summary's span, then the summary before it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from projections.events import AnyEvent, SummaryEvent, Undecodable, absolute, decode_event
from projections.fold import History
from projections.lanes import entry_offsets
from projections.names import Key, Position, parse_position
from projections.replay import Logged, history_from
from projections.window import Window
from streams.log import Log, Raw


def event_of(raw: Raw, key: Key) -> AnyEvent | None:
    """The record's event when it belongs to the conversation ``key`` and can be decoded, else None (both are nobody's history)."""
    if raw.key != str(key).encode() or raw.value is None:
        return None
    try:
        event = decode_event(raw.value)
    except Undecodable:
        return None
    return event if event.source == key.source else None


async def offsets_backwards(log: Log, window: Window) -> AsyncIterator[list[int]]:
    """The offsets of all the conversation's events, newest first, in pieces of descending offsets.

    The first piece comes from the window, each later one from the span of one summary further back (one scattered read each).
    """
    for entry in reversed(window.tail):
        known = entry_offsets(entry)
        if known is None:
            known = await _scan_offsets(log, window.key, window.partition, entry.start, entry.offset)
        yield known[::-1]
    at = window.meta.summary.offset if window.meta.summary else None
    while at is not None:
        event = await _summary_at(log, window, at)
        if event is None:
            return
        span = event.data.span
        yield (absolute(span.positions) or await _span_offsets(log, window, event))[::-1]
        at = parse_position(event.data.previous_position).offset if event.data.previous_position else None


async def _summary_at(log: Log, window: Window, offset: int) -> SummaryEvent | None:
    position = Position(window.partition, offset)
    raw = (await log.read([position])).get(position)
    event = event_of(raw, window.key) if raw is not None else None
    return event if isinstance(event, SummaryEvent) else None


async def _span_offsets(log: Log, window: Window, event: SummaryEvent) -> list[int]:
    """A span whose summary (another producer's) carries no positions is scanned for."""
    first, last = parse_position(event.data.span.from_).offset, parse_position(event.data.span.to).offset
    return await _scan_offsets(log, window.key, window.partition, first, last)


async def _scan_offsets(log: Log, key: Key, partition: int, first: int, last: int) -> list[int]:
    return [raw.position.offset async for raw in log.scan(partition, first, last) if event_of(raw, key) is not None]


async def read_events(log: Log, key: Key, partition: int, offsets: Sequence[int]) -> list[Logged]:
    """The conversation's events at these offsets, ascending; what is not one of its events is left out."""
    rows = await log.read(Position(partition, offset) for offset in offsets)
    found: list[Logged] = []
    for position in sorted(rows):
        event = event_of(rows[position], key)
        if event is not None:
            found.append((position.offset, event))
    return found


async def fetch_history(log: Log, window: Window, target: int) -> History:
    """What a rollback of ``window`` to offset ``target`` needs, when the target lies outside the window's tail.

    Reads the whole conversation back to its first event: rollbacks that far are rare, and only the log can answer them exactly.
    """
    offsets: list[int] = []
    async for piece in offsets_backwards(log, window):
        offsets += piece
    events = await read_events(log, window.key, window.partition, sorted(set(offsets)))
    return history_from(window, target, events)
