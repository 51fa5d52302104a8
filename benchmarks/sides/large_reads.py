"""The tenant of figure `large_reads` that reads large windows, by many connections at once.

The job has ``address``, ``authorization``, ``paths``, ``connections`` and ``seconds``. It answers
with the number of requests and the answers by status.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

from benchmarks.support.children import answer, read_job
from benchmarks.support.http import Caller


async def _read(job: dict[str, Any], path: str, end: float, answers: Counter[int]) -> None:
    caller = Caller(job["address"], job["authorization"])
    while time.perf_counter() < end:
        try:
            status, _ = await caller.ask("GET", path, None)
        except (OSError, asyncio.IncompleteReadError):
            status = 0
        answers[status] += 1
        if status in (0, 429, 503):  # refused at once: as fast as a program that tries again
            await asyncio.sleep(0.05)
    caller.close()


async def run(job: dict[str, Any]) -> None:
    """Read until the time is over."""
    answers: Counter[int] = Counter()
    end = time.perf_counter() + job["seconds"]
    paths = job["paths"]
    await asyncio.gather(
        *(_read(job, paths[n % len(paths)], end, answers) for n in range(job["connections"]))
    )
    answer(sum(answers.values()), answers={str(k): n for k, n in answers.items()})


if __name__ == "__main__":
    *_, job = read_job()
    asyncio.run(run(job))
