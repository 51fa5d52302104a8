"""Where work is done that takes a processor for long: in other processes, fairly between those who
want it, or in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from streams.runtime.fair_limit import FairLimit
from streams.runtime.process_pool import ProcessPool, cores

T = TypeVar("T")

PROCESS_BYTES = 1 << 30
"""Address space that a process may have beside that of its start."""
NICENESS = 10
"""How much lower their priority is: beside a process of usual priority that wants all of a core,
one of these gets a tenth of it.
"""
AHEAD = 1
"""Calls that are handed to the processes beside those that run, so that none waits for the loop."""


class Processor(Protocol):
    """Runs functions beside the event loop."""

    async def run(self, tenant: str, function: Callable[..., T], *args: object) -> T:
        """Call a function of a module with arguments that pickle; returns or raises what it does.

        The function must have no effect but its result: it may run twice.
        """
        ...


class Processes:
    """Processes of low priority, one a core; calls of several tenants take turns. For one loop.

    What a call may raise beside: :meth:`streams.runtime.process_pool.ProcessPool.run`.
    """

    def __init__(
        self,
        size: int = 0,
        weight: Callable[[str], float] = lambda tenant: 1.0,
        prepare: Callable[[], None] | None = None,
        niceness: int = NICENESS,
    ) -> None:
        """Args: ``size`` is how many, 0: as many as there are cores; none starts before a call.
        ``prepare`` is called in each before its first call, ``niceness`` is how much lower their
        priority is from then on.
        """
        self.size = size or cores()
        self._pool = ProcessPool(self.size, PROCESS_BYTES, prepare, niceness)
        self._turns = FairLimit(self.size + AHEAD, weight)

    async def run(self, tenant: str, function: Callable[..., T], *args: object) -> T:
        """:meth:`Processor.run`, in one of the processes."""
        async with self._turns.of(tenant):
            return await self._pool.run(function, *args)

    async def close(self) -> None:
        """End the processes at once, with what they work on."""
        await self._pool.close(wait=False)


class Here:
    """The event loop itself: for what is short, and for tests."""

    async def run(self, tenant: str, function: Callable[..., T], *args: object) -> T:
        """:meth:`Processor.run`, at once."""
        del tenant
        return function(*args)


class Threads:
    """Threads of this process: for a single call now and then, and for tests."""

    async def run(self, tenant: str, function: Callable[..., T], *args: object) -> T:
        """:meth:`Processor.run`, in a thread."""
        return await asyncio.to_thread(function, *args)
