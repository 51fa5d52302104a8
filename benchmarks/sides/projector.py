"""Our side of `projection`: the worker's projector (``streams.worker.Runtime``) catching up with a filled topic, into Redis.

The clock runs from the assignment of the first partition to the last checkpoint at its partition's end: reading checkpoints, fencing and
loading are in it. The compactor does not run; compaction requests are sent as always.
"""

from __future__ import annotations

import asyncio
import time

from benchmarks.support.children import answer, read_job
from benchmarks.support.meters import Meter
from streams.projector import Projector
from streams.settings import Settings
from streams.worker import Runtime

POLL = 0.01


def at_end(projector: Projector, ends: dict[int, int]) -> bool:
    """Whether all partitions are this projector's, folded to their ends, and none heals."""
    if len(projector.partitions) < len(ends):
        return False
    return all(p.checkpoint.offset >= ends[n] - 1 and not p.checkpoint.healing for n, p in projector.partitions.items())


async def run(settings: Settings, groups: dict[str, list[int]]) -> None:
    """Catch up, and answer with events a second."""
    runtime = Runtime(settings)
    await runtime.start()
    projector, log = runtime.projector, runtime.log
    assert projector is not None and log is not None
    ends = await log.ends()
    task = asyncio.create_task(projector.run())
    while not projector.partitions:
        await asyncio.sleep(POLL / 10)
    begin, meter = time.perf_counter(), Meter(groups)
    while not at_end(projector, ends):
        if task.done():
            raise RuntimeError("the projector ended before it was done") from task.exception()
        await asyncio.sleep(POLL)
    seconds = time.perf_counter() - begin
    usage = meter.stop()
    counts = [p.counts for p in projector.partitions.values()]
    applied = sum(c.applied for c in counts)
    projector.stop()
    await task
    await runtime.stop()
    if applied != sum(ends.values()):
        raise RuntimeError(f"{applied} of {sum(ends.values())} events were applied")
    answer(applied / seconds, usage=usage, events=applied, seconds=round(seconds, 3))


if __name__ == "__main__":
    settings, groups, _ = read_job()
    asyncio.run(run(settings, groups))
