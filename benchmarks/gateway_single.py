"""Figure `gateway_single`: single appends and context reads over HTTP, beside bare routes on the
same server.

Our side is one gateway process; a worker folds what comes, whoever appended it. ``bare`` is a
FastAPI application under the same server with the same settings: its append sends aiokafka a record
of as many bytes and waits for all in-sync replicas, its read gets the document's bytes from Redis
in one round trip (``benchmarks.sides.bare_routes``). It is the goal's peer, because the goal says
*moves the same bytes*: a route without Kafka and Redis moves none of them. Told beside it:
``bare_starlette``, the same without FastAPI's own work, and ``no_io``, a FastAPI route that reads
the body and answers as many bytes out of its memory. Thirty-two connections of one other process
each ask again once they are answered. ``read`` is of windows of about 1,700 tokens, ``read_long``
of 26,000.
"""

from __future__ import annotations

import json
import statistics
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import redis.asyncio as aredis

from benchmarks.harness import Args, Measured, Result, Rounds, interleave, rounded
from benchmarks.support import single
from benchmarks.support.gateways import Gateway, prepare, running_server, running_worker
from benchmarks.support.http import Caller
from benchmarks.support.single import CALLERS, LENGTHS, ROUTES, Single
from benchmarks.support.stacks import Bench, running_stack
from benchmarks.support.texts import TENANT, conversation
from streams.settings.settings import Settings

PEER = "bare"
TOLD = ("bare_starlette", "no_io")
TIMES = 15
"""Records that a bare side has ready of each text."""


class GatewaySingle:
    """Requests a second of the two routes that every turn calls."""

    name = "gateway_single"
    goal = "appends and reads at least 0.7 of bare"

    async def run(self, args: Args) -> Result:
        """Run every route of every side in turn."""
        seconds = 0.6 if args.quick else 4.0
        with running_stack() as bench, TemporaryDirectory() as folder:
            settings = bench.settings("single", partitions=8)
            keys = await prepare(settings)
            async with AsyncExitStack() as stack:
                worker = await stack.enter_async_context(running_worker(bench, settings))
                ours = await stack.enter_async_context(
                    running_server(bench, settings, keys[TENANT])
                )
                await single.grow(settings)
                made = single.made(Path(folder), keys[TENANT])
                prefix = f"{settings.topic_prefix}.bare:"
                answer = await _answers(settings, ours, prefix)
                servers = {"ours": ours}
                for how in (PEER, *TOLD):
                    job: dict[str, Any] = {
                        "how": how,
                        "texts": made.texts,
                        "answer": answer,
                        "prefix": prefix,
                        "times": TIMES,
                    }
                    bare = running_server(bench, settings, keys[TENANT], "bare_routes", **job)
                    servers[how] = await stack.enter_async_context(bare)
                rounds = await _measured(
                    bench, settings, made, servers, seconds, worker, args.rounds()
                )
        parameters = {
            "callers": CALLERS,
            "seconds": seconds,
            "partitions": 8,
            "lengths": LENGTHS,
            "conversations": single.APPENDED_TO,
        }
        return result_of(self.name, rounds, parameters)


async def _measured(
    bench: Bench,
    settings: Settings,
    made: Single,
    servers: dict[str, Gateway],
    seconds: float,
    worker: int,
    rounds: int,
) -> Rounds:
    sides = {
        f"{route}.{name}": partial(made.measure, bench, settings, server, route, seconds, worker)
        for route in ROUTES
        for name, server in servers.items()
    }
    return await interleave(sides, rounds)


async def _answers(settings: Settings, ours: Gateway, prefix: str) -> int:
    """Put the documents of all conversations that are read into Redis as they are now; returns the
    bytes of an append's answer.
    """
    asker = Caller(ours.address, ours.authorization)
    client = aredis.Redis.from_url(settings.redis)
    try:
        for route in LENGTHS:
            for name in single.names_of(route):
                status, document = await asker.ask("GET", f"/v1/conversations/{name}/context")
                if status != 200 or json.loads(document)["count"] != LENGTHS[route][0]:
                    raise RuntimeError(
                        f"the context of {name} is not what was appended: {status}"
                        f" {document[:200]!r}"
                    )
                await client.set(prefix + name, document)
        name = conversation(9_999_999).conversation
        status, answer = await asker.ask(
            "POST",
            f"/v1/conversations/{name}/events",
            {"type": "message", "role": "user", "content": "Hi"},
        )
        if status != 202:
            raise RuntimeError(f"the gateway answered an append with {status}: {answer[:200]!r}")
        return len(answer)
    finally:
        asker.close()
        await client.aclose()


def result_of(figure: str, rounds: Rounds, parameters: dict[str, Any]) -> Result:
    """One result of all routes: ``ours`` is appends a second, ratios are by route, against ``bare``
    alone; all else stands in the table.
    """
    of_route = {route: Rounds(["ours", PEER, *TOLD]) for route in ROUTES}
    for route, own in of_route.items():
        own.taken = {name: rounds.taken[f"{route}.{name}"] for name in own.taken}
    ratios = {f"{route}.{PEER}": own.ratios(PEER) for route, own in of_route.items()}
    base = of_route["append"].result(
        figure,
        "appends/s",
        parameters,
        more={"table": {r: _row(own) for r, own in of_route.items()}},
    )
    conditions = {
        **base.conditions,
        "ratio_spread": {
            name: [rounded(min(values)), rounded(max(values))] for name, values in ratios.items()
        },
        "usage": {
            f"{r}.{name}": dict(taken[-1].usage)
            for r, own in of_route.items()
            for name, taken in own.taken.items()
        },
    }
    peers = {f"{route}.{PEER}": rounded(own.median(PEER)) for route, own in of_route.items()}
    return Result(
        figure,
        base.ours,
        base.unit,
        peers,
        {name: rounded(statistics.median(v)) for name, v in ratios.items()},
        conditions,
    )


def _row(own: Rounds) -> dict[str, Any]:
    """Of each side of a route: requests a second, p50 and p99 (ms), the server's processor time a
    request, and ours over it; medians.
    """

    def middle(taken: list[Measured], name: str) -> float:
        return rounded(statistics.median(one.more[name] for one in taken))

    return {
        name: {
            "requests_s": rounded(own.median(name)),
            "ms_p50": middle(taken, "ms_p50"),
            "ms_p99": middle(taken, "ms_p99"),
            "server_us": rounded(
                statistics.median(one.usage["server"]["cores"] / one.value * 1e6 for one in taken)
            ),
            **(
                {}
                if name == "ours"
                else {"ours_over_it": rounded(statistics.median(own.ratios(name)))}
            ),
        }
        for name, taken in own.taken.items()
    }


FIGURE = GatewaySingle()
