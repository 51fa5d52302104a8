"""A partition over a log and a store, in memory or real, and what tests do with it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from projections.fold.replay import replay
from projections.names import Key, partition_of
from projections.storage.protocol import WindowStore
from projections.storage.records import Checkpoint
from projections.window.window import Window
from streams.log.clients import make_producer
from streams.log.log import Log, Raw
from streams.partition.effects import Effects
from streams.partition.partition import Partition
from streams.settings.settings import Settings
from tests.support.histories import RULES
from tests.support.profiles import examples
from tests.support.talks import Row, Talks
from threadfold.testing import MemoryLog

NUMBER = 2


generations = itertools.count(1)


def keys_of(tenant: str, count: int = 3, number: int = NUMBER) -> list[Key]:
    """Conversations of a tenant that belong to one of four partitions."""
    names = (Key(tenant, f"c{n}") for n in itertools.count(1))
    at_home = (key for key in names if partition_of(key, 4) == number)
    return sorted(itertools.islice(at_home, count))


@dataclass
class RecordingSink:
    """A sink that keeps what was published."""

    accepted: list[tuple[Key, int, str]] = field(default_factory=list)
    voided: list[tuple[Key, int, str]] = field(default_factory=list)
    refused: list[tuple[Key, int, str]] = field(default_factory=list)
    dead: list[tuple[int, str]] = field(default_factory=list)

    def report(self, *_: object) -> None:
        """Cuts are none of this test's business."""

    async def publish(self, partition: int, effects: Effects, batch: Sequence[Raw]) -> None:
        assert partition == NUMBER
        offsets = {raw.position.offset for raw in batch}
        assert {letter.position.offset for letter in effects.dead} <= offsets
        self.accepted += effects.accepted
        self.voided += effects.voided
        self.refused += effects.refused
        self.dead += [(letter.position.offset, letter.cause) for letter in effects.dead]


class Parts:
    """A log and a store, in memory or real, and what tests do with them."""

    def __init__(self, log: Log, store: WindowStore, settings: Settings | None) -> None:
        self.log, self.store, self.settings = log, store, settings
        self.generation = next(generations)
        self.keys = keys_of(f"acme{self.generation}")
        self.first = 0

    async def begin(self) -> int:
        """Where this test's records begin."""
        self.first = (await self.log.end_offsets())[NUMBER]
        return self.first

    async def put(self, rows: list[Row]) -> list[Raw]:
        """Append rows as they are, by any producer's hand, and read them back."""
        if isinstance(self.log, MemoryLog):
            for key, value in rows:
                self.log.put(NUMBER, key, value)
        else:
            assert self.settings is not None
            producer = make_producer(self.settings)
            await producer.start()
            try:
                topic = self.settings.topic("events")
                sent = [
                    await producer.send(topic, value, key, partition=NUMBER) for key, value in rows
                ]
                assert [(await future).offset for future in sent] == list(
                    range(self.first, self.first + len(rows))
                )
            finally:
                await producer.stop()
        raws = [raw async for raw in self.log.scan(NUMBER, self.first, self.first + len(rows) - 1)]
        assert len(raws) == len(rows)
        return raws

    def partition(self, cached_windows: int = 4096, sink: RecordingSink | None = None) -> Partition:
        async def learn(tenant: str) -> None:
            assert tenant.startswith("acme")

        made = Partition(
            NUMBER,
            self.generation,
            self.store,
            self.log,
            RULES,
            learn=learn,
            sink=sink or RecordingSink(),
            cached_windows=cached_windows,
        )
        made.adopt(Checkpoint(offset=self.first - 1))
        return made

    async def readopt(self, partition: Partition) -> None:
        """What an owner does that was fenced."""
        partition.adopt(
            await self.store.checkpoint(self.generation, NUMBER)
            or Checkpoint(offset=self.first - 1)
        )

    async def images(self) -> list[bytes | None]:
        stored = (await self.store.reader.read(self.generation, NUMBER, self.keys))[1]
        return [
            None if s is None else s.load(k, NUMBER, RULES).image()
            for k, s in zip(self.keys, stored, strict=True)
        ]

    async def stored(self) -> Checkpoint:
        """The checkpoint in the store."""
        found = await self.store.checkpoint(self.generation, NUMBER)
        assert found is not None
        return found

    async def windows(self) -> list[Window]:
        stored = (await self.store.reader.read(self.generation, NUMBER, self.keys))[1]
        return [
            s.load(k, NUMBER, RULES)
            for k, s in zip(self.keys, stored, strict=True)
            if s is not None
        ]

    def expected(self, talks: Talks) -> list[bytes | None]:
        return [
            replay(k, NUMBER, RULES, talks.logs[k]).image() if talks.logs[k] else None
            for k in self.keys
        ]


def split(rng: random.Random, raws: list[Raw], biggest: int = 40) -> list[list[Raw]]:
    batches = []
    while raws:
        n = rng.randint(1, biggest)
        batches.append(raws[:n])
        raws = raws[n:]
    return batches


async def drive(partition: Partition, batches: list[list[Raw]]) -> None:
    for batch in batches:
        await partition.process(batch)


def rounds(parts: Parts, in_memory: int) -> int:
    return examples(in_memory) if parts.settings is None else 2


def what_is_restored(window: Window | None) -> tuple[object, ...] | None:
    """What a rollback takes from the fold at its target."""
    if window is None:
        return None
    meta = window.meta
    return meta.base, meta.summary, meta.due, window.tail
