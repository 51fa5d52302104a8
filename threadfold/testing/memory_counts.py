"""Counts of a day in memory: the counterpart of ``projections.redis.daily_counts.DailyCounts``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from projections.redis.daily_counts import Addition, Counted

DAY = 86_400


class MemoryDailyCounts:
    """The daily counts of one process."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._counts: dict[str, tuple[int, dict[str, float]]] = {}

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
