"""What of a tail a later cut depends on.

A long tail that stays over its limit, because nothing more of it may leave, is cut after each
event. What is left out of it has to be looked at no more: so a cut takes a time that grows with
what is still shown, not with the tail.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from projections.policy.policy import Policy
from projections.policy.profiles import KeepMessages
from projections.window.entry import EARLY, RENDERED, Entry, Kind
from projections.window.groups import Group, Grouper, group_tail

_GROUPED = (*RENDERED, Kind.HELD)
LOOK_AFTER = 64
"""Entries after which those that are settled are looked for."""


class Unsettled:
    """The entries at the front of a tail that a later cut depends on, in their order: what is
    rendered, without groups that are left out as a whole, and of those that stay for pinned results
    alone only the newest. The last message that the model said is always among them, and some that
    are left out may be.

    It follows one tail, of which nothing is replaced meanwhile.
    """

    __slots__ = (
        "_entries",
        "_grouped",
        "_grouper",
        "_heads",
        "_looked",
        "_many",
        "_newest",
        "_stale",
    )

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._heads: set[int] = set()
        """The offsets of their messages with calls."""
        self._looked = 0
        """How many of the tail were looked at."""
        self._grouper, self._grouped = Grouper(), 0
        self._stale = False
        self._many = LOOK_AFTER
        """With more entries than these, some may be settled that no cut changed."""
        self._newest = 0
        """Of groups that stay for pinned results a cut depends on so many, and on those of so many
        results.
        """

    def follow(self, policy: Policy) -> None:
        """Cuts are made by this policy now."""
        limits = [limit.n for limit in policy.reducers if isinstance(limit, KeepMessages)]
        newest = max(1, policy.spared, *limits)
        if newest != self._newest:
            self._newest, self._entries, self._looked, self._stale = newest, [], 0, True

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
        if self._stale or len(self._entries) > self._many:
            self._entries = _without_settled(self._entries)
            self._entries = _without_pinned(self._entries, self._newest)
            self._heads = {entry.offset for entry in self._entries if entry.calls}
            self._grouper, self._grouped, self._stale = Grouper(), 0, False
            self._many = 2 * len(self._entries) + LOOK_AFTER
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


def _without_pinned(entries: list[Entry], newest: int) -> list[Entry]:
    """Without groups that stay for pinned results alone, but for the ``newest`` and those of the
    ``newest`` results: nothing shortens the others, and no limit of messages reaches them.
    """
    if not any(entry.pinned for entry in entries):
        return entries
    alone = [group for group in group_tail(entries) if group.pinned and not _is_answered(group)]
    shown = [(group, group.results[i]) for group in alone for i in group.shown_calls()]
    shown.sort(key=lambda pair: pair[1].offset)
    stay = {g.head.offset for g in alone[-newest:]}.union(g.head.offset for g, _ in shown[-newest:])
    settled = {group.head.offset for group in alone} - stay
    return [
        entry for entry in entries if (entry.link[0] if entry.link else entry.offset) not in settled
    ]


def _is_answered(group: Group) -> bool:
    """Whether a call that is not shown any more was answered later."""
    shown = group.shown_calls()
    return any(i not in shown and not result.out for i, result in group.results.items())
