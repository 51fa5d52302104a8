"""A quiet tenant, of figures `gateway_noisy` and `quiet`: a few connections that take their routes
in turn, and pause in between.

The job has ``address``, ``authorization``, ``names`` (a conversation for each connection),
``seconds``, ``pause`` and ``routes``: of ``append``, ``applied`` (an append that waits until the
window holds it) and ``read`` (a context). It answers with the milliseconds of every request by
route; its value is the number of requests.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

from benchmarks.support.children import answer, read_job
from benchmarks.support.flats import flats
from benchmarks.support.http import Caller


async def caller(
    job: dict[str, Any], name: str, flat: dict[str, Any], end: float, took: dict[str, list[float]]
) -> None:
    """Append and read in turn until the end."""
    asker = Caller(job["address"], job["authorization"])
    path = f"/v1/conversations/{name}"
    asked = {
        "append": ("POST", f"{path}/events", flat),
        "applied": ("POST", f"{path}/events?wait=applied", flat),
        "read": ("GET", f"{path}/context", None),
    }
    routes = itertools.cycle(job["routes"])
    while time.perf_counter() < end:
        route = next(routes)
        begin = time.perf_counter()
        status, body = await asker.ask(*asked[route])
        took[route].append(round((time.perf_counter() - begin) * 1000, 3))
        if status not in (200, 202):
            raise RuntimeError(
                f"the gateway answered the quiet tenant with {status}: {body[:300]!r}"
            )
        await asyncio.sleep(job["pause"])
    asker.close()


async def run(job: dict[str, Any]) -> None:
    """All callers at once."""
    took: dict[str, list[float]] = {route: [] for route in job["routes"]}
    end = time.perf_counter() + job["seconds"]
    await asyncio.gather(
        *(
            caller(job, name, flat, end, took)
            for name, flat in zip(job["names"], flats(len(job["names"])), strict=True)
        )
    )
    answer(sum(map(len, took.values())), took=took)


if __name__ == "__main__":
    *_, job = read_job()
    asyncio.run(run(job))
