"""Figure `hot`: what a hot conversation costs the others of its partition.

One conversation of a partition is sent lists at 5,000 events a second, which is far more than
people and agents say in one; in `flat_out` one list after the other, as fast as a caller can who
waits for each answer. Others of the same partition get single events on a fixed schedule; each is
followed until the window holds it. `alone` is the same without the hot one, in the same run. All is
folded by one worker in another process. A partition is folded in the log's order, so others wait
for what came before them.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

from benchmarks.harness import Args, Measured, Result, interleave, percentile, rounded
from benchmarks.support.flats import flats
from benchmarks.support.gateways import running_worker, until_applied
from benchmarks.support.stacks import Bench, filled_log, running_stack
from benchmarks.support.texts import TENANT
from projections.names import Key, partition_of
from threadfold.service.conversations import ConversationService

LIST = 200
RATE = 5_000
OTHERS = 20
EVERY = 0.02


class Hot:
    """Milliseconds from acknowledged to readable, of others in a hot conversation's partition."""

    name = "hot"
    goal = "p99 of the others under 250 ms beside a hot conversation"

    async def run(self, args: Args) -> Result:
        """Each side on a topic and a worker of its own, in turn."""
        seconds = 2.0 if args.quick else 15.0
        with running_stack() as bench:
            sides = {"ours": RATE, "flat_out": None, "alone": 0}
            rounds = await interleave(
                {name: partial(_round, bench, seconds, rate) for name, rate in sides.items()},
                args.rounds(),
            )
        table = {name: [dict(m.more) for m in taken] for name, taken in rounds.taken.items()}
        parameters = {
            "list": LIST,
            "hot_events_s": RATE,
            "others": OTHERS,
            "every_s": EVERY,
            "seconds": seconds,
            "partitions": 16,
        }
        return rounds.result(
            self.name, "ms (p99)", parameters, better="lower", more={"table": table}
        )


_rounds = iter(range(10**9))


def names_of_one_partition(count: int, partitions: int) -> list[str]:
    """Conversations of the benchmarks' tenant that all lie in one partition."""
    first = partition_of(Key(TENANT, "hot-0"), partitions)
    found: list[str] = []
    number = 0
    while len(found) < count:
        if partition_of(Key(TENANT, f"hot-{number}"), partitions) == first:
            found.append(f"hot-{number}")
        number += 1
    return found


async def _round(bench: Bench, seconds: float, rate: int | None) -> Measured:
    """Args: ``rate`` of the hot conversation in events a second, None: without a pause."""
    bench.flush()
    settings = bench.settings(f"hot{next(_rounds)}", log_level="warning")
    async with filled_log(settings, ()):
        pass
    names = names_of_one_partition(OTHERS + 1, settings.partitions)
    async with running_worker(bench, settings), ConversationService(settings) as backend:
        appended = await backend.append(TENANT, [(name, flats(1)[0]) for name in names])
        for name, item in zip(names, appended, strict=True):
            await backend.wait_applied(TENANT, name, [item], timeout=60)
        seen: list[float] = []
        end = time.monotonic() + seconds
        load = asyncio.create_task(_heat(backend, names[0], rate, end))
        await _others(backend, names[1:], end, seen)
        sent = await load
    more: dict[str, Any] = {
        "p50_ms": rounded(percentile(seen, 0.5) * 1e3),
        "max_ms": rounded(max(seen) * 1e3),
        "hot_events_s": round(sent / seconds),
        "samples": len(seen),
    }
    return Measured(rounded(percentile(seen, 0.99) * 1e3), {}, more)


async def _heat(backend: ConversationService, name: str, rate: int | None, end: float) -> int:
    texts, sent, begin = flats(5_000, 7), 0, time.monotonic()
    while rate != 0 and (now := time.monotonic()) < end:
        if rate is not None and (early := begin + sent / rate - now) > 0:
            await asyncio.sleep(early)
        body = [(name, texts[(sent + i) % len(texts)]) for i in range(LIST)]
        await backend.append(TENANT, body)
        sent += LIST
    return sent


async def _others(
    backend: ConversationService, names: list[str], end: float, seen: list[float]
) -> None:
    texts, running, number = flats(1_000, 8), set[asyncio.Task[None]](), 0
    begin = time.monotonic()
    while time.monotonic() < end:
        if (early := begin + number * EVERY - time.monotonic()) > 0:
            await asyncio.sleep(early)
        task = asyncio.create_task(
            _follow(backend, names[number % len(names)], texts[number % len(texts)], seen)
        )
        running.add(task)
        task.add_done_callback(running.discard)
        number += 1
    await asyncio.gather(*running)


async def _follow(
    backend: ConversationService, name: str, flat: dict[str, Any], seen: list[float]
) -> None:
    (item,) = await backend.append(TENANT, [(name, flat)])
    acknowledged = time.perf_counter()
    await until_applied(backend, item.position, 60)
    seen.append(time.perf_counter() - acknowledged)


FIGURE = Hot()
