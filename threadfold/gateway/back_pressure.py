"""Back-pressure on a tenant that does not wait as it is asked to: its refusals are held back, so
that its repeats do not take the event loop from other tenants.

A client that sends its next request as soon as it is refused is slowed down by the refusal itself.
Each of a tenant's refusals goes out at its own moment, ``PACE`` a second. Waiting costs a timer and
the connection, and no time of the loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from threadfold.gateway.loop_turns import OnLeft

LEAST = 0.1
"""Seconds that a refusal is held back at least."""
PACE = 100
"""Refusals that a tenant gets a second, while more are held."""
LONGEST = 5.0
"""Seconds that one is held at most, about: where more wait than fit into them, they go out faster.
"""
SHARE = 2
"""One tenant may have one part in so many of what is held. What comes beyond is answered at once
and its connection closed. Holding is much the cheaper: of 800 connections that did not wait, 300
that were closed and came again took most of the loop's time.
"""


class BackPressure:
    """Holds refusals, ``most`` in all; ``held`` counts them by tenant. For one event loop."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self.held: dict[str, int] = {}
        self._next: dict[str, float] = {}
        self._all = 0

    async def hold(self, tenant: str, on_left: OnLeft = lambda _: None) -> bool:
        """Wait for this refusal's turn, or until its client leaves; return False, at once, if too
        many wait: then close the connection.

        Args: ``on_left`` is given what to call when the client leaves.
        """
        held = self.held.get(tenant, 0)
        if self._all >= self._most or held >= self._most // SHARE:
            return False
        now = self._clock()
        step = min(1 / PACE, LONGEST / (held + 1))
        at = max(now + LEAST, min(now + LONGEST, self._next.get(tenant, 0.0) + step))
        self._next[tenant], self.held[tenant] = at, held + 1
        self._all += 1
        done, gone = asyncio.Event(), False

        def leave() -> bool:
            nonlocal gone
            gone = not done.is_set()
            done.set()
            return gone

        timer = asyncio.get_running_loop().call_later(at - now, done.set)
        on_left(leave)
        try:
            await done.wait()
        finally:
            timer.cancel()
            if gone or not done.is_set():
                self._next[tenant] -= step  # it left before: those who come later wait less
            self._all -= 1
            left = self.held[tenant] - 1
            if left:
                self.held[tenant] = left
            else:
                del self.held[tenant], self._next[tenant]
        return True
