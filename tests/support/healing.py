"""One partition that heals from snapshots."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

from projections.events import types as events
from projections.storage.records import Checkpoint
from streams.log.log import Log, Raw
from streams.partition.partition import Partition
from streams.recovery.healing import heal_from_snapshots
from streams.recovery.snapshot_topic import SnapshotTopic
from streams.recovery.snapshot_writer import SnapshotWriter
from tests.support.partitions import NUMBER, Parts, keys_of
from tests.support.profiles import examples
from tests.support.snapshots import MemorySnapshots
from tests.support.talks import Talks
from threadfold.testing import MemoryLog, MemoryStore


class Place:
    """One partition, its log, store and snapshots topic, and the owner of the moment."""

    def __init__(self, parts: Parts, topic: SnapshotTopic) -> None:
        self.parts, self.topic = parts, topic
        self.rounds = SnapshotWriter(parts.log, topic, 1)

    async def begin(self) -> int:
        first = await self.parts.begin()
        number = self.parts.generation
        self.parts.keys = keys_of(f"acme{number}", 4)
        return first

    async def own(self, cached_windows: int = 4096) -> Partition:
        """A new owner at the stored checkpoint."""
        partition = self.parts.partition(cached_windows)
        await self.parts.readopt(partition)
        self.rounds.take_over(partition)
        return partition

    async def settle(self, rest: int = 0) -> None:
        """Let rounds run until they reach the checkpoint."""
        mine = self.rounds.partitions[NUMBER]
        async with asyncio.timeout(20):
            while (
                self.rounds.is_running(NUMBER)
                or mine.covered < mine.partition.checkpoint.offset - rest
            ):
                self.rounds.consider(NUMBER)
                await asyncio.sleep(0)

    async def lose(self) -> Partition:
        """The store forgets the partition; a new owner that knows nothing."""
        await self.parts.store.drop_partition(self.parts.generation, NUMBER)
        return self.parts.partition()

    async def heal(
        self, partition: Partition, target: int = -1, log: Log | None = None
    ) -> int | None:
        partition.adopt(
            await self.parts.store.checkpoint(self.parts.generation, NUMBER) or Checkpoint()
        )
        return await heal_from_snapshots(partition, log or self.parts.log, self.topic, target)

    async def latest(self) -> dict[bytes, Raw]:
        """The latest record of each key on the topic, deletions left out."""
        begin, end = await self.topic.bounds(NUMBER)
        found = {
            row.key: row
            async for row in self.topic.scan(NUMBER, begin, end - 1)
            if row.key is not None
        }
        return {key: row for key, row in found.items() if row.value is not None}


def in_memory() -> Place:
    return Place(Parts(MemoryLog(4), MemoryStore(), None), MemorySnapshots(4))


def repeats(place: Place, in_memory: int) -> int:
    return examples(in_memory) if place.parts.settings is None else 2


async def filled(place: Place, n: int = 12) -> tuple[Talks, list[Raw]]:
    first = await place.begin()
    talks = Talks(random.Random(1), NUMBER, place.parts.keys, first)
    for i in range(n):
        talks.say(talks.keys[i % len(talks.keys)], events.Message("user", f"text {i}"))
    return talks, await place.parts.put(talks.rows)


async def settled() -> tuple[Place, Talks, list[Raw]]:
    """A place in memory whose windows all have snapshots."""
    place = in_memory()
    talks, raws = await filled(place)
    await (await place.own()).process(raws)
    await place.settle()
    return place, talks, raws


async def none_is_trusted(place: Place, talks: Talks, raws: list[Raw]) -> None:
    """Check that nothing heals from the snapshots, and that the fold from zero is right."""
    partition = await place.lose()
    assert await place.heal(partition) is None
    await partition.process(raws)
    assert await place.parts.images() == place.parts.expected(talks)


async def fold(partition: Partition, batches: Iterable[list[Raw]]) -> None:
    for batch in batches:
        await partition.process(batch)
