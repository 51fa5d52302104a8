"""Who has how many of something, and who has most of it: each step takes the same time, however
many there are.
"""

from __future__ import annotations

from collections import OrderedDict


class WhoHasMost:
    """Counts that change by one."""

    def __init__(self) -> None:
        self.most = 0
        """What who has most has."""
        self._by_count: dict[int, OrderedDict[str, None]] = {}
        """Who has so many, in the order in which they came to have."""

    def first(self) -> str:
        """Of those that have most the one that has for longest; empty: nobody has any."""
        return next(iter(self._by_count.get(self.most, ())), "")

    def count(self, whose: str, before: int, now: int) -> None:
        """Somebody had so many, and has now one more or less."""
        if before:
            del self._by_count[before][whose]
            if not self._by_count[before]:
                del self._by_count[before]
        if now:
            self._by_count.setdefault(now, OrderedDict())[whose] = None
        if now > self.most or self.most not in self._by_count:
            self.most = now
