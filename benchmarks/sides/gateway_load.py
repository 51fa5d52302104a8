"""The callers of figure `append_gateway`: a few connections that post lists one after another, as
plain as HTTP/1.1 gets.

Bodies are made before the clock starts, and of the answers only status and length are looked at, so
that what is measured is the gateway. The job has ``address``, ``authorization``, ``path``,
``events``, ``size``, ``spread``, ``callers``; ``named`` puts a ``conversation`` into each event.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from benchmarks.support.children import answer, read_job
from benchmarks.support.flats import item_lists
from benchmarks.support.meters import Meter


def requests(job: dict[str, Any]) -> list[bytes]:
    """Every request, head and body."""
    made = []
    for items in item_lists(job["events"], job["size"], job["spread"]):
        flats = [{"conversation": name, **flat} if job["named"] else flat for name, flat in items]  # type: ignore[dict-item]
        body = msgspec.json.encode(flats)
        head = (
            f"POST {job['path'].format(items[0][0])} HTTP/1.1\r\nHost: gateway\r\nAuthorization:"
            f" {job['authorization']}\r\nContent-Type: application/json\r\nContent-Length:"
            f" {len(body)}\r\n\r\n"
        )
        made.append(head.encode() + body)
    return made


async def caller(host: str, port: int, left: Iterator[bytes], took: list[float]) -> None:
    """Post what is left, one request after another, over one connection."""
    reader, writer = await asyncio.open_connection(host, port)
    for request in left:
        begin = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
        body = await reader.readexactly(int(fields[b"content-length"]))
        if not head.startswith(b"HTTP/1.1 202"):
            raise RuntimeError(f"the gateway answered {head[:20]!r} {body[:300]!r}")
        took.append((time.perf_counter() - begin) * 1000)
    writer.close()


async def run(job: dict[str, Any], groups: dict[str, list[int]]) -> None:
    """Warm up, post everything, answer with events a second."""
    host, port = job["address"].split(":")
    made, callers = requests(job), job["callers"]
    warm, rest = iter(made[: 2 * callers]), iter(made[2 * callers :])
    await asyncio.gather(*(caller(host, int(port), warm, []) for _ in range(callers)))
    took: list[float] = []
    meter, begin = Meter(groups), time.perf_counter()
    await asyncio.gather(*(caller(host, int(port), rest, took) for _ in range(callers)))
    seconds = time.perf_counter() - begin
    took.sort()
    usage = meter.stop()
    events = job["size"] * len(took)
    answer(
        events / seconds,
        usage=usage,
        request_ms_p50=round(took[len(took) // 2], 2),
        request_ms_p99=round(took[len(took) * 99 // 100], 2),
    )


if __name__ == "__main__":
    _, groups, job = read_job()
    asyncio.run(run(job, groups))
