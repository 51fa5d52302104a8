"""Figure `append_applied`: appends that wait until the window holds them, and reads of one event,
over HTTP on windows of 26,000 tokens.

One gateway process and one worker. ``ours`` is ``POST …/events?wait=applied`` of short messages by
16 connections of another process, each of which asks again once it is answered. The table has the
same by one connection, and ``GET …/events/{position}`` of recent messages by one and by 16. The
peer ``append`` is the same append without the wait: the ratio is what the wait costs.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Args, Measured, Result, interleave
from benchmarks.support import single
from benchmarks.support.children import run_side
from benchmarks.support.gateways import Gateway, prepare, running_server, running_worker
from benchmarks.support.http import keep
from benchmarks.support.stacks import Bench, running_stack
from benchmarks.support.texts import TENANT

if TYPE_CHECKING:
    from streams.settings.settings import Settings

MANY = 16
"""Connections of the sides with several callers."""
EVENTS = 20
"""Newest events of each conversation that are read one by one."""
SIDES = {
    "ours": ("applied", MANY),
    "append": ("append", MANY),
    "applied_1": ("applied", 1),
    "event": ("event", MANY),
    "event_1": ("event", 1),
}
"""Route and connections of each side."""


class AppendApplied:
    """Appends a second that are answered once they are in the window."""

    name = "append_applied"
    goal = "reported: what a caller waits for its own append to be in the window"

    async def run(self, args: Args) -> Result:
        """Measure all routes in turn against one gateway."""
        seconds = 0.6 if args.quick else 4.0
        with running_stack() as bench, TemporaryDirectory() as folder:
            settings = bench.settings("applied", partitions=8)
            authorization = (await prepare(settings))[TENANT]
            async with AsyncExitStack() as stack:
                worker = await stack.enter_async_context(running_worker(bench, settings))
                gateway = await stack.enter_async_context(
                    running_server(bench, settings, authorization)
                )
                await single.grow(settings)
                files = await asyncio.to_thread(_requests, Path(folder), gateway)
                metered = Bench(
                    bench.stack, {**bench.pids, "server": gateway.pids, "worker": [worker]}
                )
                sides = {
                    name: partial(_measure, metered, settings, gateway, seconds, files, *side)
                    for name, side in SIDES.items()
                }
                rounds = await interleave(sides, args.rounds())
        table = {
            name: [_row(one, seconds) for one in taken] for name, taken in rounds.taken.items()
        }
        rounds.taken = {name: rounds.taken[name] for name in ("ours", "append")}
        parameters = {"seconds": seconds, "partitions": 8, "callers": MANY}
        return rounds.result(self.name, "appends/s", parameters, more={"table": table})


def _row(one: Measured, seconds: float) -> dict[str, float]:
    """Requests a second, what each of them took, and the gateway's CPU time for each."""
    cpu = one.usage["server"]["cpu_s"] * 1000 / (one.value * seconds)
    return {"requests_s": round(one.value), "gateway_cpu_ms": round(cpu, 2), **one.more}


async def _measure(
    bench: Bench,
    settings: Settings,
    gateway: Gateway,
    seconds: float,
    files: dict[str, str],
    route: str,
    callers: int,
) -> Measured:
    return await run_side(
        "http_load",
        bench,
        settings,
        address=gateway.address,
        callers=callers,
        seconds=seconds,
        status=202 if route == "append" else 200,
        requests=files[route],
    )


def _requests(folder: Path, gateway: Gateway) -> dict[str, str]:
    """Files with the requests of each route."""
    own = {"Authorization": gateway.authorization}
    posted = {**own, "Content-Type": "application/json"}
    body = json.dumps({"type": "message", "role": "user", "content": "And then?"})
    paths = [f"/v1/conversations/{name}" for name in single.names_of("read_long")]
    newest = [_positions(gateway, path) for path in paths]
    made: dict[str, list[tuple[str, str, dict[str, str], str]]] = {
        "applied": [("POST", f"{path}/events?wait=applied", posted, body) for path in paths],
        "append": [("POST", f"{path}/events", posted, body) for path in paths],
        "event": [
            ("GET", f"{path}/events/{positions[i]}", own, "")
            for i in range(EVENTS)
            for path, positions in zip(paths, newest, strict=True)
        ],
    }
    return {route: keep(folder / f"{route}.json", asked) for route, asked in made.items()}


def _positions(gateway: Gateway, path: str) -> list[str]:
    request = urllib.request.Request(
        f"http://{gateway.address}{path}/history?limit={EVENTS}",
        headers={"Authorization": gateway.authorization},
    )
    with urllib.request.urlopen(request) as answer:
        page: dict[str, Any] = json.load(answer)
    return [event["position"] for event in page["events"]]


FIGURE = AppendApplied()
