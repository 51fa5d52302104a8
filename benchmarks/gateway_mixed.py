"""Figure `gateway_mixed`: p50 and p99 of every route, while several tenants use all of them at
once.

Four tenants with four callers each, one gateway, one worker. Each caller plays turns on a
conversation of its own and asks again as soon as it is answered
(``benchmarks.sides.mixed_tenants``): eight requests of a turn, then some of the other routes. So a
route's time holds its wait for all that the gateway does meanwhile. Routes that wait for the fold
(turns, `wait=applied`, `If-Match`, `after`) hold the way through the log and the worker. The value
is requests a second in all; there is no peer, and no goal but that every route is told.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

from benchmarks.harness import Args, Measured, Result, interleave, percentile, rounded
from benchmarks.support.children import run_side
from benchmarks.support.gateways import Gateway, prepare, served
from benchmarks.support.stacks import Bench, running_stack
from streams.settings.settings import Settings

TENANTS = ("acme", "globex", "initech", "umbrella")
CALLERS = 4
_names = itertools.count()


class GatewayMixed:
    """Requests a second of a mix of all routes, and each route's times."""

    name = "gateway_mixed"
    goal = "reported: p50 and p99 of every route"

    async def run(self, args: Args) -> Result:
        """Run the mix, with new conversations in every round."""
        seconds = 3.0 if args.quick else 20.0
        with running_stack() as bench:
            settings = bench.settings("mixed", partitions=8)
            keys = await prepare(settings, TENANTS)
            async with served(bench, settings, keys) as (gateway, worker):
                rounds = await interleave(
                    {"ours": partial(_mixed, bench, settings, gateway, worker, keys, seconds)},
                    args.rounds(),
                )
        pooled: dict[str, list[float]] = {}
        for measured in rounds.taken["ours"]:
            for route, times in measured.more["took"].items():
                pooled.setdefault(route, []).extend(times)
        routes = {
            route: [rounded(percentile(times, share)) for share in (0.5, 0.99)]
            for route, times in sorted(pooled.items())
        }
        more = {
            "routes": routes,
            "requests": {route: len(pooled[route]) for route in routes},
            "unit_of_routes": "ms: p50, p99",
        }
        parameters = {
            "tenants": len(TENANTS),
            "callers": CALLERS,
            "seconds": seconds,
            "partitions": 8,
        }
        return rounds.result(self.name, "requests/s", parameters, more=more)


async def _mixed(
    bench: Bench,
    settings: Settings,
    gateway: Gateway,
    worker: int,
    keys: dict[str, str],
    seconds: float,
) -> Measured:
    metered = Bench(bench.stack, {**bench.pids, "server": gateway.pids, "worker": [worker]})
    job: dict[str, Any] = {
        "address": gateway.address,
        "keys": keys,
        "callers": CALLERS,
        "talk": f"talk{next(_names)}",
    }
    return await run_side("mixed_tenants", metered, settings, seconds=seconds, **job)


FIGURE = GatewayMixed()
