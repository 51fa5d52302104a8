"""How much of what a process saved its memory store does not have yet, by tenant. Who saves faster
than the store takes in waits here: searches and saves of other tenants wait for all before them.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile

from projections.errors import QuotaExceeded
from projections.memory.news import News
from streams.memory.feed import MemoryFeed
from streams.runtime.keyed_limit import KeyedLimit

MOST = 400
"""Saves of a tenant that may wait when it saves more: a store takes in some 2,500 a second."""
PATIENCE = 8.0
"""Seconds that a save waits at most before it is refused."""
FORGOTTEN = 2.0
"""Seconds after which what a save is to the fold is on the topic. The save counts until the store
has all that is there then: of repeats and of what the fold refuses it never hears.
"""


@dataclass(slots=True)
class _Saves:
    """Saves of one request that wait, and since when; ``ends`` of the topic once it has them."""

    count: int
    since: float
    ends: Mapping[int, int] | None = None


class Unstored:
    """Counts saves that a store does not have yet. For one event loop. Nobody waits for a store
    that is not fed now, or that is still being filled.
    """

    def __init__(self, feed: MemoryFeed, clock: Callable[[], float] = time.monotonic) -> None:
        self._feed = feed
        self._clock = clock
        self._waiting: defaultdict[str, deque[_Saves]] = defaultdict(deque)
        self._lines = KeyedLimit(1)
        feed.on_stored = self._stored

    @asynccontextmanager
    async def room(self, tenant: str, saves: int) -> AsyncIterator[None]:
        """Append so many saves in this context, once no more than ``MOST`` of the tenant's wait.

        Raises:
            QuotaExceeded: they were more for ``PATIENCE`` seconds.
        """
        await self._wait(tenant)
        mine = _Saves(saves, self._clock())
        self._waiting[tenant].append(mine)
        try:
            yield
        except BaseException:
            mine.count = 0  # nothing was appended
            raise

    async def _wait(self, tenant: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE), self._lines.of(tenant):
                while self._count(tenant) > MOST:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(FORGOTTEN):
                            await self._feed.advanced()
                return
        raise QuotaExceeded(
            f"tenant {tenant} saves memories faster than the memory store takes them in:"
            f" {self._count(tenant)} wait after {PATIENCE:.0f} s, and nothing of this request was"
            " saved: send it again later",
            retry_after=2,
        )

    def _count(self, tenant: str) -> int:
        """How many of the tenant's saves wait."""
        if not self._feed.is_fed or not self._feed.behind:
            self._waiting.clear()
        waiting = self._waiting[tenant]
        for one in takewhile(lambda one: one.since < self._clock() - FORGOTTEN, waiting):
            one.ends = one.ends or self._feed.ends
        while waiting and waiting[0].ends is not None and self._feed.has(waiting[0].ends):
            waiting.popleft()
        return sum(one.count for one in waiting)

    def _stored(self, news: Sequence[News]) -> None:
        for tenant, count in Counter(one.log.tenant for one in news).items():
            waiting = self._waiting.get(tenant)
            while waiting and count:
                taken = min(count, waiting[0].count)
                waiting[0].count -= taken
                count -= taken
                if not waiting[0].count:
                    waiting.popleft()
