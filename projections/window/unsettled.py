"""What of a tail a later cut depends on.

A long tail that stays over its limit, because nothing more of it may leave, is cut after each
event. What is left out of it has to be looked at no more: so a cut takes a time that grows with
what is still shown, not with the tail.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from projections.window.entry import EARLY, RENDERED, Entry, Kind
from projections.window.groups import Group, Grouper

_GROUPED = (*RENDERED, Kind.HELD)


class Unsettled:
    """The entries at the front of a tail that a later cut depends on, in their order: what is
    rendered, without groups that are left out as a whole. The last message that the model said is
    always among them, and some that are left out may be.

    It follows one tail, of which nothing is replaced meanwhile.
    """

    __slots__ = ("_entries", "_grouped", "_grouper", "_heads", "_looked", "_stale")

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._heads: set[int] = set()
        """The offsets of their messages with calls."""
        self._looked = 0
        """How many of the tail were looked at."""
        self._grouper, self._grouped = Grouper(), 0
        self._stale = False

    def changed(self) -> None:
        """More is left out, or other results belong to calls, than when they were looked at."""
        self._stale = True

    def entries(self, tail: Sequence[Entry], n: int) -> list[Entry]:
        """Those among the first ``n`` of the tail; ``n`` never gets less."""
        new = _groupable(tail, self._looked, n)
        self._looked = n
        self._heads.update(entry.offset for entry in new if entry.calls)
        if any(e.link and e.link != EARLY and e.link[0] not in self._heads for e in new):
            # A call whose message is left out is answered only now.
            self._entries, new, self._stale = [], _groupable(tail, 0, n), True
        self._entries += new
        if self._stale:
            self._entries = _without_settled(self._entries)
            self._heads = {entry.offset for entry in self._entries if entry.calls}
            self._grouper, self._grouped, self._stale = Grouper(), 0, False
        return self._entries

    def groups(self, tail: Sequence[Entry], n: int) -> list[Group]:
        """The groups of :meth:`entries`."""
        for entry in islice(self.entries(tail, n), self._grouped, None):
            self._grouper.add(entry)
        self._grouped = len(self._entries)
        return self._grouper.groups


def _groupable(tail: Sequence[Entry], since: int, n: int) -> list[Entry]:
    return [entry for entry in islice(tail, since, n) if entry.kind in _GROUPED]


def _without_settled(entries: list[Entry]) -> list[Entry]:
    latest = next((entry for entry in reversed(entries) if entry.kind == Kind.ASSISTANT), None)
    answered = {entry.link[0] for entry in entries if entry.body and entry.link}
    whole = {
        entry.offset
        for entry in entries
        if entry.calls and (entry.body or entry is latest or entry.offset in answered)
    }
    return [
        entry
        for entry in entries
        if entry.body
        or entry.kind == Kind.HELD
        or entry is latest
        or (entry.link[0] if entry.link else entry.offset) in whole
    ]
