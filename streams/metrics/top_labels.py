"""Labels of which there may be many, bounded: whoever uses most has a label of its own, all others
share one.

A label stays while its owner uses much, so a series does not come and go. Who gets a label later
counts under it from then on: what it used before stays with the others, so no counter goes back.
"""

from __future__ import annotations

OTHER = "other"
MOST = 20
"""Labels of their own at most."""
KNOWN = 10_000
"""Names whose use is remembered between two rotations; others have no label."""
MORE = 2.0
"""So many times the use of the least one takes its label over."""


class TopLabels:
    """Which names have a label of their own."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._labels: set[str] = set()
        self._used: dict[str, float] = {}

    def of(self, name: str, units: float = 1.0) -> str:
        """The label of a name that uses so many units now."""
        used = self._used.get(name)
        if used is not None or len(self._used) < KNOWN:
            self._used[name] = (used or 0.0) + units
        if name not in self._labels:
            if len(self._labels) >= self._most:
                return OTHER
            self._labels.add(name)
        return name

    def rotate(self) -> list[str]:
        """Give labels to those who used most since the last rotation; returns the labels that are
        no longer in use.
        """
        used, self._used = self._used, {}
        least = sorted(self._labels, key=lambda name: used.get(name, 0.0))
        others = sorted(used.keys() - self._labels, key=used.__getitem__, reverse=True)
        dropped = []
        for old, new in zip(least, others, strict=False):
            if used[new] <= MORE * used.get(old, 0.0):
                break
            self._labels.remove(old)
            self._labels.add(new)
            dropped.append(old)
        return dropped
