"""Figure `large_reads`: what one tenant's reads of large windows cost another tenant, and the
gateway's memory.

Ten windows each hold one image of 7 MB. Forty connections of their tenant read them one after
another, in one way at a time, beside the quiet tenant of figure `large_bodies`. The value is the
most milliseconds that this adds to the quiet tenant's p99. ``grown_mib`` is the most memory that
the gateway and its processes had above what they had before.
"""

from __future__ import annotations

import asyncio
import base64
import random
from typing import Any

from benchmarks.gateway_noisy import NAMES, QUIET, ROUTES
from benchmarks.harness import Args, Measured, Result, Rounds, rounded, say
from benchmarks.large_bodies import GROWN, LARGE, MemoryMeter, quiet_p99
from benchmarks.support.children import run_side
from benchmarks.support.flats import flats
from benchmarks.support.gateways import Gateway, append_all, prepare, served
from benchmarks.support.stacks import Bench, running_stack
from streams.settings.settings import Settings

WINDOWS, CONNECTIONS = 10, 40
SIZE = 7 << 20
WAYS = {
    "openai": "context",
    "anthropic": "context?format=anthropic",
    "recall": "context?recall=on",
    "history": "history?limit=10",
    "event": "events/{position}",
}
"""What is read of a conversation."""


class LargeReads:
    """The milliseconds that reads of large windows add to another tenant's p99."""

    name = "large_reads"
    goal = "others' p99 at most 100 ms more"

    async def run(self, args: Args) -> Result:
        """Alone first, then beside each way to read."""
        seconds = 2.0 if args.quick else 10.0
        rounds = Rounds(["ours"])
        names = [f"image-{n}" for n in range(WINDOWS)]
        with running_stack() as bench:
            settings = bench.settings("reads", partitions=8)
            keys = await prepare(settings, [QUIET, LARGE])
            async with served(bench, settings, keys) as (gateway, _):
                grown = [(name, flat) for name in NAMES for flat in flats(GROWN)]
                await append_all(settings, QUIET, grown)
                paths = [await _large(settings, name) for name in names]
                for _ in range(args.rounds()):
                    table = await _round(bench, settings, gateway, keys[LARGE], paths, seconds)
                    rounds.taken["ours"].append(
                        Measured(max(row["added_ms"] for row in table.values()), more=table)
                    )
        tables = [measured.more for measured in rounds.taken["ours"]]
        parameters = {"seconds": seconds, "bytes": SIZE, "connections": CONNECTIONS}
        return rounds.result(self.name, "ms", parameters, better="lower", more={"tables": tables})


async def _round(
    bench: Bench,
    settings: Settings,
    gateway: Gateway,
    key: str,
    places: list[tuple[str, str]],
    seconds: float,
) -> dict[str, Any]:
    alone = await quiet_p99(bench, settings, gateway, seconds)
    table: dict[str, Any] = {}
    for name, way in WAYS.items():
        meter = MemoryMeter(gateway)
        paths = [f"/v1/conversations/{c}/{way.format(position=at)}" for c, at in places]
        job = {"address": gateway.address, "authorization": key, "paths": paths}
        side = run_side(
            "large_reads", bench, settings, seconds=seconds + 1, connections=CONNECTIONS, **job
        )
        read = asyncio.create_task(side)
        beside = await quiet_p99(bench, settings, gateway, seconds)
        more = (await read).more
        table[name] = {
            "added_ms": rounded(max(beside[route] - alone[route] for route in ROUTES)),
            "p99_ms": beside,
            "alone_ms": alone,
            "grown_mib": rounded(await meter.stop() / (1 << 20)),
            **more,
        }
        say(f"{name}: {table[name]}")
    return table


async def _large(settings: Settings, name: str) -> tuple[str, str]:
    """Append an image to a conversation, and return its name and the image's position."""
    return name, str((await append_all(settings, LARGE, [(name, _image())]))[0])


def _image() -> dict[str, Any]:
    """A message with an image as a data URL."""
    data = base64.b64encode(random.Random(7).randbytes(SIZE * 3 // 4)).decode()
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    return {"type": "message", "role": "user", "content": [image]}


FIGURE = LargeReads()
