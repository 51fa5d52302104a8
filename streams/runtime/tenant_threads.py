"""Threads for the work of many tenants, who take turns: who asks much waits behind itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from streams.runtime.fair_limit import FairLimit

MOST = 2
"""Fewer than the event loop has: what else needs a thread finds one. And threads share the
interpreter's lock: three that are busy in Python let the loop wait twice as long as two.
"""
P = ParamSpec("P")
T = TypeVar("T")


class TenantThreads:
    """Runs functions in at most ``most`` threads, given by turns to the tenants that wait."""

    def __init__(self, most: int = MOST) -> None:
        self._turns = FairLimit(most)

    async def run(
        self, tenant: str, function: Callable[P, T], *args: P.args, **named: P.kwargs
    ) -> T:
        """Call a function in a thread; returns or raises what it does."""
        async with self._turns.of(tenant):
            return await asyncio.to_thread(function, *args, **named)
