"""When a store rewrites the files that hold deleted texts. Readers wait meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHARE = 0.005
"""Of the time, what rewriting takes at most, where one erasure follows another."""
SMALL = 64 << 20
"""Bytes up to which a store is rewritten so often; a larger one is at most every ``EVERY``."""
EVERY = 3600.0
"""Seconds between two rewritings of a larger store."""


class Wipes:
    """Tells when the next rewriting may begin: the first at once, later ones after a rest."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rested = self._large = float("-inf")

    @property
    def may_begin(self) -> bool:
        """Whether it rested long enough."""
        return self._clock() >= self._rested

    def may_rewrite(self, size: int) -> bool:
        """Whether all of a store of so many bytes may be rewritten."""
        return size <= SMALL or self._clock() >= self._large

    def rewritten(self) -> None:
        """All of it was."""
        self._large = self._clock() + EVERY

    @contextmanager
    def one(self) -> Iterator[None]:
        """Rewrite within; then it rests."""
        began = self._clock()
        yield
        ended = self._clock()
        self._rested = ended + (1 / SHARE - 1) * (ended - began)
