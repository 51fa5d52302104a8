"""Histories that are kept between one rollback of a conversation and the next: each then reads, and
folds, only what came since.

A rollback beyond the window needs all of the conversation's events before it, and their fold as it
stood at its target. Whoever folds a log from its beginning meets every rollback there ever was, and
would read and fold the longest conversations again for each.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from projections.fold.outcomes import History, Outcome
from projections.fold.replay import Logged
from projections.fold.replay_checkpoints import COPIES_BYTES, ReplayCheckpoints
from projections.names import Key, Position
from projections.window.window import Window
from streams.log.history import event_of, fetch_needed, offsets_backwards
from streams.log.log import Log

KEPT_BYTES = 64 << 20
"""Bytes of events and windows kept at most, of all conversations together; one that is larger by
itself is read again each time.
"""
EVENT_BYTES = 500
"""What an event takes in memory beside its record's value, about."""


@dataclass(slots=True)
class _Known:
    """A conversation's events from its first up to the offset ``upto``, and what they fold to;
    ``read`` bytes of them.
    """

    fold: ReplayCheckpoints
    upto: int = -1
    read: int = 0

    @property
    def size(self) -> int:
        return self.read + self.fold.size


class RollbackCache:
    """What :func:`streams.log.history.fetch_needed` answers, with a memory. For one event
    loop.
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES, copies_bytes: int = COPIES_BYTES) -> None:
        self._known: OrderedDict[Key, _Known] = OrderedDict()
        self._size = 0
        self._most = kept_bytes
        self._copies = min(copies_bytes, kept_bytes // 4)

    async def fetch(self, log: Log, window: Window, outcome: Outcome) -> History:
        """What an event needs of the log that the fold answered ``NEEDS_HISTORY`` to; raises
        ``KafkaUnavailable``.
        """
        if outcome.target is None:
            return await fetch_needed(log, window, outcome)
        known = self._known.pop(window.key, None)
        self._size -= 0 if known is None else known.size
        if known is None or known.upto > window.meta.position:
            # Where the fold went back to its checkpoint, what came later is not before this event.
            known = _Known(
                ReplayCheckpoints(window.key, window.partition, window.rules, self._copies)
            )
        await _read_on(log, window, known)
        history = known.fold.history(window, outcome.target)
        self._keep(window.key, known)
        return history

    def _keep(self, key: Key, known: _Known) -> None:
        if known.size > self._most:
            return
        self._known[key] = known
        self._size += known.size
        while self._size > self._most:
            self._size -= self._known.popitem(last=False)[1].size


async def _read_on(log: Log, window: Window, known: _Known) -> None:
    """Take in the events after ``known.upto`` and before the one at hand."""
    wanted: set[int] = set()
    async for piece in offsets_backwards(log, window, above=known.upto):
        wanted.update(piece)
    rows = await log.read(Position(window.partition, offset) for offset in wanted)
    more: list[Logged] = []
    for position in sorted(rows):
        event = event_of(rows[position], window.key, log.seals)
        if event is not None:
            more.append((position.offset, event))
            known.read += len(rows[position].value or b"") + EVENT_BYTES
    known.fold.extend(more)
    known.upto = window.meta.position
