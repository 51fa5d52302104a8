"""The noisy tenant of figure `gateway_noisy`: many connections that ask again at once whatever they
were answered, until stdin ends.

Every second request is a list of 20 events, the others read a context. The job has ``address``,
``authorization`` and ``connections``. It answers with the number of answers by status (0: the
connection ended without one).
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from typing import Any

from benchmarks.support.children import answer, read_job
from benchmarks.support.flats import flats
from benchmarks.support.http import Caller

LIST = 20
CONVERSATIONS = 20
RETRY = 0.01


async def caller(
    job: dict[str, Any], place: int, events: list[dict[str, Any]], answers: Counter[int]
) -> None:
    """Ask for ever."""
    asker = Caller(job["address"], job["authorization"])
    path = f"/v1/conversations/noisy-{place % CONVERSATIONS}"
    turn = 0
    while True:
        turn += 1
        try:
            status, _ = await (
                asker.ask("POST", f"{path}/events", events)
                if turn % 2
                else asker.ask("GET", f"{path}/context")
            )
        except (OSError, asyncio.IncompleteReadError):
            status = 0
            await asyncio.sleep(RETRY)
        answers[status] += 1


async def run(job: dict[str, Any]) -> None:
    """All connections, until stdin ends."""
    answers: Counter[int] = Counter()
    events = flats(LIST)
    print("begun", flush=True)
    callers = [
        asyncio.create_task(caller(job, place, events, answers))
        for place in range(job["connections"])
    ]
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    await asyncio.wait([ended, *callers], return_when=asyncio.FIRST_COMPLETED)
    for task in callers:
        if task.done():
            task.result()  # none ends but by an error
        task.cancel()
    answer(
        sum(answers.values()),
        answers={str(status): count for status, count in sorted(answers.items())},
    )


if __name__ == "__main__":
    *_, job = read_job()
    asyncio.run(run(job))
