"""Counts of a day in memory: the counterpart of ``projections.redis.daily_counts.DailyCounts``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from projections.redis.daily_counts import Addition, Counted, Ranked

DAY = 86_400


class MemoryDailyCounts:
    """The daily counts of one process."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._counts: dict[str, tuple[int, dict[str, float]]] = {}
        self._boards: dict[str, tuple[int, dict[str, dict[str, float]]]] = {}

    async def add(
        self, owner: str, additions: Sequence[Addition], day: int | None = None
    ) -> Counted:
        """Add all units, or none where a limit is reached. ``day``: only if it still is."""
        now = int(self._clock())
        today, left = now // DAY, float(DAY - now % DAY)
        of, kept = self._counts.get(owner, (today, {}))
        if of != today:
            kept = {}
        used = {one.kind: kept.get(one.kind, 0.0) for one in additions}
        added = day in (None, today) and not any(
            0 < one.limit <= used[one.kind] for one in additions
        )
        if added:
            for one in additions:
                used[one.kind] = max(0.0, used[one.kind] + one.units)
            self._counts[owner] = (today, {**kept, **used})
        return Counted(added, used, today, left)

    async def rank(
        self, board: str, member: str, units: Mapping[str, float], day: int | None = None
    ) -> bool:
        """Add what a member used. ``day``: only if it still is."""
        today = int(self._clock()) // DAY
        if day not in (None, today):
            return False
        kept = self._board(board)
        counts = kept.get(member, {})
        added = {kind: counts.get(kind, 0.0) + number for kind, number in units.items()}
        self._boards[board] = (today, {**kept, member: {**counts, **added}})
        return True

    async def ranked(self, board: str, kinds: Sequence[str], most: int) -> Ranked:
        """A board's totals, and who used most of the first kind."""
        rows = {
            member: {kind: max(0.0, counts.get(kind, 0.0)) for kind in kinds}
            for member, counts in self._board(board).items()
        }
        totals = {kind: sum(counts[kind] for counts in rows.values()) for kind in kinds}
        first = sorted(rows.items(), key=lambda one: one[1][kinds[0]], reverse=True)
        return Ranked(totals, first[:most])

    def _board(self, board: str) -> dict[str, dict[str, float]]:
        of, kept = self._boards.get(board, (0, {}))
        return kept if of == int(self._clock()) // DAY else {}
