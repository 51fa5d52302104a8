"""Figure `large_bodies`: what one tenant's large bodies cost another tenant, and the gateway's
memory.

The quiet tenant's four connections append single events and read contexts, with a pause of 10 ms
between two requests: alone, and beside a tenant that sends bodies of one kind one after another, on
the same gateway. The value is the most milliseconds that a kind adds to the p99 of either route.
``growth`` is the most memory that the gateway and its processes had above what they had before the
kind, over the size of a body. The processes that read large bodies are started by a first body that
is not measured; ``readers_mib`` is what they add, whatever the body.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import psutil

from benchmarks.gateway_noisy import NAMES, PAUSE, QUIET, ROUTES
from benchmarks.harness import Args, Measured, Result, Rounds, percentile, rounded, say
from benchmarks.sides.large_bodies import KINDS
from benchmarks.support.children import run_side
from benchmarks.support.flats import flats
from benchmarks.support.gateways import Gateway, append_all, prepare, served
from benchmarks.support.stacks import Bench, running_stack
from streams.settings.settings import Settings

LARGE = "large"
GROWN = 60
SIZES = {"long_texts": 30 << 20}
SIZE = 56 << 20
LOOKS = 0.01


class LargeBodies:
    """The milliseconds that large bodies add to another tenant's p99."""

    name = "large_bodies"
    goal = "others' p99 at most 100 ms more; the gateway grows by at most 3 x the body"

    async def run(self, args: Args) -> Result:
        """Alone first, then beside each kind."""
        seconds = 2.0 if args.quick else 10.0
        share = 16 if args.quick else 1
        rounds = Rounds(["ours"])
        with running_stack() as bench:
            settings = bench.settings("large", partitions=8)
            keys = await prepare(settings, [QUIET, LARGE])
            async with served(bench, settings, keys) as (gateway, _):
                await append_all(
                    settings, QUIET, [(name, flat) for name in NAMES for flat in flats(GROWN)]
                )
                idle = memory_of(gateway)
                await _sent(bench, settings, gateway, keys[LARGE], "empty_lists", 4 << 20, 1.0)
                readers = (memory_of(gateway) - idle) / (1 << 20)
                await quiet_p99(bench, settings, gateway, seconds / 2)
                for _ in range(args.rounds()):
                    table = await _round(bench, settings, gateway, keys[LARGE], seconds, share)
                    rounds.taken["ours"].append(
                        Measured(max(row["added_ms"] for row in table.values()), more=table)
                    )
        tables = [measured.more for measured in rounds.taken["ours"]]
        return rounds.result(
            self.name,
            "ms",
            {"seconds": seconds, "bytes": SIZE // share},
            better="lower",
            more={"readers_mib": rounded(readers), "tables": tables},
        )


async def _round(
    bench: Bench, settings: Settings, gateway: Gateway, key: str, seconds: float, share: int
) -> dict[str, Any]:
    alone = await quiet_p99(bench, settings, gateway, seconds)
    table: dict[str, Any] = {}
    for kind in KINDS:
        size = SIZES.get(kind, SIZE) // share
        meter = MemoryMeter(gateway)
        sending = _sent(bench, settings, gateway, key, kind, size, seconds + 1)
        sent = asyncio.create_task(sending)
        beside = await quiet_p99(bench, settings, gateway, seconds)
        more = (await sent).more
        table[kind] = {
            "added_ms": rounded(max(beside[route] - alone[route] for route in ROUTES)),
            "p99_ms": beside,
            "alone_ms": alone,
            "growth": rounded(await meter.stop() / more["bytes"]),
            **more,
        }
        say(f"{kind}: {table[kind]}")
    return table


async def _sent(
    bench: Bench,
    settings: Settings,
    gateway: Gateway,
    key: str,
    kind: str,
    size: int,
    seconds: float,
) -> Measured:
    job = {"address": gateway.address, "authorization": key, "kind": kind, "bytes": size}
    return await run_side("large_bodies", bench, settings, seconds=seconds, **job)


def memory_of(gateway: Gateway) -> int:
    """The resident bytes of a gateway and its processes."""
    total = 0
    for pid in gateway.pids:
        with suppress(psutil.NoSuchProcess):
            total += psutil.Process(pid).memory_info().rss
    return total


async def quiet_p99(
    bench: Bench, settings: Settings, gateway: Gateway, seconds: float
) -> dict[str, float]:
    """The quiet tenant's p99 by route, in ms."""
    measured = await run_side(
        "quiet_tenant",
        bench,
        settings,
        seconds=seconds,
        address=gateway.address,
        authorization=gateway.authorization,
        names=NAMES,
        pause=PAUSE,
        routes=ROUTES,
    )
    took = measured.more["took"]
    return {route: rounded(percentile(took[route], 0.99)) for route in ROUTES}


class MemoryMeter:
    """The most memory of a gateway and its processes, looked at every hundredth of a second."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._first = self._most = memory_of(gateway)
        self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while True:
            self._most = max(self._most, memory_of(self._gateway))
            await asyncio.sleep(LOOKS)

    async def stop(self) -> int:
        """End, and return the most bytes above the first look."""
        self._looking.cancel()
        await asyncio.gather(self._looking, return_exceptions=True)
        return self._most - self._first


FIGURE = LargeBodies()
