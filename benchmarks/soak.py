"""Figure `soak`: half an hour of traffic, in which memory and lag must stay as they are.

A gateway and a worker serve several tenants' conversations with a small budget, so that every
window is full, and compacted again and again, after the warm-up (two fifths: until every window has
the 1,024 recent ids it holds at most). Over HTTP come single events and lists on a fixed schedule,
and reads of contexts. Every few seconds the processes' resident memory, Redis' and how far the
windows are behind the log are taken. The value is the worst growth: of the worker's, the gateway's
and Redis' memory, the mean of the last quarter over that of the first one after the warm-up. At the
end every window is folded from the log and compared. It takes half an hour, so it runs only when it
is named.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import psutil

from benchmarks.harness import Args, Measured, Result, Rounds, percentile, rounded, say
from benchmarks.support.flats import flats
from benchmarks.support.gateways import Gateway, prepare, served
from benchmarks.support.http import Caller
from benchmarks.support.meters import MIB
from benchmarks.support.stacks import running_stack
from projections.redis.store import RedisStore
from streams.control.control_topic import Control
from streams.log.kafka_log import KafkaLog
from streams.maintenance.verify import VerifyReport, verify
from streams.settings.settings import Settings

TENANTS = ("soak-a", "soak-b", "soak-c")
CONVERSATIONS = 60
"""Of each tenant."""
RATE = 300
"""Events a second of all tenants: half of them in lists of ten."""
READS = 20
WARM_UP = 0.4
"""Of the time: a conversation gets 1.7 events a second, so its window is full, the recent ids
included, after ten of thirty minutes.
"""
POLICY = {
    "working_budget": 3000,
    "keep_recent_tokens": 1500,
    "min_messages": 4,
    "summary_max_tokens": 300,
}


@dataclass(slots=True)
class Samples:
    """What was seen over time: MiB of the worker, the gateway and Redis, and records that the
    windows were behind.
    """

    worker: list[float] = field(default_factory=list)
    gateway: list[float] = field(default_factory=list)
    redis: list[float] = field(default_factory=list)
    lag: list[int] = field(default_factory=list)
    answers: dict[int, int] = field(default_factory=dict)

    def growth(self, values: list[float]) -> float:
        """The mean of the last quarter over that of the first, both after the warm-up."""
        steady = values[int(len(values) * WARM_UP) :]
        quarter = max(1, len(steady) // 4)
        return statistics.fmean(steady[-quarter:]) / statistics.fmean(steady[:quarter])


class Soak:
    """The worst growth of memory over half an hour of traffic."""

    name = "soak"
    goal = "memory grows by at most 5 %, lag stays bounded, no window differs after 30 minutes"
    only_named = True

    async def run(self, args: Args) -> Result:
        """Run once; the minutes are THREADFOLD_SOAK_MINUTES, 30 by default."""
        seconds = (
            20.0 if args.quick else float(os.environ.get("THREADFOLD_SOAK_MINUTES", "30")) * 60
        )
        with TemporaryDirectory() as folder, running_stack() as bench:
            policy = Path(folder) / "policy.json"
            policy.write_bytes(msgspec.json.encode(POLICY))
            settings = bench.settings(
                "soak", partitions=8, policy=str(policy), snapshot_events=2_000
            )
            keys = await prepare(settings, TENANTS)
            async with served(bench, settings, keys) as (gateway, worker):
                samples = Samples()
                await _load(gateway, list(keys.values()), worker, settings, seconds, samples)
                report = await _verified(settings)
        growth = {
            name: samples.growth(getattr(samples, name)) for name in ("worker", "gateway", "redis")
        }
        return _result(growth, samples, report, seconds, self.name)


def _result(
    growth: dict[str, float], samples: Samples, report: VerifyReport, seconds: float, name: str
) -> Result:
    rounds = Rounds(["ours"])
    rounds.taken["ours"].append(Measured(max(growth.values())))
    more = {
        "growth": {name: rounded(value) for name, value in growth.items()},
        "mib": {n: [rounded(v) for v in _thinned(getattr(samples, n))] for n in growth},
        "lag": {
            "p50": percentile(samples.lag, 0.5),
            "p99": percentile(samples.lag, 0.99),
            "last": samples.lag[-1],
            "max": max(samples.lag),
        },
        "answers": {str(status): n for status, n in sorted(samples.answers.items())},
        "verified": report.verified,
        "differing": len(report.differing),
    }
    parameters = {
        "minutes": rounded(seconds / 60),
        "events_s": RATE,
        "reads_s": READS,
        "conversations": CONVERSATIONS * len(TENANTS),
    }
    return rounds.result(
        name,
        "last quarter's memory over the first's (worst)",
        parameters,
        better="lower",
        more=more,
    )


def _thinned(values: list[float], most: int = 30) -> list[float]:
    return values[:: max(1, len(values) // most)]


async def _load(
    gateway: Gateway,
    keys: list[str],
    worker: int,
    settings: Settings,
    seconds: float,
    samples: Samples,
) -> None:
    """Send and read on a schedule until the time is over, and look at the processes meanwhile."""
    end = time.monotonic() + seconds
    singles = [
        _sender(gateway, key, 1, RATE / 2 / len(keys), i, end, samples)
        for i, key in enumerate(keys)
    ]
    lists = [
        _sender(gateway, key, 10, RATE / 2 / len(keys), 100 + i, end, samples)
        for i, key in enumerate(keys)
    ]
    readers = [_reader(gateway, key, READS / len(keys), end, samples) for key in keys]
    await asyncio.gather(
        *singles, *lists, *readers, _watch(gateway, worker, settings, end, samples)
    )


async def _sender(
    gateway: Gateway, key: str, size: int, rate: float, seed: int, end: float, samples: Samples
) -> None:
    asker, rng, texts = (
        Caller(gateway.address, key),
        random.Random(seed),
        flats(2_000, seed),
    )
    number = 0
    begin = time.monotonic()
    while (now := time.monotonic()) < end:
        if (early := begin + number * size / rate - now) > 0:
            await asyncio.sleep(early)
        name = f"talk-{rng.randrange(CONVERSATIONS)}"
        body = [texts[(number * size + i) % len(texts)] for i in range(size)]
        await _ask(asker, samples, "POST", f"/v1/conversations/{name}/events", body)
        number += 1
    asker.close()


async def _reader(gateway: Gateway, key: str, rate: float, end: float, samples: Samples) -> None:
    asker, rng = Caller(gateway.address, key), random.Random(key)
    while time.monotonic() < end:
        await _ask(
            asker, samples, "GET", f"/v1/conversations/talk-{rng.randrange(CONVERSATIONS)}/context"
        )
        await asyncio.sleep(1 / rate)
    asker.close()


async def _ask(asker: Caller, samples: Samples, method: str, path: str, body: Any = None) -> None:
    status, _ = await asker.ask(method, path, body)
    samples.answers[status] = samples.answers.get(status, 0) + 1


async def _watch(
    gateway: Gateway, worker: int, settings: Settings, end: float, samples: Samples
) -> None:
    log, store = (
        KafkaLog(settings, settings.partitions),
        RedisStore(settings.redis, settings.topic_prefix),
    )
    step = 5.0 if end - time.monotonic() > 60 else 0.5
    processes = [(samples.worker, [worker]), (samples.gateway, gateway.pids)]
    reported = time.monotonic()
    try:
        while time.monotonic() < end:
            for values, pids in processes:
                values.append(sum(psutil.Process(pid).memory_info().rss for pid in pids) / MIB)
            samples.redis.append((await store.ping())["used_memory"] / MIB)
            checkpoints = [await store.checkpoint(1, p) for p in range(settings.partitions)]
            ends = await log.end_offsets()
            samples.lag.append(
                sum(
                    ends[p] - 1 - (c.offset if c else -1)
                    for p, c in enumerate(checkpoints)
                    if ends[p]
                )
            )
            if time.monotonic() - reported > 120:
                reported = time.monotonic()
                now = [
                    round(values[-1]) for values in (samples.worker, samples.gateway, samples.redis)
                ]
                say(f"worker, gateway, Redis: {now} MiB, lag {samples.lag[-1]}")
            await asyncio.sleep(step)
    finally:
        await log.stop()
        await store.close()


async def _verified(settings: Settings) -> VerifyReport:
    """Compare every window with the log; the worker still runs."""
    control = await Control(settings).start()
    log, store = (
        KafkaLog(settings, settings.partitions),
        RedisStore(settings.redis, settings.topic_prefix),
    )
    try:
        generation = control.state.live_generation
        rules = control.state.rules(generation)
        return await verify(log, store, generation, rules)
    finally:
        await log.stop()
        await store.close()
        await control.stop()


FIGURE = Soak()
