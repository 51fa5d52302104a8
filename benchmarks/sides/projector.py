"""Our side of `projection`: the worker's projector (``streams.worker.Runtime``) catching up with a
filled topic, into Redis.

The clock runs from the assignment of the first partition to the last checkpoint at its partition's
end: reading checkpoints, fencing and loading are in it. The compactor does not run; compaction
requests are sent as always.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from benchmarks.support.children import answer, read_job
from benchmarks.support.meters import Meter
from streams.projector.projector import Projector
from streams.runtime.tune_gc import tune_gc
from streams.settings.settings import Settings
from streams.worker_parts import Runtime

POLL = 0.01


def at_end(projector: Projector, ends: dict[int, int]) -> bool:
    """Whether all partitions are this projector's, folded to their ends, and none heals."""
    if len(projector.partitions) < len(ends):
        return False
    return all(
        p.checkpoint.offset >= ends[n] - 1 and not p.checkpoint.healing
        for n, p in projector.partitions.items()
    )


async def until(condition: Any, task: asyncio.Task[None], pause: float = POLL) -> None:
    """Wait for the condition while the projector's task runs."""
    while not condition():
        if task.done():
            raise RuntimeError("the projector ended before it was done") from task.exception()
        await asyncio.sleep(pause)


async def run(settings: Settings, groups: dict[str, list[int]], whole: bool) -> None:
    """Catch up, and answer with events a second; ``whole``: every event of the log has to be folded
    by this process.
    """
    runtime = Runtime(settings)
    await runtime.start()
    tune_gc()
    projector, log = runtime.projector, runtime.log
    assert projector is not None and log is not None
    ends = await log.end_offsets()
    task = asyncio.create_task(projector.run())
    await until(lambda: projector.partitions, task, POLL / 10)
    begin, meter = time.perf_counter(), Meter(groups)
    await until(lambda: at_end(projector, ends), task)
    seconds = time.perf_counter() - begin
    usage = meter.stop()
    applied = sum(p.counts.applied for p in projector.partitions.values())
    projector.stop()
    await task
    await runtime.stop()
    if whole and applied != sum(ends.values()):
        raise RuntimeError(f"{applied} of {sum(ends.values())} events were applied")
    answer(applied / seconds, usage=usage, events=applied, seconds=round(seconds, 3))


if __name__ == "__main__":
    settings, groups, job = read_job()
    asyncio.run(run(settings, groups, job.get("whole", True)))
