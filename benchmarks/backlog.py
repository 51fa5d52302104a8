"""Figure `backlog`: 1,000 windows that are due for a summary at once, until none is.

Conversations of a real agent (400 messages, 35,000 tokens) are folded by a projector alone, with
the default policy, so that each is due for a summary of 20,000 tokens. Then a worker is started:
``ours`` is summaries a second, from the first one accepted to the last. The peers have half and a
quarter of the backlog; ratios near 1 say that the time is linear in it. The table has the memory
of the worker with its children.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from benchmarks.harness import Args, Measured, Result, interleave, rounded
from benchmarks.support.agent_talks import AgentRecords, source
from benchmarks.support.awaited import Awaited, Family, watched
from benchmarks.support.due import fold_without_compactor
from benchmarks.support.gateways import running_worker
from benchmarks.support.stacks import Bench, running_stack

DUE = 1_000
MESSAGES = 400
LOOK = 0.02


class Backlog:
    """Summaries a second of a backlog, by its size."""

    name = "backlog"
    goal = "the same rate at 250, 500 and 1,000 due, and the same memory"

    async def run(self, args: Args) -> Result:
        """Each size on topics and a worker of its own, in turn."""
        due = 40 if args.quick else DUE
        sizes = {"ours": due, "half": due // 2, "quarter": due // 4}
        with running_stack() as bench:
            rounds = await interleave(
                {name: partial(_round, bench, size) for name, size in sizes.items()},
                args.rounds(),
            )
        table = {
            str(sizes[name]): [dict(one.more) for one in taken]
            for name, taken in rounds.taken.items()
        }
        parameters = {"due": due, "messages": MESSAGES, "texts": source()}
        return rounds.result(self.name, "summaries/s", parameters, more={"table": table})


_rounds = iter(range(10**9))


async def _round(bench: Bench, conversations: int) -> Measured:
    bench.flush()
    settings = bench.settings(f"backlog{next(_rounds)}")
    records = AgentRecords().all(range(conversations), MESSAGES)
    await fold_without_compactor(bench, settings, records)
    async with watched(settings) as awaited:
        due = await awaited.due()
        started = time.perf_counter()
        async with running_worker(bench, settings) as pid, Family(pid).sampled() as family:
            first = await _first(awaited)
            begin = time.perf_counter()
            await awaited.until_done()
            end = time.perf_counter()
            made = await awaited.accepted()
            more = {
                "due": due,
                "summaries": made,
                "seconds": rounded(end - begin),
                "seconds_from_start": rounded(end - started),
                **family.usage(),
            }
    return Measured((made - first) / (end - begin), more=more)


async def _first(awaited: Awaited) -> int:
    """Wait for the first summaries; returns how many there are."""
    while not (made := await awaited.accepted()):  # noqa: ASYNC110 (another process)
        await asyncio.sleep(LOOK)
    return made


FIGURE = Backlog()
