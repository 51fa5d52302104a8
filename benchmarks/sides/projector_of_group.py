"""One of several workers of `projection_scaling`: a projector that shares its group's partitions
with others.

It notes how much it has folded every few milliseconds, as soon as it holds exactly its share of the
partitions; it prints ``ready`` then, and ``done`` when those are at their ends and stays in the
group until its stdin ends, so that nobody's end gives others its partitions.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from benchmarks.sides.projector import until
from benchmarks.support.children import answer, read_job
from benchmarks.support.meters import Meter
from streams.projector.projector import Projector
from streams.runtime.tune_gc import tune_gc
from streams.settings.settings import Settings
from streams.worker_parts import Runtime

POLL = 0.01


class Progress:
    """What this process has folded, by the clock all processes share."""

    def __init__(self, projector: Projector, ends: dict[int, int], share: int) -> None:
        self._projector = projector
        self._ends = ends
        self._share = share
        self.samples: list[tuple[float, int]] = []

    def settled(self) -> bool:
        """Whether this process holds its share, and no more."""
        return len(self._projector.partitions) == self._share

    def done(self) -> bool:
        """Take a sample; tells whether all of the share is at its ends. A rebalance makes it begin
        anew.
        """
        if not self.settled():
            self.samples.clear()
            return False
        left = sum(
            self._ends[n] - 1 - p.checkpoint.offset for n, p in self._projector.partitions.items()
        )
        self.samples.append((time.time(), left))
        return left <= 0


async def run(settings: Settings, share: int) -> None:
    """Project a share, and answer with what was left of it at each moment."""
    runtime = Runtime(settings)
    await runtime.start()
    tune_gc()
    projector, log = runtime.projector, runtime.log
    assert projector is not None and log is not None
    progress = Progress(projector, await log.end_offsets(), share)
    task = asyncio.create_task(projector.run())
    await until(progress.settled, task, POLL / 10)
    print("ready", flush=True)
    meter = Meter({"process": [os.getpid()]})
    await until(progress.done, task)
    usage = meter.stop()
    print("done", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    projector.stop()
    await task
    await runtime.stop()
    samples = [[round(at, 4), left] for at, left in progress.samples]
    answer(samples[-1][0] - samples[0][0], usage=usage, samples=samples)


if __name__ == "__main__":
    settings, _, job = read_job()
    asyncio.run(run(settings, job["share"]))
