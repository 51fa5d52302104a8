"""Everything that happens to a partition, at random and in any order, in memory: whatever came
before, its windows are a plain fold's.

Batches, other owners and zombies, a lost Redis and another server, rounds and compaction of the
snapshots topic, sleep, poison and drops, erasures, rollbacks, corrupted windows and stubs that are
mended, new generations and the way back, a log that lost its tail.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from projections.errors import CorruptWindow
from projections.events import codec
from projections.events import types as events
from projections.fold.apply import apply
from projections.storage import window_copies
from projections.storage.layout import HEAD
from projections.storage.records import NOTHING, Checkpoint, Stored, write_of
from projections.storage.stubs import STUB, decode_stub, encode_stub
from projections.window.window import Window
from streams.control.generations import heal_to_live
from streams.control.state import Generation
from streams.log.rollback_cache import RollbackCache
from streams.maintenance.dead_letters import DeadLetters
from streams.maintenance.repair import repair_windows
from streams.maintenance.verify import verify
from streams.partition import log_identity
from streams.partition.owned import Fenced
from streams.projector.effect_sink import NullSink
from streams.recovery import healing, hibernation, partition_snapshots, revival, snapshot_writer
from tests.support.partition_world import KEYS, Model, PartitionWorld
from tests.support.partitions import NUMBER
from tests.support.quarantines import PartitionlessSink, bare


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_snapshots, "EVENTS_A_WINDOW", 0)
    monkeypatch.setattr(partition_snapshots, "SLICE", 1)
    monkeypatch.setattr(window_copies, "EVERY", 5)
    monkeypatch.setattr(window_copies, "MOST", 4)
    monkeypatch.setattr(window_copies, "BACK", 2)
    monkeypatch.setattr(window_copies, "RECENT", 2)
    monkeypatch.setattr(partition_snapshots, "REST_AGAIN", 2)
    monkeypatch.setattr(snapshot_writer, "RETRY_AFTER", 0.0)
    monkeypatch.setattr(hibernation, "SLICE", 2)
    monkeypatch.setattr(healing, "AT_ONCE", 2)
    monkeypatch.setattr(healing, "WRITE_WINDOWS", 1)
    monkeypatch.setattr(healing, "CHUNK_BYTES", 2_000)
    monkeypatch.setattr(revival, "AT_ONCE", 2)
    monkeypatch.setattr(log_identity, "SETTLE", 0.0)


class World(PartitionWorld):
    """What happens to a partition, and what has to hold whatever came before."""

    # -- what happens
    # ------------------------------------------------------------------------------------------

    async def talk(self) -> None:
        for _ in range(self.rng.randint(1, 25)):
            self.say()

    async def fold_some(self) -> None:
        await self.fold(self.rng.randint(1, 40))

    async def sleep(self) -> None:
        await self.settle()
        partition_snapshots.REST_AT_ONCE = self.rng.choice([1, 2, 100])
        await self.rounds.run(NUMBER, rest=True)
        self.note("asleep" if await self.stubs() else "awake")

    async def sleep_as_it_is(self) -> None:
        """While a round may be under way, or right before one."""
        mine = self.rounds.partitions.get(NUMBER)
        if mine is not None and mine.ready and not self.rounds.is_running(NUMBER):
            self.rounds.begin(NUMBER, rest=True)
            await asyncio.sleep(0)

    async def another_owner(self) -> None:
        await self.prepare()

    async def zombie(self) -> None:
        """A former owner that knows nothing of it goes on."""
        for one in self.zombies:
            first = one.checkpoint.offset + 1
            try:
                if first < len(self.rows):
                    await one.process(self.rows[first : first + 5])
                await one.check()
            except Fenced:
                self.note("zombie")
        self.zombies = []

    async def lost(self) -> None:
        self.store.lose_everything()

    async def another_server(self) -> None:
        self.store.take_over()
        if self.rng.random() < 0.5:
            self.owner = None

    async def compacted(self) -> None:
        self.topic.compact(NUMBER)

    async def emptied(self) -> None:
        self.topic.delete(
            NUMBER, self.rng.choice([self.topic.next[NUMBER], self.topic.next[NUMBER] // 2])
        )

    async def kafka_away(self) -> None:
        self.topic.fail_after = self.rng.randint(0, 5)
        self.rounds.consider(NUMBER)
        for _ in range(40):
            await asyncio.sleep(0)
        self.topic.fail_after = None

    async def corrupted(self) -> None:
        """What is stored of a conversation is spoiled; verify finds it and mends it."""
        await (self.sleep() if self.rng.random() < 0.6 else self.settle())
        there = await self.store.conversations(self.generation, NUMBER)
        if not there:
            return
        key = self.rng.choice(sorted(there))
        _, (before,) = await self.store.read(self.generation, NUMBER, [key])
        assert before is not None
        spoiled: Stored | None
        if before.asleep is not None:
            stub = decode_stub(before.asleep)
            how = self.rng.choice(["checksum", "garbage", "gone", "at", "tokens"])
            value = {
                "checksum": encode_stub(replace(stub, checksum=b"0" * 16, count=stub.count + 1)),
                "at": encode_stub(replace(stub, at=stub.at + 1)),
                "tokens": encode_stub(replace(stub, tokens=stub.tokens + 1)),
                "garbage": b"\xc1",
                "gone": b"",
            }[how]
            spoiled = Stored({STUB: value}, {})
        else:
            how = self.rng.choice(["head", "gone"])
            spoiled = Stored({**before.fields, HEAD: b"\xc1"}, before.id_blocks)
        if how == "gone":
            spoiled = None
        self.store.replace(self.generation, NUMBER, key, spoiled)
        report = await self.verify(repair=True)
        if how != "at":
            assert report.differing == [str(key)], (how, report)
            assert report.repaired == [str(key)], (how, report)
            _, (after,) = await self.store.read(self.generation, NUMBER, [key])
            assert before != after or how == "gone" or before.asleep is None
        self.note(f"mended {how}")

    async def mended(self) -> None:
        """Windows are mended that need not be."""
        await self.fold()
        await repair_windows(
            self.log,
            self.store,
            self.generation,
            self.rules,
            NUMBER,
            self.rng.sample(KEYS, 2),
            self.topic,
        )

    async def rebuilt(self) -> None:
        """A new generation is built, some of it before the switch, and readers are switched to it;
        or back to one there was.
        """
        await self.fold()
        if len(self.generations) > 1 and self.rng.random() < 0.5:
            number = self.rng.choice([one for one in self.generations if one != self.generation])
            self.note("switched back")
        else:
            number = self.latest = self.latest + 1
            self.generations.append(number)
            self.note("rebuilt")
        recent = RollbackCache(self.log)
        builder = self.partition(number, sink=NullSink(), log=recent, fetch=recent.fetch)
        checkpoint = await self.store.checkpoint(number, NUMBER)
        if checkpoint is not None and not await log_identity.is_of(
            self.log, NUMBER, checkpoint, len(self.rows)
        ):
            checkpoint = None
        if checkpoint is None or checkpoint.offset < 0:
            checkpoint = None
            await self.store.drop_partition(number, NUMBER)
        builder.adopt(checkpoint or Checkpoint())
        upto = self.rng.choice([len(self.rows), self.rng.randint(0, len(self.rows))])
        try:
            while (first := builder.checkpoint.offset + 1) < upto:
                for at in range(first, min(upto, first + 90), 30):
                    await builder.fold(self.rows[at : min(upto, at + 30)])
                await builder.write()
        except CorruptWindow:
            self.note("not built")
            await self.store.drop_partition(number, NUMBER)
            return
        await heal_to_live(self.store, self.generation, number, NUMBER)
        self.rounds.forget([NUMBER])
        if self.owner is not None and self.rng.random() < 0.5:
            self.zombies.append(self.owner)
        self.generation, self.owner = number, None

    async def tail_lost(self) -> None:
        """The log loses its tail, and other events come in its place."""
        await asyncio.sleep(0.002)  # the broker's clock goes on
        del self.rows[self.rng.randint(max(0, len(self.rows) - 30), len(self.rows)) :]
        self.remodel()
        for _ in range(self.rng.choice([0, 5, 40])):
            self.say()
        self.rounds.forget([NUMBER])
        self.owner = None
        self.zombies = []

    async def erased_elsewhere(self) -> None:
        """An erasure is taken early where nobody folds, as ``threadfold.service.erasure`` does
        it.
        """
        if self.rng.random() < 0.7 or len(self.generations) < 2:
            return
        key = self.rng.choice(KEYS)
        self.put(key, events.Erased())
        erasure = codec.decode_event(self.rows[-1].value or b"")
        for number in self.generations:
            checkpoint, (stored,) = await self.store.read(number, NUMBER, [key])
            if number == self.generation or checkpoint is None or stored is None:
                continue
            if stored.asleep:
                window, mark = Window(key, NUMBER, self.rules), NOTHING
            else:
                window, mark = stored.open(key, NUMBER, self.rules)
            if not window.meta.erased:
                apply(window, min(checkpoint.offset, self.rows[-1].offset), erasure)
                await self.store.apply(
                    number, NUMBER, checkpoint, [write_of(window, mark, checkpoint.timestamp)]
                )
                self.note("erased elsewhere")

    def remodel(self) -> None:
        """The plain fold of what is in the log, by the code at hand."""
        self.models = {key: Model(key, self.rules) for key in KEYS}
        for row in self.rows:
            key = next((key for key in KEYS if str(key).encode() == row.key), None)
            if key is not None and row.value is not None:
                try:
                    self.models[key].take(row.offset, codec.decode_event(row.value))
                except codec.Undecodable:
                    self.models[key].take(row.offset, None)

    async def code_mended(self) -> None:
        """The code no longer fails: what is quarantined by it is tried again, by somebody who is not the
        owner.
        """
        if not self.code.broken:
            return
        await self.settle()
        # Where an event was dropped on which the code failed, or in a generation that was left,
        # windows are another code's (docs/poison).
        self.generations = [self.generation]
        failing = [key for key, model in self.models.items() if model.quarantined is not None]
        self.code.broken = False
        self.remodel()
        letters = DeadLetters(
            self.log,
            self.log,
            self.store,
            self.generation,
            self.rules,
            PartitionlessSink(),
            self.topic,
        )
        for key in failing:
            if self.models[key].quarantined is None:
                assert (await letters.retry(key))[1] is None
                self.note("tried again")
        await self.verify(deep=True, repair=True)

    # -- what has to hold
    # ------------------------------------------------------------------------------------------

    async def verify(self, **options: bool):  # type: ignore[no-untyped-def]
        generation = Generation(self.generation, 4, {}, {}, "live")
        return await verify(
            self.log, self.store, generation, self.rules, snapshots=self.topic, **options
        )

    async def right(self) -> None:
        """All windows are the plain fold's: to a reader, and to a verify, and the lists are,
        too.
        """
        await self.fold()
        checkpoint = await self.store.checkpoint(self.generation, NUMBER)
        assert checkpoint is not None and not checkpoint.healing
        quarantined = []
        for key, model in self.models.items():
            _, (found,) = await self.readers.read(self.generation, NUMBER, [key])
            if found is None:
                assert model.window.meta.position < 0 and model.quarantined is None, key
                continue
            window = found.load(key, NUMBER, self.rules)
            assert bare(window) == model.window.image(), key
            at = window.meta.quarantine
            assert (at and at.offset) == model.quarantined, key
            if at is not None:
                quarantined.append(str(key))
                assert at.count == len(model.waiting)
        listed = await self.store.listed(self.generation, NUMBER, "parked", None, 99)
        assert sorted(one.conversation for one in listed) == quarantined
        assert not set(map(str, await self.stubs())) & set(quarantined)
        report = await self.verify(deep=self.rng.random() < 0.5)
        assert report.differences == []
        idle = {str(key) for key in await self.store.idle(self.generation, NUMBER, 1 << 60, 99)}
        assert not idle & set(map(str, await self.stubs()))


OFTEN: list[str] = ["talk", "talk", "talk", "fold_some", "fold_some", "sleep", "sleep_as_it_is"]
SELDOM: list[str] = [
    *("another_owner", "zombie", "lost", "another_server", "compacted", "emptied", "kafka_away"),
    *("corrupted", "mended", "rebuilt", "tail_lost", "code_mended", "erased_elsewhere"),
]


async def live(seed: int, steps: int) -> World:
    world = World(seed)
    try:
        for _ in range(steps):
            step = world.rng.choice(OFTEN if world.rng.random() < 0.7 else SELDOM)
            world.did.append(step)
            act: Callable[[], Awaitable[None]] = getattr(world, step)
            await act()
            if world.rng.random() < 0.25:
                world.did.append("right")
                await world.right()
        await world.settle()
        await world.right()
    except BaseException as error:
        error.add_note(
            f"seed {seed}: {world.did}, {len(world.rows)} rows, generation {world.generation}"
        )
        raise
    finally:
        await world.rounds.stop()
        await world.revival.stop()
    return world


async def test_whatever_happens_in_any_order_the_windows_are_a_plain_folds() -> None:
    logging.disable(logging.ERROR)
    seen: dict[str, int] = {}
    try:
        for seed in range(12):
            for what, times in (await live(seed, 40)).seen.items():
                seen[what] = seen.get(what, 0) + times
    finally:
        logging.disable(logging.NOTSET)
    wanted = {"healed", "asleep", "rebuilt", "switched back", "tried again", "back from a copy"}
    assert wanted <= seen.keys(), seen
