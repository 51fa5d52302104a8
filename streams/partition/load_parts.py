"""How many windows a batch loads before others have their turn."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from operator import itemgetter

from projections.names import Key

SECONDS = 0.04
"""How long a batch loads windows: one of 2,000 short messages takes 4 ms."""
WORTH = 0.25
"""Seconds: what would take less is loaded all the same. While conversations wait, the windows of
the partition are not those of one point of the log, and nothing can be compared with them.
"""
FIRST = 4
"""Windows that are loaded together at first; more of those that take less."""


class LoadParts:
    """The record keys of windows to load, in parts; tenants take turns.

    It ends when the time is over, what is left would take long, and no more than ``room`` are left.
    It takes all where there is no room. What takes its time is measured from one part to the next.
    """

    def __init__(self, keys: Mapping[bytes, Key], room: int) -> None:
        self.left = _in_turns(keys) if room else list(keys)
        """Those that no part had yet."""
        self._room = room

    def __iter__(self) -> Iterator[list[bytes]]:
        begun, count = time.perf_counter(), len(self.left)
        size = FIRST if self._room else count
        while self.left:
            part, self.left = self.left[:size], self.left[size:]
            yield part
            spent = time.perf_counter() - begun
            each = spent / (count - len(self.left))
            fits = len(self.left)
            if each * fits > WORTH:
                if spent >= SECONDS and fits <= self._room:
                    return
                fits = int((SECONDS - spent) / each)
            size = max(FIRST, min(4 * size, fits), len(self.left) - self._room)


def _in_turns(keys: Mapping[bytes, Key]) -> list[bytes]:
    """Each tenant's first, each one's second, and so on; a tenant's own stay in order."""
    before = Counter[str]()
    turns: list[tuple[int, bytes]] = []
    for name, key in keys.items():
        turns.append((before[key.tenant], name))
        before[key.tenant] += 1
    return [name for _, name in sorted(turns, key=itemgetter(0))]
