"""A clock of a test's own."""

from __future__ import annotations


class Clock:
    """Gives the time, in seconds, that a test sets: ``now``."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
