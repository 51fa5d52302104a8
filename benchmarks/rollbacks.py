"""Figure `rollbacks`: how long rollbacks into old history take, and what others of their partition
notice of them.

A conversation of 200,000 messages and 50 of 2,000 lie in one partition, with the summaries that
the product's compactor wrote while they grew; a worker runs. Another tenant of that partition
appends a message every 50 ms and waits until its window holds it, alone and meanwhile:

- ``one``: back to the event in the middle of the long conversation
- ``ten``: ten such rollbacks of it in one request, to ten places
- ``fifty``: one rollback each of the 50 conversations at once, to their middles
- ``bare``: the long conversation again, once its copies in Redis are gone: all of it is read

The value is the seconds that ``one`` takes. Each happens once: rollbacks change what is measured.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import redis as sync_redis

from benchmarks.harness import Args, Measured, Result, Rounds, percentile, rounded, say
from benchmarks.support.flats import flats
from benchmarks.support.gateways import running_worker
from benchmarks.support.grown import grown_records
from benchmarks.support.stacks import Bench, filled_log, running_stack
from benchmarks.support.texts import TENANT
from projections.events.validation import Record
from projections.names import Key, partition_of
from threadfold.service.conversations import ConversationService

LONG, SHORT, MANY = 200_000, 2_000, 50
OTHER = "other"
PAUSE = 0.05
ALONE = 5.0
LIMIT = 600.0


class Rollbacks:
    """The seconds that a rollback into old history takes until its window holds it."""

    name = "rollbacks"
    goal = "2 s; others' p99 unmoved"

    async def run(self, args: Args) -> Result:
        """Grow the conversations, then roll them back."""
        long, short, many = (5_000, 1_200, 5) if args.quick else (LONG, SHORT, MANY)
        with running_stack() as bench:
            settings = bench.settings("rollbacks")
            keys = _keys(TENANT, 0, settings.partitions, many + 1)
            sizes = [long, *[short] * many]
            records = await grown_records(settings, keys, sizes)
            places = _places(records, keys)
            async with filled_log(settings, records):
                pass
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(running_worker(bench, settings))
                backend = await stack.enter_async_context(ConversationService(settings))
                await backend.caught_up(range(settings.partitions), timeout=900)
                (other,) = _keys(OTHER, 0, settings.partitions, 1)
                table = await _all(bench, backend, keys, places, other)
        rounds = Rounds(["ours"])
        rounds.taken["ours"].append(Measured(table["one"]["seconds"]))
        parameters = {"long": long, "short": short, "many": many}
        return rounds.result(self.name, "s", parameters, better="lower", more={"table": table})


async def _all(
    bench: Bench, backend: ConversationService, keys: list[Key], places: list[list[int]], other: Key
) -> dict[str, Any]:
    long, offsets = keys[0], places[0]
    table: dict[str, Any] = {}

    def back(share: float) -> dict[str, str]:
        return {"type": "rollback", "to": f"0-{offsets[int(share * len(offsets))]}"}

    async def note(name: str, work: Awaitable[object]) -> None:
        table[name] = await _beside(backend, other, work)
        say(f"{name}: {table[name]}")

    await note("alone", asyncio.sleep(ALONE))
    await note("one", _roll(backend, long, [back(0.5)]))
    # Even steps would all lie as near to a copy as the first one does.
    ten = random.Random(10)
    await note("ten", _roll(backend, long, [back(ten.uniform(0.05, 0.45)) for _ in range(10)]))
    halves = [{"type": "rollback", "to": f"0-{mine[len(mine) // 2]}"} for mine in places[1:]]
    all_ = [_roll(backend, key, [flat]) for key, flat in zip(keys[1:], halves, strict=True)]
    await note("fifty", asyncio.gather(*all_))
    _forget_copies(bench)
    await note("bare", _roll(backend, long, [back(0.45)]))
    return table


async def _beside(
    backend: ConversationService, other: Key, work: Awaitable[object]
) -> dict[str, float]:
    """The seconds that something takes, and the milliseconds of another tenant's appends
    meanwhile.
    """
    taken: list[float] = []
    texts = flats(2_000)

    async def append() -> None:
        for flat in texts:
            begin = time.perf_counter()
            appended = await backend.append(other.tenant, [(other.conversation, flat)])
            await backend.wait_applied(*other, appended, timeout=LIMIT)
            taken.append((time.perf_counter() - begin) * 1000)
            await asyncio.sleep(PAUSE)

    beside = asyncio.create_task(append())
    begin = time.perf_counter()
    await work
    seconds = time.perf_counter() - begin
    await asyncio.sleep(1.0)
    beside.cancel()
    await asyncio.gather(beside, return_exceptions=True)
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "max_ms": 1.0}
    return {"seconds": rounded(seconds)} | {
        name: rounded(percentile(taken, share)) for name, share in shares.items()
    }


async def _roll(backend: ConversationService, key: Key, rollbacks: list[dict[str, str]]) -> None:
    appended = await backend.append(key.tenant, [(key.conversation, flat) for flat in rollbacks])
    applied = await backend.wait_applied(*key, appended, timeout=LIMIT)
    if any(one.status != "applied" for one in applied):
        raise RuntimeError(f"a rollback of {key} was not applied: {applied}")


def _forget_copies(bench: Bench) -> None:
    with sync_redis.Redis.from_url(bench.stack.redis) as client:
        for name in client.scan_iter(match="*:copies:*", count=1000):
            client.delete(name)


def _keys(tenant: str, partition: int, partitions: int, count: int) -> list[Key]:
    """Conversations of one partition."""
    found: list[Key] = []
    number = 0
    while len(found) < count:
        key = Key(tenant, f"old-{number}")
        if partition_of(key, partitions) == partition:
            found.append(key)
        number += 1
    return found


def _places(records: Sequence[Record], keys: Sequence[Key]) -> list[list[int]]:
    """The offsets of each conversation's events, in a log of one partition."""
    places: dict[Key, list[int]] = {key: [] for key in keys}
    for offset, record in enumerate(records):
        places[record.key].append(offset)
    return [places[key] for key in keys]


FIGURE = Rollbacks()
