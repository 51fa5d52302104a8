"""Holding back the refusals of a tenant that does not wait as it is asked to, so that its repeats do not take the event loop from others.

A client that sends its next request as soon as it is refused is slowed down by the refusal itself: each of a tenant's answers goes out at
its own moment, no more than ``PACE`` a second. Waiting costs a timer and the connection, and no time of the loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

LEAST = 0.1
"""Seconds that a refusal is held back."""
PACE = 200
"""Refusals a second that a tenant is given at most, while they are held."""
MOST = 400
"""Refusals held at once for a tenant; what comes beyond is answered at once and its connection closed. So none is held over two seconds."""
MOST_IN_ALL = 4_000


class Holding:
    """Counts the answers that are held, by tenant. For one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: dict[str, int] = {}
        self._next: dict[str, float] = {}
        self._all = 0

    async def hold(self, tenant: str) -> bool:
        """Wait for this answer's turn; False, at once, where too many wait already: then the connection had better be closed."""
        held = self._held.get(tenant, 0)
        if held >= MOST or self._all >= MOST_IN_ALL:
            return False
        now = self._clock()
        at = max(now + LEAST, self._next.get(tenant, 0.0) + 1 / PACE)
        self._next[tenant], self._held[tenant] = at, held + 1
        self._all += 1
        try:
            await asyncio.sleep(at - now)
        finally:
            self._all -= 1
            left = self._held[tenant] - 1
            if left:
                self._held[tenant] = left
            else:
                del self._held[tenant], self._next[tenant]
        return True
