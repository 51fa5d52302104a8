"""Threads for the work of many tenants, who take turns: who asks much waits behind itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, TypeVar, overload

from streams.runtime.fair_limit import FairLimit
from streams.runtime.keyed_limit import KeyedLimit
from streams.runtime.other_tenants import OtherTenants
from streams.runtime.steps import Steps

MOST = 2
"""Fewer than the event loop has: what else needs a thread finds one. And threads share the
interpreter's lock: three that are busy in Python let the loop wait twice as long as two.
"""
ACTIVE = 10.0
"""Seconds for which another tenant counts as active: a tenant that is not alone has one thread."""
STEP = 0.01
"""Seconds after which work in steps lets others have the thread."""
P = ParamSpec("P")
T = TypeVar("T")


class TenantThreads:
    """Runs functions in at most ``most`` threads, given by turns to the tenants that wait. While
    others are active a tenant has one of them.
    """

    def __init__(self, most: int = MOST, clock: Callable[[], float] = time.monotonic) -> None:
        self._turns = FairLimit(most)
        self._own = KeyedLimit(1)
        self._others = OtherTenants()
        self._clock = clock

    @overload
    async def run(
        self, tenant: str, function: Callable[P, Steps[T]], *args: P.args, **named: P.kwargs
    ) -> T: ...

    @overload
    async def run(
        self, tenant: str, function: Callable[P, T], *args: P.args, **named: P.kwargs
    ) -> T: ...

    async def run(self, tenant: str, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Call a function in a thread; returns or raises what it does. One that works in steps
        gives the thread up between them.
        """
        found = await self._run(tenant, function, *args, **named)
        if not isinstance(found, Generator):
            return found
        while True:
            is_done, found_so_far = await self._run(tenant, _go_on, found)
            if is_done:
                return found_so_far

    async def _run(
        self, tenant: str, function: Callable[..., Any], *args: Any, **named: Any
    ) -> Any:
        async with self._alone(tenant), self._turns.of(tenant):
            return await asyncio.to_thread(function, *args, **named)

    @asynccontextmanager
    async def _alone(self, tenant: str) -> AsyncIterator[None]:
        """The tenant's only work, while others are active."""
        now = self._clock()
        self._others.note(tenant, now)
        if self._others.than(tenant, now - ACTIVE):
            async with self._own.of(tenant):
                yield
        else:
            yield


def _go_on(steps: Steps[T]) -> tuple[bool, T | None]:
    """Work on for a while: whether that is all, and what it comes to."""
    until = time.perf_counter() + STEP
    try:
        next(steps)
        while time.perf_counter() < until:
            next(steps)
    except StopIteration as end:
        return True, end.value
    return False, None
