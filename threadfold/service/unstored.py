"""How much of what a process saved its memory store does not have yet, by tenant. Who saves faster
than the store takes in waits here: searches and saves of other tenants wait for all before them.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from projections.errors import QuotaExceeded, ThreadfoldError
from projections.names import Position
from projections.storage.records import Checkpoint
from streams.memory.feed import MemoryFeed
from streams.runtime.keyed_limit import KeyedLimit
from threadfold.service.fold_progress import FORGOTTEN, Appended, FoldProgress

MOST = 400
"""Saves of a tenant that may wait when it saves more: a store takes in some 2,500 a second."""
PATIENCE = 8.0
"""Seconds that a save waits at most before it is refused."""
Note = Callable[[Sequence[Position]], None]


class _Folded(NamedTuple):
    """How many saves of each tenant are folded since when. The store has what came of them once it
    is at these ``ends`` of the topic: of repeats and of what the fold refuses it never hears.
    """

    ends: Mapping[int, int]
    saves: Counter[str]
    since: float


class Unstored:
    """Counts saves from their append until the store has what the fold made of them. For one event
    loop. Nobody waits for a store that is not fed now, or that is still being filled, nor for a
    partition that nobody folds.
    """

    def __init__(
        self,
        feed: MemoryFeed,
        reached: Callable[[int], Awaitable[Checkpoint]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args: ``reached`` returns how far a partition of the log is folded now."""
        self._feed = feed
        self._clock = clock
        self._progress = FoldProgress(reached, self._looked, clock)
        self._saves = Counter[str]()
        """All that count, those on their way into the log, too."""
        self._just_folded = Counter[str]()
        self._folded = deque[_Folded]()
        self._lines = KeyedLimit(1)

    async def stop(self) -> None:
        """End what is under way."""
        await self._progress.stop()

    @asynccontextmanager
    async def room(self, tenant: str, saves: int) -> AsyncIterator[Note]:
        """Append so many saves in this context, once no more than ``MOST`` of the tenant's wait,
        and call what it gives with their positions.

        Raises:
            QuotaExceeded: they were more for ``PATIENCE`` seconds.
        """
        await self._wait(tenant)
        self._saves[tenant] += saves
        noted = 0

        def note(positions: Sequence[Position]) -> None:
            nonlocal noted
            noted = len(positions)
            self._progress.note(tenant, positions, [1] * noted)
            if self._saves[tenant] > MOST // 2 or self._progress.long:
                self._progress.look()  # so that the next one need not wait for that

        try:
            yield note
        finally:
            self._forget(Counter({tenant: saves - noted}))

    def waiting(self, tenant: str) -> int:
        """How many of the tenant's saves wait, but for partitions that nobody folds now."""
        standing = self._progress.standing()
        return self._saves[tenant] - sum(one.get(tenant, 0) for one in standing)

    async def _wait(self, tenant: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE), self._lines.of(tenant):
                while not self._has_room(tenant):
                    # It is others' look, too: who leaves does not end it.
                    await asyncio.wait([self._progress.look()])
                return
        raise QuotaExceeded(
            f"tenant {tenant} saves memories faster than the memory store takes them in:"
            f" {self.waiting(tenant)} wait after {PATIENCE:.0f} s, and nothing of this request was"
            " saved: send it again later",
            retry_after=2,
        )

    def _has_room(self, tenant: str) -> bool:
        return (
            self._saves[tenant] <= MOST
            or not self._feed.is_fed
            or self._progress.unknown
            or self.waiting(tenant) <= MOST
        )

    def _forget(self, saves: Counter[str]) -> None:
        self._saves.subtract(saves)
        for tenant in saves:
            if not self._saves[tenant]:
                del self._saves[tenant]

    async def _looked(self, gone: Sequence[Appended]) -> None:
        for one in gone:
            self._just_folded[one.tenant] += one.events
        if not self._feed.is_fed:
            while self._folded:
                self._forget(self._folded.popleft().saves)
            self._forget(self._just_folded)
            self._just_folded = Counter()
        if self._just_folded:
            # What is folded is on the topic: that comes first.
            with suppress(ThreadfoldError):
                ends = await self._feed.ends_now()
                self._folded.append(_Folded(ends, self._just_folded, self._clock()))
                self._just_folded = Counter()
        while self._folded and self._is_stored(self._folded[0]):
            self._forget(self._folded.popleft().saves)

    def _is_stored(self, one: _Folded) -> bool:
        # Where the topic was made anew, it never comes to these ends.
        return self._feed.has(one.ends) or one.since < self._clock() - FORGOTTEN
