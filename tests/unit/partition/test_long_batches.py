"""A partition with much to fold holds up neither the event loop nor other partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from projections.events.validation import make_record
from projections.policy.policy import Rules
from projections.storage.records import Checkpoint
from streams.log.log import Raw
from streams.partition.effects import Effects
from streams.partition.partition import Partition
from streams.runtime.time_slices import TimeSlices
from tests.support.partitions import keys_of
from threadfold.testing import MemoryLog, MemoryStore

MANY = 1_000


class Silence:
    """A sink that publishes nothing."""

    def report(self, *_: object) -> None: ...

    async def publish(self, partition: int, effects: Effects, batch: Sequence[Raw]) -> None: ...


async def learn(tenant: str) -> None: ...


async def test_one_event_is_applied_while_other_partitions_fold_a_thousand() -> None:
    log, store, slices = MemoryLog(4), MemoryStore(), TimeSlices(0.0)
    partitions, rows = [], []
    for number, count in enumerate((MANY, MANY, MANY, 1)):
        partition = Partition(
            number, 1, store, log, Rules(), learn=learn, sink=Silence(), slices=slices
        )
        partition.adopt(Checkpoint())
        keys = keys_of("acme", 7, number)
        for i in range(count):
            key = keys[i % 7]
            flat = {"type": "message", "role": "user", "content": "hello"}
            record = make_record(
                key, flat, where="event", now="2026-01-01T00:00:00Z", new_id=f"m{i}"
            )
            log.put(number, str(key).encode(), record.value)
        partitions.append(partition)
        rows.append([raw async for raw in log.scan(number, 0, count - 1)])
    folds = [
        asyncio.create_task(partition.process(rows[partition.number])) for partition in partitions
    ]
    await folds[3]
    assert partitions[3].counts.applied == 1
    assert all(partition.counts.applied < MANY / 5 for partition in partitions[:3])
    await asyncio.gather(*folds)
    assert all(partition.counts.applied == MANY for partition in partitions[:3])
