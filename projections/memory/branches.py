"""Which events of a log stand after its rollbacks.

A log with rollbacks is a tree: an event follows the one before it, a rollback follows its target.
What stands are the ancestors of the log's end. So it follows from the *set* of rollbacks alone, in
whatever order they arrive; and a rollback of a rollback brings back what that one took.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping

from projections.errors import InvalidPosition
from projections.names import parse_position


class Branches:
    """The rollbacks of one log."""

    __slots__ = ("_by", "_to")

    def __init__(self, rollbacks: Iterable[tuple[int, int]] = ()) -> None:
        """Args: ``rollbacks`` are pairs of where one stands and the last event that stays."""
        ordered = sorted(set(rollbacks))
        self._by = [by for by, _ in ordered]
        self._to = [to for _, to in ordered]

    def stands(self, offset: int) -> bool:
        """Whether the event at ``offset`` stands at the log's end."""
        end, last = offset + 1, len(self._by) - 1
        reached = None
        while last >= 0 and self._by[last] >= end:
            reached = self._to[last]
            if offset > reached:
                return False
            last = bisect_right(self._by, reached, 0, last) - 1
        return reached is None or offset <= reached


def target_of(to: str, offsets: Mapping[str, int]) -> int | None:
    """Where a rollback goes back to: a position's offset, or that of an event's id, None where that
    is not among ``offsets``.
    """
    try:
        return parse_position(to).offset
    except InvalidPosition:
        return offsets.get(to)
