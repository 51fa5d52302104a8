"""Owners of a partition that take each other's place at any moment, while conversations go back
beside its flow, and a store that may lose its last writes; with what they announce and what readers
have seen.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from copy import deepcopy

from benchmarks.support.texts import memory
from projections.errors import KafkaUnavailable
from projections.events import types as events
from projections.fold.outcomes import History, Outcome
from projections.names import Key
from projections.storage.records import Checkpoint, Stored
from projections.window.window import Window
from streams.log.log import Log, Row
from streams.log.rollback_history import Copies, fetch_needed
from streams.partition.effects import Effects
from streams.partition.log_identity import find_start, stored_place
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

    def as_now(self) -> Store:
        """Another server that has all of this one's writes, and gets no more of them."""
        other = Store(self.world)
        known: dict[int, object] = {id(self): other, id(self.world): self.world}
        vars(other).update({name: deepcopy(value, known) for name, value in vars(self).items()})
        other.take_over()
        return other


class World:
    """A log, a store, the owner, and a former one that does not know of it."""

    def __init__(self, seed: int, *, loses: bool = False) -> None:
        """Args: ``loses`` makes the store lose its last writes now and then."""
        self.rng, self.loses = random.Random(seed), loses
        self.log, self.store, self.rules = MemoryLog(1), Store(self), rules_of(Code())
        self.said: dict[Key, list[tuple[int, events.AnyEvent]]] = {key: [] for key in KEYS}
        self.announced: set[News] = set()
        self.committed, self.next, self.number = 0, 0, 0
        self.owner: Partition | None = None
        self.former: Partition | None = None
        self.calm = False
        self.older = self.store.as_now()
        self.seen: dict[Key, int] = {}
        self.served_beside = 0
        """How often windows were served while that of another conversation healed."""

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
        committed = self.committed
        stored = await self.store.checkpoint(GENERATION, NUMBER)
        place = await stored_place(
            self.log,
            NUMBER,
            self.store.checkpoint(GENERATION, NUMBER),
            committed=committed,
            name="owner",
        )
        start = find_start(NUMBER, place, committed=committed, served=-1, accept=False)
        owner = Partition(
            NUMBER,
            GENERATION,
            self.store,
            self.log,
            self.rules,
            learn=_learn,
            sink=Sink(self, committed),
            cached_windows=self.rng.choice([1, 3, 50]),
            fetch=self._fetch,
            restored=lambda: None,
        )
        owner.adopt(start.checkpoint)
        self.owner, self.next = owner, start.checkpoint.offset + 1
        nothing = start.checkpoint == Checkpoint()
        if nothing:
            await self.store.drop_partition(GENERATION, NUMBER)
        if nothing or (stored is not None and stored.unverified):
            try:
                await owner.set_target(start.target)
            except Fenced:
                self.owner = None

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
        if owner is None:
            return
        if await self._process(owner, rows) and owner is self.owner:
            self.next += len(rows)

    async def _process(self, owner: Partition, rows: Sequence[Row]) -> bool:
        """Whether a batch went well; who fails in it must not go on."""
        try:
            await owner.process(rows)
        except (Fenced, KafkaUnavailable):
            owner.close()
            self.owner = None if owner is self.owner else self.owner
            self.former = None if owner is self.former else self.former
            return False
        return True

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
            await self.look()
            if self.loses and self.committed and rng.random() < 0.15:
                self.store, self.owner, self.former = self.older, None, None
                self.older = self.store.as_now()
                await self.look()
            if rng.random() < 0.15:
                self.older = self.store.as_now()
            if self.owner is not None and rng.random() < 0.4:
                self.committed = max(self.committed, self.owner.checkpoint.offset + 1)
            if self.former is not None and rng.random() < 0.2:
                first = self.former.checkpoint.offset + 1
                await self._process(self.former, self.rows[first : first + 5])
        self.calm = True
        async with asyncio.timeout(30):
            while self.owner is None or self.owner.restoring or self.next < len(self.rows):
                await self.fold(10)
                await self.look()
                await asyncio.sleep(0.001)

    async def differing(self) -> list[Key]:
        """The conversations whose windows are not the plain fold's."""
        fold = ShadowFold(self.log, NUMBER, self.rules, None)
        await fold.advance(len(self.rows) - 1)
        found = (await self.store.read(GENERATION, NUMBER, KEYS))[1]
        stored = [
            None if parts is None else parts.load(key, NUMBER, self.rules).image()
            for key, parts in zip(KEYS, found, strict=True)
        ]
        plain = [None if key not in fold.windows else fold.windows[key].image() for key in KEYS]
        return [key for key, mine, its in zip(KEYS, stored, plain, strict=True) if mine != its]

    async def look(self) -> None:
        """What may be read is never older than what was read before."""
        checkpoint, found = await self.store.read(GENERATION, NUMBER, KEYS)
        if checkpoint is None:
            return
        heals = [checkpoint.heals(key) for key in KEYS]
        self.served_beside += any(heals) and not all(heals)
        for key, stored, not_yet in zip(KEYS, found, heals, strict=True):
            if not not_yet:
                meta = stored.load(key, NUMBER, self.rules).meta if stored is not None else None
                at = -1 if meta is None else meta.position
                assert at >= self.seen.get(key, -1)
                self.seen[key] = at


class Sink:
    """Keeps what is announced to the long-term memory from where its owner has to say it."""

    def __init__(self, world: World, committed: int) -> None:
        self.world, self.since = world, committed

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
