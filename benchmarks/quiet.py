"""Figure `quiet`: what a quiet conversation waits for its own append beside long conversations that
are being compacted.

One gateway, one worker, default settings and policy. A tenant's 60 conversations of a real agent
have full windows (340 messages) and go on at 600 events a second over HTTP, in lists of four, so
that each is due for a summary of 10,000 tokens about every eleven seconds. Another tenant's single
conversation appends a message, waits until its window holds it (``?wait=applied``), pauses 50 ms,
and so on, over one connection. Beside and alone take turns within one run; between them all
summaries are made. The value is the p99 of all rounds' requests beside the load over that of all
rounds' alone. Everything runs on the same two cores, the load's own process included.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from benchmarks.harness import (
    Args,
    Measured,
    Result,
    Rounds,
    interleave,
    percentile,
    rounded,
    span_of,
)
from benchmarks.support.agent_talks import AgentRecords, source
from benchmarks.support.awaited import Awaited, Family, watched
from benchmarks.support.children import answer_of, job_of, run_side, start_side
from benchmarks.support.gateways import Gateway, prepare, served
from benchmarks.support.stacks import Bench, filled_log, running_stack
from benchmarks.support.texts import TENANT
from streams.settings.settings import Settings

QUIET = "quiet"
CONVERSATIONS, GROWN = 60, 340
RATE, LIST = 600, 4
PAUSE = 0.05
WARM_UP = 4.0
SHARES = {"p50": 0.5, "p99": 0.99}


class Quiet:
    """The p99 of an append that waits, beside compaction, over that alone."""

    name = "quiet"
    goal = "p50 at most 1.5 x alone, p99 at most 2 x"

    async def run(self, args: Args) -> Result:
        """Grow the others' conversations, and take both sides in turn."""
        seconds = 4.0 if args.quick else 30.0
        with running_stack() as bench:
            settings = bench.settings("quiet")
            async with filled_log(settings, AgentRecords().all(range(CONVERSATIONS), GROWN)):
                pass
            keys = await prepare(settings, [QUIET, TENANT])
            async with (
                served(bench, settings, keys) as (gateway, worker),
                watched(settings) as awaited,
                Family(worker).sampled() as family,
            ):
                await awaited.until_done()
                alone = partial(_quiet, bench, settings, gateway, seconds)
                await alone()
                load = partial(
                    _load, bench, settings, gateway.address, keys[TENANT], awaited, alone
                )
                rounds = await interleave({"ours": load, "alone": alone}, args.rounds())
                usage = family.usage()
        parameters = {
            "seconds": seconds,
            "rate": RATE,
            "list": LIST,
            "conversations": CONVERSATIONS,
            "pause": PAUSE,
            "texts": source(),
        }
        return _result(self.name, rounds, parameters, usage)


async def _quiet(bench: Bench, settings: Settings, gateway: Gateway, seconds: float) -> Measured:
    """The quiet conversation for some seconds: the value is its p99 in ms."""
    job: dict[str, Any] = {
        "address": gateway.address,
        "authorization": gateway.authorization,
        "names": ["quiet-0"],
        "pause": PAUSE,
        "routes": ["applied"],
    }
    measured = await run_side("quiet_tenant", bench, settings, seconds=seconds, **job)
    took = measured.more["took"]["applied"]
    return Measured(percentile(took, 0.99), more={"took": took})


async def _load(
    bench: Bench, settings: Settings, address: str, authorization: str, awaited: Awaited, quiet: Any
) -> Measured:
    """The quiet conversation while the others go on; afterwards their summaries are waited for."""
    before = await awaited.accepted()
    job = job_of(
        bench,
        settings,
        address=address,
        authorization=authorization,
        conversations=CONVERSATIONS,
        messages=GROWN,
        rate=RATE,
        size=LIST,
    )
    process = await start_side("agent_load", job)
    assert process.stdout is not None
    await process.stdout.readline()
    await asyncio.sleep(WARM_UP)
    measured = await quiet()
    made, due = await awaited.accepted() - before, await awaited.due()
    load = await answer_of("agent_load", process, 60)
    await awaited.until_done()
    more = {
        "load_events_s": rounded(load["value"]),
        "load_answers": load["answers"],
        "summaries": made,
        "due_at_end": due,
    }
    return Measured(measured.value, more={**measured.more, **more})


def _result(
    figure: str, rounds: Rounds, parameters: dict[str, Any], worker: dict[str, float]
) -> Result:
    pooled = {
        name: [ms for one in taken for ms in one.more["took"]]
        for name, taken in rounds.taken.items()
    }
    ratios = {
        word: percentile(pooled["ours"], share) / percentile(pooled["alone"], share)
        for word, share in SHARES.items()
    }
    spread = {
        word: span_of(
            [
                percentile(a.more["took"], share) / percentile(b.more["took"], share)
                for a, b in zip(rounds.taken["ours"], rounds.taken["alone"], strict=True)
            ]
        )
        for word, share in SHARES.items()
    }
    peers = {
        f"{name}_{word}_ms": rounded(percentile(pooled[side], share))
        for name, side in (("beside", "ours"), ("alone", "alone"))
        for word, share in SHARES.items()
    }
    table = {
        "requests": {name: len(times) for name, times in pooled.items()},
        "max_ms": {name: rounded(max(times)) for name, times in pooled.items()},
        "load": [{k: v for k, v in m.more.items() if k != "took"} for m in rounds.taken["ours"]],
        "worker": worker,
    }
    made = rounds.result(
        figure, "x of the p99 alone", parameters, better="lower", more={"table": table}
    )
    return Result(
        figure,
        rounded(ratios["p99"]),
        made.unit,
        peers,
        {word: rounded(ratio) for word, ratio in ratios.items()},
        {**made.conditions, "ratio_spread": spread},
    )


FIGURE = Quiet()
