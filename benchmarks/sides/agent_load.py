"""Real agents' conversations that go on at a fixed rate over HTTP, until stdin ends.

The job has ``address``, ``authorization``, ``conversations``, ``messages`` (what each conversation
has already), ``rate`` (events a second of all) and ``size`` (messages a list). Lists go out on a
schedule, over as many connections as are needed; the value is the rate that was reached. It prints
a line once it has begun.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from typing import Any

from benchmarks.support.agent_talks import talk
from benchmarks.support.children import answer, read_job
from benchmarks.support.http import Caller
from projections.window.bodies import to_flat

CONNECTIONS = 32
AHEAD = 1_200
"""Messages of each conversation that are made before the first is sent; after these it begins
anew.
"""


class Load:
    """What is sent next, and what was answered."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        first, size = job["messages"], job["size"]
        self._lists = [
            [
                [to_flat(message, "message") for message in rest[i : i + size]]
                for i in range(0, len(rest), size)
            ]
            for number in range(job["conversations"])
            for rest in [talk(number, first + AHEAD)[first:]]
        ]
        self._sent = 0
        self.answers: Counter[int] = Counter()
        self.events = 0
        self.begin = time.monotonic()

    async def send(self) -> None:
        """Send lists on the schedule, for ever."""
        asker = Caller(self._job["address"], self._job["authorization"])
        interval = self._job["size"] / self._job["rate"]
        while True:
            turn, number = divmod(self._sent, len(self._lists))
            at = self.begin + self._sent * interval
            self._sent += 1
            await asyncio.sleep(at - time.monotonic())
            lists = self._lists[number]
            body = lists[turn % len(lists)]
            status, _ = await asker.ask("POST", f"/v1/conversations/agent-{number:05}/events", body)
            self.answers[status] += 1
            self.events += len(body)


async def run(job: dict[str, Any]) -> None:
    """All connections, until stdin ends."""
    load = Load(job)
    print("begun", flush=True)
    load.begin = time.monotonic()
    senders = [asyncio.create_task(load.send()) for _ in range(CONNECTIONS)]
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    await asyncio.wait([ended, *senders], return_when=asyncio.FIRST_COMPLETED)
    for sender in senders:
        if sender.done():
            sender.result()  # none ends but by an error
        sender.cancel()
    seconds = time.monotonic() - load.begin
    statuses = {str(status): count for status, count in sorted(load.answers.items())}
    answer(load.events / seconds, answers=statuses, seconds=round(seconds, 2))


if __name__ == "__main__":
    *_, job = read_job()
    asyncio.run(run(job))
