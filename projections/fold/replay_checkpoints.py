"""A conversation's fold that can be looked at as it stood after any of its events, for rollbacks
beyond the window, one after the other.

``projections.fold.replay`` answers one of them with one fold from the first event. Where a
conversation is rolled back a thousand times, that is a thousand folds; here each takes the fold
from the nearest copy before its target.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from projections.events import types as events
from projections.events.types import AnyEvent
from projections.fold.apply import Status, apply
from projections.fold.outcomes import History
from projections.fold.replay import Logged, summary_chain
from projections.fold.rollback import take_out
from projections.names import Key
from projections.policy.policy import Rules
from projections.window.window import Window, encode_entry, load_window

EVERY = 50
"""Events between two copies, as long as there is room for them, where nothing else is asked for."""
COPIES_BYTES = 8 << 20
"""Bytes of a conversation's copies; when there are more, every other one goes."""


class _Copy(NamedTuple):
    """A window as it stood after an event, encoded, and whether that event was a repeat."""

    meta: bytes
    tail: list[bytes]
    recents: bytes
    repeat: bool

    @property
    def size(self) -> int:
        return len(self.meta) + sum(map(len, self.tail)) + len(self.recents) + 200


class ReplayCheckpoints:
    """The fold of a conversation's events so far, with copies of it on the way."""

    def __init__(
        self,
        key: Key,
        partition: int,
        rules: Rules,
        copies_bytes: int = COPIES_BYTES,
        *,
        every: int = EVERY,
    ) -> None:
        self.size = 0
        """Bytes of the copies."""
        self._window = Window(key, partition, rules)
        self._by_offset: dict[int, AnyEvent] = {}
        self._offsets: list[int] = []
        self._dropped: list[tuple[int, str]] = []
        """Where events were taken out by an operator, and which."""
        self._copies: dict[int, _Copy] = {}
        self._places: list[int] = []
        self._most = copies_bytes
        self._every = every

    def extend(self, log: Iterable[Logged], upto: int | None = None) -> None:
        """Fold on; the events come after those before, in their order.

        Those after offset ``upto`` are known and not folded: whoever gives it asks for nothing
        beyond it, and does not go on.
        """
        for offset, event in log:
            folds = upto is None or offset <= upto
            repeat = folds and self._fold(self._window, offset, event)
            self._by_offset[offset] = event
            self._offsets.append(offset)
            if isinstance(event, events.EventDroppedEvent):
                self._dropped.append((offset, event.data.position))
            if folds and len(self._offsets) % self._every == 0:
                self._put(self._window, offset, repeat)

    def history(self, window: Window, target: int) -> History:
        """What :func:`projections.fold.replay.history_from` answers: the history that a
        rollback of ``window`` to ``target`` needs.
        """
        found = self._at(target)
        # A repeat is no event of its own; a reader that goes by the tail's and spans' positions
        # does not even find it.
        if found is None or found.repeat:
            return History()
        restored = self._load(found)
        for offset, position in self._dropped:
            # What an operator took out since then stays out.
            if target < offset <= window.meta.position:
                take_out(restored, position)
        return History(restored, summary_chain(window, self._by_offset, target), self._by_offset)

    def _fold(self, window: Window, offset: int, event: AnyEvent) -> bool:
        """Fold one event; returns whether it is a repeat."""
        outcome = apply(window, offset, event)
        if outcome.status is Status.NEEDS_HISTORY:
            history = (
                History(texts=self._by_offset)
                if outcome.target is None
                else self.history(window, outcome.target)
            )
            outcome = apply(window, offset, event, history)
        return outcome.status is Status.DUPLICATE

    def _at(self, target: int) -> _Copy | None:
        """The fold as it stood after the event at ``target``, None where none of the conversation's
        is there.
        """
        known = self._copies.get(target)
        if known is not None or target not in self._by_offset:
            return known
        at = bisect_right(self._places, target)
        begin = self._places[at - 1] if at else -1
        window = (
            self._load(self._copies[begin])
            if at
            else Window(self._window.key, self._window.partition, self._window.rules)
        )
        repeat = False
        for offset in self._offsets[
            bisect_right(self._offsets, begin) : bisect_right(self._offsets, target)
        ]:
            repeat = self._fold(window, offset, self._by_offset[offset])
        return self._put(window, target, repeat)

    def _put(self, window: Window, offset: int, repeat: bool) -> _Copy:
        copy = _Copy(
            window.encode_meta(),
            [encode_entry(entry) for entry in window.tail],
            window.recents.packed(),
            repeat,
        )
        if offset not in self._copies:
            self._places.insert(bisect_right(self._places, offset), offset)
            self._copies[offset] = copy
            self.size += copy.size
        while self.size > self._most and self._places:
            gone, self._places = self._places[::2], self._places[1::2]
            self.size -= sum(self._copies.pop(place).size for place in gone)
        return copy

    def _load(self, copy: _Copy) -> Window:
        mine = self._window
        return load_window(mine.key, mine.partition, mine.rules, copy.meta, copy.tail, copy.recents)
