"""Our side of `replay`: folding the log from zero, by the product's own functions.

``rebuild`` is ``streams.rebuild.rebuild.rebuild`` of a candidate generation beside a live one
(``threadfold rebuild --jobs N``); ``verify`` is ``streams.maintenance.verify.verify`` of every
conversation (``threadfold verify --deep``): it folds into windows in memory and compares them with
the store's at the end. The clock runs around the call; an earlier candidate's windows are dropped
before.
"""

from __future__ import annotations

import asyncio
import time

from benchmarks.support.children import answer, read_job
from benchmarks.support.meters import Meter
from streams.maintenance.verify import verify
from streams.rebuild.rebuild import rebuild
from streams.runtime.tune_gc import tune_gc
from streams.settings.settings import Settings
from streams.worker_parts import Runtime


async def run(settings: Settings, groups: dict[str, list[int]], how: str, jobs: int) -> None:
    """Fold once, and answer with events a second."""
    runtime = Runtime(settings)
    await runtime.start()
    tune_gc()
    log, control, store = runtime.log, runtime.control, runtime.store
    assert log is not None
    live = control.state.live_generation
    for number in control.state.generations:
        if number > live.number:
            await store.drop_generation(number, log.partitions)
    expected = sum((await log.end_offsets()).values())
    begin, meter = time.perf_counter(), Meter(groups)
    if how == "rebuild":
        events = (await rebuild(settings, control, log, store, jobs=jobs)).events
    else:
        report = await verify(log, store, live, control.state.rules(live))
        events = report.events
        if report.differing:
            raise RuntimeError(f"{len(report.differing)} windows differ from the log")
    seconds = time.perf_counter() - begin
    usage = meter.stop()
    await runtime.stop()
    if events != expected:
        raise RuntimeError(f"{events} of {expected} events were folded")
    answer(events / seconds, usage=usage, events=events, seconds=round(seconds, 3))


if __name__ == "__main__":
    settings, groups, job = read_job()
    asyncio.run(run(settings, groups, job["how"], job.get("jobs", 1)))
