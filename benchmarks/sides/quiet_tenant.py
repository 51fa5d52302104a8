"""The quiet tenant of figure `gateway_noisy`: a few connections that append an event, read a
context, and pause in between.

The job has ``address``, ``authorization``, ``names`` (a conversation for each connection),
``seconds`` and ``pause``. It answers with the milliseconds of every request by route; its value is
the number of requests.
"""

from __future__ import annotations

import asyncio
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
    turn = 0
    while time.perf_counter() < end:
        turn += 1
        route = "append" if turn % 2 else "read"
        begin = time.perf_counter()
        asked = (
            asker.ask("POST", f"{path}/events", flat)
            if route == "append"
            else asker.ask("GET", f"{path}/context")
        )
        status, body = await asked
        took[route].append(round((time.perf_counter() - begin) * 1000, 3))
        if status not in (200, 202):
            raise RuntimeError(
                f"the gateway answered the quiet tenant with {status}: {body[:300]!r}"
            )
        await asyncio.sleep(job["pause"])
    asker.close()


async def run(job: dict[str, Any]) -> None:
    """All callers at once."""
    took: dict[str, list[float]] = {"append": [], "read": []}
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
