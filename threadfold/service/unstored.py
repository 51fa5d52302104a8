"""How much of what a process saved its memory store does not have yet, by tenant. Who saves faster
than the store takes in waits here: searches and saves of other tenants wait for all before them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from projections.errors import QuotaExceeded
from projections.memory.news import News
from streams.memory.feed import MemoryFeed
from streams.runtime.keyed_limit import KeyedLimit

MOST = 400
"""Saves of a tenant that may wait when it saves more: a store takes in some 2,500 a second."""
PATIENCE = 8.0
"""Seconds that a save waits at most before it is refused."""


class Unstored:
    """Counts saves that a store does not have yet. For one event loop. Nobody waits for a store
    that is not fed now, or that is still being filled.
    """

    def __init__(self, feed: MemoryFeed) -> None:
        self._feed = feed
        self._counts: Counter[str] = Counter()
        self._lines = KeyedLimit(1)
        feed.on_stored = self._stored

    async def take(self, tenant: str, saves: int) -> None:
        """Wait until no more than ``MOST`` of the tenant's saves wait, and count these.

        Raises:
            QuotaExceeded: they were more for ``PATIENCE`` seconds.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE), self._lines.of(tenant):
                while not self._has_room(tenant):
                    await self._feed.advanced()
                self._counts[tenant] += saves
                return
        raise QuotaExceeded(
            f"tenant {tenant} saves memories faster than the memory store takes them in:"
            f" {self._counts[tenant]} wait after {PATIENCE:.0f} s, and nothing of this request was"
            " saved: send it again later",
            retry_after=2,
        )

    def _has_room(self, tenant: str) -> bool:
        if not self._feed.is_fed or not self._feed.behind:
            self._counts.clear()  # refused saves and repeats never come
        return self._counts[tenant] <= MOST

    def _stored(self, news: Sequence[News]) -> None:
        self._counts -= Counter(one.log.tenant for one in news)
