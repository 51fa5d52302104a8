"""Figure `gateway_server`: the same gateway on several servers: what docs/decisions/0018 was
decided by.

``ours`` is the gateway as `threadfold gateway` runs it: uvicorn with httptools and uvloop.
``uvicorn_h11_asyncio`` is what it runs on where those two are not installed; ``granian`` has one
worker on uvloop, HTTP/1 alone and no log, all else as it comes. All three are the same application
on the same topics and windows, one of them asked at a time, by 32 connections: single appends, and
reads of windows of about 1,700 tokens. A worker folds what comes.
"""

from __future__ import annotations

import statistics
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import Args, Result, Rounds, interleave, rounded, span_of
from benchmarks.support import single
from benchmarks.support.gateways import prepare, running_server, running_worker
from benchmarks.support.single import CALLERS
from benchmarks.support.stacks import running_stack
from benchmarks.support.texts import TENANT

SERVERS = {"ours": "uvicorn", "uvicorn_h11_asyncio": "uvicorn_h11_asyncio", "granian": "granian"}
ROUTES = ("append", "read")


class GatewayServer:
    """Requests a second of two routes on each server."""

    name = "gateway_server"
    goal = "reported: what the server is chosen by"

    async def run(self, args: Args) -> Result:
        """Run both routes of all servers in turn."""
        seconds = 0.6 if args.quick else 4.0
        with running_stack() as bench, TemporaryDirectory() as folder:
            settings = bench.settings("server", partitions=8)
            key = (await prepare(settings))[TENANT]
            async with AsyncExitStack() as stack:
                worker = await stack.enter_async_context(running_worker(bench, settings))
                servers = {
                    name: await stack.enter_async_context(
                        running_server(bench, settings, key, server=server)
                    )
                    for name, server in SERVERS.items()
                }
                await single.grow(settings)
                made = single.made(Path(folder), key)
                sides = {
                    f"{route}.{name}": partial(
                        made.measure, bench, settings, server, route, seconds, worker
                    )
                    for route in ROUTES
                    for name, server in servers.items()
                }
                rounds = await interleave(sides, args.rounds())
        return result_of(
            self.name, rounds, {"callers": CALLERS, "seconds": seconds, "partitions": 8}
        )


def result_of(figure: str, rounds: Rounds, parameters: dict[str, Any]) -> Result:
    """``ours`` is appends a second; ratios are ours over each other server, by route."""
    table: dict[str, Any] = {}
    peers: dict[str, float] = {}
    ratios: dict[str, float] = {}
    spread: dict[str, list[float]] = {}
    of_route = {route: Rounds(list(SERVERS)) for route in ROUTES}
    for route, own in of_route.items():
        own.taken = {name: rounds.taken[f"{route}.{name}"] for name in SERVERS}
        table[route] = {
            name: {"requests_s": rounded(own.median(name)), **taken[-1].more}
            for name, taken in own.taken.items()
        }
        for name in [name for name in SERVERS if name != "ours"]:
            peers[f"{route}.{name}"] = rounded(own.median(name))
            ratios[f"{route}.{name}"] = rounded(statistics.median(own.ratios(name)))
            spread[f"{route}.{name}"] = span_of(own.ratios(name))
    base = of_route["append"].result(figure, "appends/s", parameters, more={"table": table})
    return Result(
        figure, base.ours, base.unit, peers, ratios, {**base.conditions, "ratio_spread": spread}
    )


FIGURE = GatewayServer()
