"""Histories that are kept between one rollback of a conversation and the next: each then reads only what came since.

A rollback beyond the window needs all of the conversation's events before it. Whoever folds a log from its beginning meets every rollback
there ever was, and would read the longest conversations again for each.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from projections.names import Key, Position
from projections.outcomes import History, Outcome
from projections.replay import Logged, history_from
from projections.window import Window
from streams.history import event_of, fetch_needed, offsets_backwards
from streams.log import Log

KEPT_BYTES = 64 << 20
"""Bytes of events kept at most, of all conversations together; one that is larger by itself is read again each time."""
EVENT_BYTES = 500
"""What an event takes in memory beside its record's value, about."""


@dataclass(slots=True)
class _Known:
    """A conversation's events from its first up to the offset ``upto``."""

    events: list[Logged] = field(default_factory=list)
    upto: int = -1
    size: int = 0


class Histories:
    """What :func:`streams.history.fetch_needed` answers, with a memory. For one event loop."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._known: OrderedDict[Key, _Known] = OrderedDict()
        self._size = 0
        self._most = kept_bytes

    async def fetch(self, log: Log, window: Window, outcome: Outcome) -> History:
        """What an event needs of the log that the fold answered ``NEEDS_HISTORY`` to; raises ``KafkaUnavailable``."""
        if outcome.target is None:
            return await fetch_needed(log, window, outcome)
        known = self._known.pop(window.key, None) or _Known()
        self._size -= known.size
        if known.upto > window.meta.position:
            known = _Known()  # the fold went back to its checkpoint: what came later is not before this event
        await _read_on(log, window, known)
        self._keep(window.key, known)
        return history_from(window, outcome.target, known.events)

    def _keep(self, key: Key, known: _Known) -> None:
        if known.size > self._most:
            return
        self._known[key] = known
        self._size += known.size
        while self._size > self._most:
            self._size -= self._known.popitem(last=False)[1].size


async def _read_on(log: Log, window: Window, known: _Known) -> None:
    """Add the events after ``known.upto`` and before the one at hand."""
    wanted: set[int] = set()
    async for piece in offsets_backwards(log, window):
        wanted.update(offset for offset in piece if offset > known.upto)
        if piece and piece[-1] <= known.upto:
            break
    rows = await log.read(Position(window.partition, offset) for offset in wanted)
    for position in sorted(rows):
        event = event_of(rows[position], window.key, log.seals)
        if event is not None:
            known.events.append((position.offset, event))
            known.size += len(rows[position].value or b"") + EVENT_BYTES
    known.upto = window.meta.position
