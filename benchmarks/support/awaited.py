"""What a stack still has to do, seen from outside: events that are not applied, summaries that are
awaited, and what its processes take meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import psutil

from benchmarks.harness import rounded
from benchmarks.support.meters import MIB
from streams.log.group_offsets import GroupOffsets
from streams.log.kafka_log import KafkaLog
from streams.projector.compaction_scheduler import answered_requests
from streams.settings.settings import Settings
from streams.stack import Stack, open_stack

FAR = 1 << 52
"""A time (ms) after every other: asks for all due windows, whenever their request was sent."""
MANY = 1_000_000
STANDSTILL = 120.0
"""Seconds without any progress after which a run has failed."""


class Awaited:
    """Looks at a stack; nothing here changes it."""

    def __init__(self, stack: Stack, summaries: KafkaLog, requests: GroupOffsets) -> None:
        self._stack = stack
        self._summaries = summaries
        self._requests = requests

    async def appended(self) -> int:
        """Records in the log."""
        return sum((await self._stack.log.end_offsets()).values())

    async def behind(self) -> int:
        """Records of the log that no window has applied yet."""
        number, behind = self._stack.generation.number, 0
        for partition, end in (await self._stack.log.end_offsets()).items():
            checkpoint = await self._stack.store.checkpoint(number, partition)
            behind += end if checkpoint is None else max(0, end - 1 - checkpoint.offset)
        return behind

    async def due(self) -> int:
        """Windows that wait for a summary."""
        number = self._stack.generation.number
        return sum(
            [
                len(await self._stack.store.due(number, partition, FAR, MANY))
                for partition in range(self._stack.generation.partitions)
            ]
        )

    async def accepted(self) -> int:
        """Summaries accepted so far."""
        return sum((await self._summaries.end_offsets()).values())

    async def requests(self) -> int:
        """Requests, of summaries and of learning, that no worker has answered yet."""
        extents = await self._requests.of(range(self._stack.log.partitions))
        return sum(one.end - one.done for one in extents.values())

    async def until_answered(self, pause: float = 0.1) -> None:
        """Wait until no request waits.

        Raises:
            RuntimeError: nothing moved for :data:`STANDSTILL` seconds.
        """

        async def left() -> Left | None:
            waiting = await self.requests()
            return Left(f"{waiting} requests", waiting) if waiting else None

        await _until_nothing(left, pause)

    async def until_done(self, pause: float = 0.1) -> None:
        """Wait until all is applied and no summary is awaited.

        Raises:
            RuntimeError: nothing moved for :data:`STANDSTILL` seconds.
        """

        async def left() -> Left | None:
            behind = await self.behind()
            due = await self.due() if not behind else -1
            # A summary that was accepted between the two looks may have made the next one due.
            if not behind and not due and not await self.behind():
                return None
            said = f"{behind} records to apply and {due} summaries awaited"
            return Left(said, (behind, due, await self.accepted()))

        await _until_nothing(left, pause)


class Left(NamedTuple):
    """What is left to do, in words, and what changes whenever something moves."""

    said: str
    state: object


async def _until_nothing(look: Callable[[], Awaitable[Left | None]], pause: float) -> None:
    """Look until nothing is left; raises RuntimeError."""
    moved, before = time.monotonic(), None
    while (left := await look()) is not None:
        if left.state != before:
            moved, before = time.monotonic(), left.state
        elif time.monotonic() - moved > STANDSTILL:
            raise RuntimeError(f"nothing moved for {STANDSTILL:g} s with {left.said}")
        await asyncio.sleep(pause)


@asynccontextmanager
async def watched(settings: Settings) -> AsyncIterator[Awaited]:
    """Look at a stack that has a live generation."""
    async with open_stack(settings) as stack:
        summaries = KafkaLog(settings, stack.log.partitions, "summaries")
        requests = answered_requests(settings)
        try:
            yield Awaited(stack, summaries, requests)
        finally:
            await requests.stop()
            await summaries.stop()


class Family:
    """A process with its children, those that come later too: CPU time, and memory sampled while
    a block runs.
    """

    def __init__(self, pid: int) -> None:
        self._owner = psutil.Process(pid)
        self.peak_mib = 0.0
        self._cpu = self._look()

    def usage(self) -> dict[str, float]:
        """CPU seconds since this was made, and the most resident MiB seen. Pages that processes
        share count in each of them; a process that has ended counts no more.
        """
        return {"cpu_s": round(self._look() - self._cpu, 2), "peak_mib": rounded(self.peak_mib)}

    @asynccontextmanager
    async def sampled(self, pause: float = 0.25) -> AsyncIterator[Family]:
        """Look again and again while the block runs."""

        async def look() -> None:
            while True:
                self._look()
                await asyncio.sleep(pause)

        task = asyncio.create_task(look())
        try:
            yield self
        finally:
            task.cancel()

    def _look(self) -> float:
        cpu = size = 0.0
        for process in [self._owner, *self._owner.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                size += process.memory_info().rss
                times = process.cpu_times()
                cpu += times.user + times.system
        self.peak_mib = max(self.peak_mib, size / MIB)
        return cpu
