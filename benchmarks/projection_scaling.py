"""Figure `projection_scaling`: one and two worker processes of one group on the same filled topic.

Counted is from the moment every process holds its share of the partitions (the group's rebalancing
is not) to the moment the last one is done; what was folded before does not count. CPU seconds of
the workers, Kafka and Redis and the idle rest are reported beside it, because workers, broker and
store share this machine's cores: where those end, so does the scaling.
"""

from __future__ import annotations

import asyncio
from functools import partial

import psutil

from benchmarks.harness import Args, Measured, Result, interleave
from benchmarks.projection import CONVERSATIONS, fresh_group
from benchmarks.support.children import answer_of, job_of, start_side
from benchmarks.support.meters import Meter
from benchmarks.support.stacks import Bench, filled_log, running_stack
from benchmarks.support.texts import Messages
from streams.settings.settings import Settings

PARTITIONS = 8
LIMIT = 600.0


class ProjectionScaling:
    """Events a second of two processes, beside one."""

    name = "projection_scaling"
    goal = "near-linear until the cores end"

    async def run(self, args: Args) -> Result:
        """Fill the topic once, then let one and two processes project it in turn."""
        events = 100_000 if args.quick else 600_000
        with running_stack() as bench:
            settings = bench.settings("scaling", partitions=PARTITIONS)
            async with filled_log(settings, Messages().records(0, events, CONVERSATIONS)):
                pass
            rounds = await interleave(
                {
                    "ours": partial(_workers, bench, settings, 2),
                    "one_process": partial(_workers, bench, settings, 1),
                },
                args.rounds(),
            )
        parameters = {"events": events, "conversations": CONVERSATIONS, "partitions": PARTITIONS}
        table = {
            name: {"events_s": round(taken[-1].value), **taken[-1].more}
            for name, taken in rounds.taken.items()
        }
        return rounds.result(self.name, "events/s (2 processes)", parameters, more={"table": table})


async def _workers(bench: Bench, settings: Settings, count: int) -> Measured:
    await bench.forget(settings)
    settings = fresh_group(settings)
    job = job_of(bench, settings, share=PARTITIONS // count)
    processes = [await start_side("projector_of_group", job) for _ in range(count)]
    try:
        async with asyncio.timeout(LIMIT):
            await asyncio.gather(*(_until_line(process, b"ready") for process in processes))
            meter, idle = Meter(bench.pids), psutil.cpu_times()
            await asyncio.gather(*(_until_line(process, b"done") for process in processes))
    except BaseException:
        for process in processes:
            process.kill()
        raise
    servers, idle_after = meter.stop(), psutil.cpu_times()
    answers = await asyncio.gather(
        *(answer_of("projector_of_group", process) for process in processes)
    )
    events, seconds = counted([answer["samples"] for answer in answers])
    usage = {
        f"worker_{i + 1}": answer["usage"]["process"] for i, answer in enumerate(answers)
    } | servers
    idle_cores = (idle_after.idle - idle.idle) / meter.seconds
    return Measured(
        events / seconds,
        usage,
        {"events": events, "seconds": round(seconds, 3), "idle_cores": round(idle_cores, 2)},
    )


async def _until_line(process: asyncio.subprocess.Process, word: bytes) -> None:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        if line.strip() == word:
            return
    raise RuntimeError(f"a worker ended before it was {word.decode()}")


def counted(samples: list[list[list[float]]]) -> tuple[int, float]:
    """Events folded by all, and seconds, from when the last process held its share to when the last
    was done.

    Args:
        samples: for each process pairs of a time and the events left to it then, first of them when
            it held its share.
    """
    begin = max(of_one[0][0] for of_one in samples)
    end = max(of_one[-1][0] for of_one in samples)
    left = sum(next(left for at, left in of_one if at >= begin) for of_one in samples)
    if not left:
        raise RuntimeError("one process was done before the other held its share: take more events")
    return int(left), end - begin


FIGURE = ProjectionScaling()
