"""Figure `gateway_noisy`: how far a tenant over its quota moves the p99 of another one, on one
gateway.

The quiet tenant's four connections append single events and read contexts, with a pause of 10 ms
between two requests. The noisy one may ask 50 times a second; its 200 connections ask again as soon
as they are answered, each second time with a list of 20 events. Alone and with noise take turns
within one run: between its turns the noisy tenant's process is frozen (SIGSTOP). The value is the
p99 of all rounds' requests with noise over that of all rounds' alone, of the route where that is
worse. The noisy process itself takes its part of the machine's cores, which is in the figure.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
from benchmarks.support.children import answer_of, job_of, run_side, start_side
from benchmarks.support.flats import flats
from benchmarks.support.gateways import Gateway, append_all, prepare, served
from benchmarks.support.stacks import Bench, running_stack
from streams.settings.quotas import Quota
from streams.settings.settings import Settings

QUIET, NOISY = "quiet", "noisy"
QUOTA = Quota(requests_per_second=50, tokens_per_minute=60_000, requests_burst=1)
NAMES = [f"quiet-{i}" for i in range(4)]
GROWN = 60
"""Events of each of the quiet tenant's conversations before the clock starts."""
CONNECTIONS = 200
PAUSE = 0.01
SETTLE = 0.5
ROUTES = ("append", "read")


class GatewayNoisy:
    """The worse of two routes' p99 beside a noisy tenant, over that without it."""

    name = "gateway_noisy"
    goal = "p99 at most 1.5 x that alone, on both routes"

    async def run(self, args: Args) -> Result:
        """Run both in turn; the noisy tenant begins with its first turn."""
        seconds = 1.5 if args.quick else 8.0
        with running_stack() as bench:
            settings = bench.settings("noisy", partitions=8)
            keys = await prepare(settings, {QUIET: None, NOISY: QUOTA})
            async with served(bench, settings, keys) as (gateway, _):
                await append_all(
                    settings, QUIET, [(name, flat) for name in NAMES for flat in flats(GROWN)]
                )
                quiet = partial(_quiet, bench, settings, gateway)
                await quiet(seconds / 2)
                async with _noise(bench, settings, gateway, keys[NOISY]) as noise:

                    async def beside() -> Measured:
                        async with noise.turn():
                            return await quiet(seconds)

                    rounds = await interleave(
                        {"ours": beside, "alone": partial(quiet, seconds)}, args.rounds(6)
                    )
        parameters = {
            "seconds": seconds,
            "connections": CONNECTIONS,
            "pause": PAUSE,
            "requests_per_second": QUOTA.requests_per_second,
        }
        return result_of(self.name, rounds, parameters, noise.answers)


async def _quiet(bench: Bench, settings: Settings, gateway: Gateway, seconds: float) -> Measured:
    """The quiet tenant for some seconds: the value is its p99 in ms, both routes together."""
    job: dict[str, Any] = {
        "address": gateway.address,
        "authorization": gateway.authorization,
        "names": NAMES,
        "pause": PAUSE,
        "routes": ROUTES,
    }
    measured = await run_side("quiet_tenant", bench, settings, seconds=seconds, **job)
    return Measured(
        percentile([ms for route in ROUTES for ms in measured.more["took"][route]], 0.99),
        more=measured.more,
    )


class Noise:
    """The noisy tenant's process, frozen but for its turns; ``answers`` (by status) once it has
    ended.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.answers: dict[str, int] = {}

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Let it go on, and freeze it again; a moment is given to what it has under way, before and
        after.
        """
        os.kill(self._pid, signal.SIGCONT)
        await asyncio.sleep(SETTLE)
        try:
            yield
        finally:
            os.kill(self._pid, signal.SIGSTOP)
            await asyncio.sleep(SETTLE)


@asynccontextmanager
async def _noise(
    bench: Bench, settings: Settings, gateway: Gateway, authorization: str
) -> AsyncIterator[Noise]:
    job = job_of(
        bench,
        settings,
        address=gateway.address,
        authorization=authorization,
        connections=CONNECTIONS,
    )
    process = await start_side("noisy_tenant", job)
    assert process.stdout is not None
    await process.stdout.readline()
    os.kill(process.pid, signal.SIGSTOP)
    noise = Noise(process.pid)
    try:
        yield noise
    finally:
        os.kill(process.pid, signal.SIGCONT)
        noise.answers = (await answer_of("noisy_tenant", process, 60))["answers"]


def result_of(
    figure: str, rounds: Rounds, parameters: dict[str, Any], answers: dict[str, int]
) -> Result:
    table: dict[str, Any] = {}
    spread: dict[str, list[float]] = {}
    for route in ROUTES:
        took = {
            name: [measured.more["took"][route] for measured in taken]
            for name, taken in rounds.taken.items()
        }
        pooled = {name: [ms for times in lists for ms in times] for name, lists in took.items()}
        by_round = [
            percentile(a, 0.99) / percentile(b, 0.99)
            for a, b in zip(took["ours"], took["alone"], strict=True)
        ]
        spread[route] = span_of(by_round)
        table[route] = {
            "p99_ratio": rounded(
                percentile(pooled["ours"], 0.99) / percentile(pooled["alone"], 0.99)
            ),
            **{
                f"{label}_ms_{word}": rounded(percentile(pooled[name], share))
                for name, label in (("ours", "with_noise"), ("alone", "alone"))
                for word, share in (("p50", 0.5), ("p99", 0.99))
            },
            "requests": {name: len(times) for name, times in pooled.items()},
        }
    ratios = {route: row["p99_ratio"] for route, row in table.items()}
    made = rounds.result(
        figure,
        "x of the p99 alone",
        parameters,
        better="lower",
        more={"table": table, "noisy_answers": answers},
    )
    peers = {
        f"{route}.{name}": table[route][f"{name}_ms_p99"]
        for route in ROUTES
        for name in ("with_noise", "alone")
    }
    return Result(
        figure,
        max(ratios.values()),
        made.unit,
        peers,
        ratios,
        {**made.conditions, "ratio_spread": spread},
    )


FIGURE = GatewayNoisy()
