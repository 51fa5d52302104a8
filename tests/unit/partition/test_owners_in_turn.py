"""Owners of a partition that take each other's place at any moment, while conversations go back
beside its flow: the windows are the plain fold's, and what they announce together is what the log
teaches, no more and no less.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from benchmarks.support.texts import memory
from projections.errors import KafkaUnavailable
from projections.events import types as events
from projections.fold.outcomes import History, Outcome
from projections.names import Key
from projections.storage.records import Checkpoint, Stored
from projections.window.window import Window
from streams.log.log import Log, Row
from streams.log.rollback_history import Copies, fetch_needed
from streams.maintenance.republish import announced
from streams.partition.effects import Effects
from streams.partition.owned import Fenced
from streams.partition.partition import Partition
from streams.recovery.shadow_fold import ShadowFold
from tests.support.quarantines import Code, rules_of
from tests.support.talks import encode, event_for
from threadfold.testing import MemoryLog, MemoryStore

KEYS = [Key("acme", f"c{i}") for i in range(3)]
NUMBER, GENERATION = 0, 1
News = tuple[Key, int, tuple[str, ...], int | None]


class Store(MemoryStore):
    """A store whose reads take their time, as those of a server do."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    async def read(
        self, generation: int, partition: int, keys: list[Key], *, recent_ids: bool = True
    ) -> tuple[Checkpoint | None, list[Stored | None]]:
        await self.world.others()
        return await super().read(generation, partition, keys, recent_ids=recent_ids)


class World:
    """A log, a store, the owner, and a former one that does not know of it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.log, self.store, self.rules = MemoryLog(1), Store(self), rules_of(Code())
        self.said: dict[Key, list[tuple[int, events.AnyEvent]]] = {key: [] for key in KEYS}
        self.announced: set[News] = set()
        self.committed, self.next, self.number = 0, 0, 0
        self.owner: Partition | None = None
        self.former: Partition | None = None
        self.calm = False

    @property
    def rows(self) -> Sequence[Row]:
        return self.log.rows(NUMBER)

    def say(self) -> None:
        rng, key = self.rng, self.rng.choice(KEYS)
        known, roll = self.said[key], self.rng.random()
        self.number += 1
        event = event_for(key, events.Opened(user="u"), f"{key.conversation}-{self.number}")
        if known and roll < 0.12:
            _, event = rng.choice(known[-15:])  # said again
        elif known:
            data: object = events.Message("user", "word " * rng.choice([5, 40]))
            if roll < 0.3:
                data = events.Rollback(f"{NUMBER}-{rng.choice(known)[0]}")
            elif roll < 0.55:
                data = memory(rng, key, "u", self.number)
            event = event_for(key, data, event.id)
        at = self.log.put(NUMBER, str(key).encode(), encode(event))
        known.append((at.offset, event))

    async def prepare(self) -> None:
        """Another owner begins at the stored checkpoint; the former one may not know of it."""
        if self.owner is not None:
            self.owner.close()
            self.former = self.owner
        stored = await self.store.checkpoint(GENERATION, NUMBER)
        self.owner = Partition(
            NUMBER,
            GENERATION,
            self.store,
            self.log,
            self.rules,
            learn=_learn,
            sink=Sink(self),
            cached_windows=self.rng.choice([1, 3, 50]),
            fetch=self._fetch,
            restored=lambda: None,
        )
        self.owner.adopt(stored or Checkpoint())
        self.next = self.owner.checkpoint.offset + 1

    async def _fetch(self, log: Log, window: Window, needs: Outcome, copies: Copies) -> History:
        await self.others()
        if not self.calm and self.rng.random() < 0.05:
            raise KafkaUnavailable("the log is away")
        return await fetch_needed(log, window, needs, copies)

    async def others(self) -> None:
        for _ in range(self.rng.choice([0, 1, 5, 30])):
            await asyncio.sleep(0)

    async def fold(self, most: int) -> None:
        """One batch; whoever fails or is fenced begins anew."""
        if self.owner is None:
            await self.prepare()
        owner, rows = self.owner, self.rows[self.next : self.next + most]
        assert owner is not None
        if await _process(owner, rows):
            if owner is self.owner:
                self.next += len(rows)
        elif owner is self.owner:
            self.owner = None

    async def run(self) -> None:
        rng = self.rng
        for _ in range(60):
            for _ in range(rng.randint(0, 12)):
                self.say()
            await self.others()
            folding = asyncio.create_task(self.fold(rng.randint(1, 20)))
            await self.others()
            if rng.random() < 0.4:
                await self.prepare()
            await folding
            if self.owner is not None and rng.random() < 0.4:
                self.committed = max(self.committed, self.owner.checkpoint.offset + 1)
            if self.former is not None and rng.random() < 0.2:
                first = self.former.checkpoint.offset + 1
                await _process(self.former, self.rows[first : first + 5])
        self.calm = True
        async with asyncio.timeout(30):
            while self.owner is None or self.owner.restoring or self.next < len(self.rows):
                await self.fold(10)
                await asyncio.sleep(0.001)


class Sink:
    """Keeps what is announced to the long-term memory from where its owner has to say it."""

    def __init__(self, world: World) -> None:
        self.world, self.since = world, world.committed

    async def publish(self, partition: int, effects: Effects, batch: Sequence[Row]) -> None:
        await self.world.others()
        if not self.world.calm and self.world.rng.random() < 0.08:
            raise KafkaUnavailable("the topic is away")
        self.world.announced |= {
            (key, offset, taught.users, taught.to)
            for key, offset, taught in effects.taught
            if offset >= self.since
        }

    def report(self, *_: object) -> None:
        """Cuts are none of this test's business."""


async def _learn(tenant: str) -> None:
    assert tenant == "acme"


async def _process(owner: Partition, rows: Sequence[Row]) -> bool:
    try:
        await owner.process(rows)
    except (Fenced, KafkaUnavailable):
        owner.close()
        return False
    return True


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
async def test_owners_in_turn_write_and_announce_what_one_alone_would(seed: int) -> None:
    world = World(seed)
    await world.run()
    end = len(world.rows)
    taught = {
        (one.key, one.raw.offset, one.taught.users, one.taught.to)
        async for one in announced(world.log, NUMBER, world.rules, end)
    }
    assert world.announced == taught
    fold = ShadowFold(world.log, NUMBER, world.rules, None)
    await fold.advance(end - 1)
    for key, stored in zip(
        KEYS, (await world.store.read(GENERATION, NUMBER, KEYS))[1], strict=True
    ):
        assert (stored is None) == (key not in fold.windows)
        if stored is not None:
            mine = stored.load(key, NUMBER, world.rules)
            assert mine.image() == fold.windows[key].image()
