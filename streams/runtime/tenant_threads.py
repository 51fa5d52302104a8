"""Threads for the work of many tenants, who take turns: who asks much waits behind itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar, overload

from streams.runtime.fair_limit import FairLimit
from streams.runtime.keyed_limit import KeyedLimit, Turn
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
SHARE, BURST = 0.25, 0.25
"""Of a processor's time, what a tenant that is not alone may use of its thread, and seconds beyond
that at once. Who asks now and then never waits for it: a search takes some 10 to 80 ms.
"""
MOST_DEBT = 0.5
"""Seconds beyond its burst that count at most: it rests for two seconds."""
KNOWN = 1_000
"""Tenants that are known before those are forgotten that used nothing for long."""
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class _Job:
    """Work of one thread, and the processor's seconds that it ``took``."""

    function: Callable[[], Any]
    begun: bool = False
    abandoned: bool = False
    took: float = 0.0

    def work(self) -> Any:
        if self.abandoned:  # before a thread was free
            return None
        began = time.thread_time()
        try:
            return self.function()
        finally:
            self.took = time.thread_time() - began


class TenantThreads:
    """Runs functions in at most ``most`` threads, given by turns to the tenants that wait. While
    others are active a tenant has one of them, and a share of its time.
    """

    def __init__(self, most: int = MOST, clock: Callable[[], float] = time.monotonic) -> None:
        self._turns = FairLimit(most)
        self._own = KeyedLimit(1)
        self._others = OtherTenants()
        self._clock = clock
        self._used: dict[str, tuple[float, float]] = {}
        """Seconds of a processor that tenants used beyond their share, and when that was so."""

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
        is_done, found = await self._run(tenant, partial(_begin, partial(function, *args, **named)))
        while not is_done:
            is_done, found = await self._run(tenant, partial(_go_on, found))
        return found

    async def _run(self, tenant: str, function: Callable[[], Any]) -> Any:
        job = _Job(function)
        held = asyncio.create_task(self._held(tenant, job), name=f"job of {tenant}")
        held.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            return await asyncio.shield(held)
        except asyncio.CancelledError:
            # A thread cannot be ended: its place stays taken until it has ended.
            job.abandoned = True
            if not job.begun:
                held.cancel()
            raise

    async def _held(self, tenant: str, job: _Job) -> Any:
        async with self._place(tenant) as turn, self._turns.of(tenant):
            job.begun = True
            try:
                return await asyncio.to_thread(job.work)
            finally:
                if turn is not None:
                    turn.rest = self._charge(tenant, job.took)

    @asynccontextmanager
    async def _place(self, tenant: str) -> AsyncIterator[Turn | None]:
        """The tenant's only one, while others are active; None: it needs none, and what it uses
        does not count.
        """
        now = self._clock()
        self._others.note(tenant, now)
        if self._others.than(tenant, now - ACTIVE):
            async with self._own.of(tenant) as turn:
                yield turn
        else:
            yield None

    def _charge(self, tenant: str, seconds: float) -> float:
        """Note what a tenant used; returns how long it has to rest for it."""
        now = self._clock()
        if len(self._used) > KNOWN:
            known = self._used.items()
            self._used = {one: (used, at) for one, (used, at) in known if used > SHARE * (now - at)}
        used, at = self._used.get(tenant, (0.0, now))
        used = min(max(0.0, used - SHARE * (now - at)) + seconds, BURST + MOST_DEBT)
        self._used[tenant] = used, now
        return max(0.0, used - BURST) / SHARE


def _begin(function: Callable[[], Any]) -> tuple[bool, Any]:
    """Work for a while: whether that is all, and what it comes to or the steps that are left."""
    found = function()
    return _go_on(found) if isinstance(found, Generator) else (True, found)


def _go_on(steps: Steps[T]) -> tuple[bool, T | Steps[T]]:
    """The same for work that has begun."""
    until = time.perf_counter() + STEP
    try:
        next(steps)
        while time.perf_counter() < until:
            next(steps)
    except StopIteration as end:
        return True, end.value
    return False, steps
