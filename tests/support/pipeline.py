"""A policy that compacts soon, events of that size, and what a worker made of them."""

from __future__ import annotations

import random

from projections.events.validation import make_record
from projections.fold.replay import replay
from projections.names import Key, Position, partition_of
from projections.window.window import Window
from streams.log.history import event_of
from streams.worker_parts import Runtime
from tests.support.worker import until

POLICY = {
    "model_window": 4000,
    "reserve_tokens": 500,
    "working_budget": 400,
    "keep_recent_tokens": 150,
    "min_messages": 4,
    "summary_max_tokens": 120,
}


WORDS = [
    "the",
    "order",
    "4711",
    "of",
    "alice",
    "shipped",
    "late",
    "because",
    "bob",
    "at",
    "the",
    "harbour",
    "in",
    "oslo",
    "lost",
    "paper",
    "99",
    "again",
    "and",
    "again",
]


def sentence(rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(4, 30))) + "."


async def append(runtime: Runtime, key: Key, flats: list[dict], start: int = 0) -> list[Position]:
    records = [
        make_record(
            key,
            flat,
            where=f"event {i}",
            now="2026-01-01T00:00:00Z",
            new_id=f"{key}-{start + i}",
            operator=True,
        )
        for i, flat in enumerate(flats)
    ]
    return await runtime.log.append(records)


async def applied(runtime: Runtime, position: Position) -> None:
    async def reached() -> bool:
        checkpoint = await runtime.store.checkpoint(1, position.partition)
        return (
            checkpoint is not None
            and checkpoint.offset >= position.offset
            and not checkpoint.healing
        )

    await until(reached)


async def stored(runtime: Runtime, key: Key) -> Window | None:
    partition = partition_of(key, runtime.log.partitions)
    _, (parts,) = await runtime.store.read(1, partition, [key])
    return parts.load(key, partition, runtime.projector.rules) if parts else None


async def settled(runtime: Runtime, key: Key) -> Window:
    """The window once nothing is due any more."""

    async def calm() -> Window | None:
        window = await stored(runtime, key)
        return window if window is not None and window.meta.due is None else None

    return await until(calm)


async def folded_from_log(runtime: Runtime, key: Key) -> Window:
    partition = partition_of(key, runtime.log.partitions)
    end = (await runtime.log.end_offsets())[partition]
    rows = [
        (raw.position.offset, event_of(raw, key, runtime.log.seals))
        async for raw in runtime.log.scan(partition, 0, end - 1)
    ]
    return replay(
        key, partition, runtime.projector.rules, [(o, e) for o, e in rows if e is not None]
    )
