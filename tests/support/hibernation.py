"""One partition whose idle conversations are put to sleep."""

from __future__ import annotations

import random
from typing import Any

from projections.events import types as events
from projections.names import Key
from projections.policy.policy import Rules
from projections.storage.protocol import WindowStore
from projections.storage.stubs import STUB, Stub, decode_stub
from streams.partition.partition import Partition
from streams.recovery import partition_snapshots
from streams.recovery.hydrating_reader import HydratingReader
from streams.recovery.revival import Revival
from streams.recovery.snapshot_writer import SnapshotWriter
from tests.support.healing import Place
from tests.support.histories import RULES
from tests.support.partitions import NUMBER, Parts
from tests.support.snapshots import MemorySnapshots
from tests.support.talks import Talks
from threadfold.testing import MemoryLog, MemoryStore


async def known(generation: int, tenants: set[str]) -> Rules:
    assert generation and all(tenant.startswith("acme") for tenant in tenants)
    return RULES


class HibernationPlace(Place):
    """A partition whose conversations may be put to sleep; the store itself,
    ``inner``, reads stubs.
    """

    def __init__(self, parts: Parts, topic: Any) -> None:
        super().__init__(parts, topic)
        self.inner: WindowStore = parts.store
        self.revival = Revival(topic, parts.log, known)
        self.inner.reader = HydratingReader(self.inner, self.revival)
        self.rounds = SnapshotWriter(parts.log, topic, 1, 1e-9)

    def reader(self, log: Any = None, **options: Any) -> HydratingReader:
        """A reader of another process."""
        revival = Revival(self.topic, log or self.parts.log, known, **options)
        return HydratingReader(self.inner, revival)

    async def sleep(self, most: int = 100) -> None:
        """Put those to sleep that may, once rounds are through."""
        await self.settle()
        partition_snapshots.REST_AT_ONCE = most
        await self.rounds.run(NUMBER, rest=True)

    async def stubs(self) -> dict[Key, Stub]:
        found = (await self.inner.read(self.parts.generation, NUMBER, self.parts.keys))[1]
        return {
            key: decode_stub(parts.fields[STUB])
            for key, parts in zip(self.parts.keys, found, strict=True)
            if parts and parts.asleep
        }


def in_memory() -> HibernationPlace:
    return HibernationPlace(Parts(MemoryLog(4), MemoryStore(), None), MemorySnapshots(4))


async def asleep(place: HibernationPlace, n: int = 12) -> tuple[Talks, Partition]:
    """Conversations that were spoken in and sleep now, and their owner."""
    first = await place.begin()
    talks = Talks(random.Random(1), NUMBER, place.parts.keys, first)
    for i in range(n):
        talks.say(talks.keys[i % len(talks.keys)], events.Message("user", f"text {i}"))
    partition = await place.own()
    await partition.process(await place.parts.put(talks.rows))
    await place.sleep()
    assert set(await place.stubs()) == set(talks.keys)
    stored = (await place.inner.read(place.parts.generation, NUMBER, talks.keys))[1]
    assert all(
        parts is not None and parts.fields.keys() == {STUB} and parts.id_blocks == {}
        for parts in stored
    )
    return talks, partition


async def more(
    place: HibernationPlace, talks: Talks, partition: Partition, key: Key, text: str = "more"
) -> None:
    """One more event of a conversation, appended and folded."""
    place.parts.first = talks.next_offset
    before = len(talks.rows)
    talks.say(key, events.Message("user", text))
    await partition.process(await place.parts.put(talks.rows[before:]))
