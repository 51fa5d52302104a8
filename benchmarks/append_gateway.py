"""Figure `append_gateway`: acknowledged events a second over HTTP, in lists, tokens counted.

One gateway process, as `threadfold gateway` runs it, and eight callers in another process that post
lists of 500 to ``/v1/conversations/{c}/events``, each list to another conversation. The other
shapes of the same load are told beside it: lists of 100, and lists for several conversations at
``/v1/events``. There is no peer: nothing else takes such lists.
"""

from __future__ import annotations

from functools import partial

from benchmarks.harness import Args, Measured, Result, interleave, rounded
from benchmarks.support.children import run_side
from benchmarks.support.gateways import Gateway, running_gateway
from benchmarks.support.stacks import Bench, running_stack
from streams.settings.settings import Settings

CALLERS = 8
SHAPES = {
    "ours": ("/v1/conversations/{}/events", 500, 1),
    "lists_of_100": ("/v1/conversations/{}/events", 100, 1),
    "several_500": ("/v1/events", 500, 50),
    "several_100": ("/v1/events", 100, 10),
}
"""Path, events a list, conversations a list."""


class AppendGateway:
    """Events a second acknowledged to callers over HTTP."""

    name = "append_gateway"
    goal = "at least 15,000 events/s in lists"

    async def run(self, args: Args) -> Result:
        """Run all shapes in turn against one gateway."""
        events = 20_000 if args.quick else 100_000
        with running_stack() as bench:
            settings = bench.settings("gateway", partitions=8)
            async with running_gateway(bench, settings) as gateway:
                sides = {
                    name: partial(_shape, bench, settings, gateway, name, events) for name in SHAPES
                }
                rounds = await interleave(sides, args.rounds())
        shapes = {
            name: {
                "path": SHAPES[name][0],
                "list": SHAPES[name][1],
                "conversations_a_list": SHAPES[name][2],
                "events_s": rounded(rounds.median(name)),
                **rounds.taken[name][-1].more,
            }
            for name in SHAPES
        }
        ours = {name: taken for name, taken in rounds.taken.items() if name == "ours"}
        usage = {name: dict(taken[-1].usage) for name, taken in rounds.taken.items()}
        rounds.taken = ours
        parameters = {
            "events": events,
            "callers": CALLERS,
            "partitions": 8,
            "list": SHAPES["ours"][1],
        }
        return rounds.result(
            self.name, "events/s", parameters, more={"shapes": shapes, "usage": usage}
        )


async def _shape(
    bench: Bench, settings: Settings, gateway: Gateway, name: str, events: int
) -> Measured:
    path, size, spread = SHAPES[name]
    metered = Bench(bench.stack, {**bench.pids, "gateway": [gateway.pid]})
    return await run_side(
        "gateway_load",
        metered,
        settings,
        address=gateway.address,
        authorization=gateway.authorization,
        path=path,
        events=events,
        size=size,
        spread=spread,
        callers=CALLERS,
        named=path == "/v1/events",
    )


FIGURE = AppendGateway()
