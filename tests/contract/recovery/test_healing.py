"""Rounds of snapshots and healing from them, in memory and real: whenever the store is lost, the
windows come back as the replay's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace

import msgspec
import pytest

from projections.errors import RedisUnavailable
from projections.events import types as events
from projections.fold.replay import replay
from projections.names import Key, Position
from projections.redis.store import RedisStore
from projections.storage.records import Applied, Checkpoint, Write
from projections.storage.snapshots import MARKER_KEY, decode_marker, decode_snapshot, stamp_of
from streams.encryption.payload_cipher import Unsealed
from streams.log.kafka_log import KafkaLog
from streams.log.log import Log, Raw
from streams.partition.owned import Fenced
from streams.partition.partition import Partition
from streams.recovery import healing, partition_snapshots, snapshot_writer
from streams.recovery.healing import heal_from_snapshots
from streams.recovery.snapshot_topic import KafkaSnapshots, SnapshotTopic, find_marker
from streams.recovery.snapshot_writer import SnapshotWriter
from streams.settings.settings import Settings
from tests.contract.partition.test_partition import NUMBER, Parts, split
from tests.support.histories import RULES
from tests.support.profiles import examples
from tests.support.snapshots import MemorySnapshots
from tests.support.talks import Talks, random_talks
from threadfold.testing import MemoryLog, MemoryStore


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds are due at once and take one window at a time, and healing writes one at a time, so
    that everything interleaves.
    """
    monkeypatch.setattr(partition_snapshots, "EVENTS_A_WINDOW", 0)
    monkeypatch.setattr(partition_snapshots, "SLICE", 1)
    monkeypatch.setattr(snapshot_writer, "RETRY_AFTER", 0.0)
    monkeypatch.setattr(healing, "WRITE_WINDOWS", 1)
    monkeypatch.setattr(healing, "CHUNK_BYTES", 2_000)


class Place:
    """One partition, its log, store and snapshots topic, and the owner of the moment."""

    def __init__(self, parts: Parts, topic: SnapshotTopic) -> None:
        self.parts, self.topic = parts, topic
        self.rounds = SnapshotWriter(parts.log, topic, 1)

    async def begin(self) -> int:
        first = await self.parts.begin()
        number = self.parts.generation
        self.parts.keys = [Key(f"acme{number}", name) for name in ("c1", "c2", "c3", "c4")]
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


@pytest.fixture(params=["memory", "real"])
async def place(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[Place]:
    if request.param == "memory":
        made = Place(Parts(MemoryLog(4), MemoryStore(), None), MemorySnapshots(4))
        yield made
        await made.rounds.stop()
        return
    log, store, topic = (
        KafkaLog(settings, 4),
        RedisStore(settings.redis, settings.topic_prefix),
        KafkaSnapshots(settings, 4),
    )
    made = Place(Parts(log, store, settings), topic)
    yield made
    await made.rounds.stop()
    await topic.stop()
    await log.stop()
    await store.close()


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


async def fold(partition: Partition, batches: Iterable[list[Raw]]) -> None:
    for batch in batches:
        await partition.process(batch)


async def test_whenever_the_store_is_lost_the_windows_come_back_as_the_replays(
    place: Place,
) -> None:
    restored = passed = 0
    for seed in range(repeats(place, 60)):
        rng = random.Random(seed)
        place.parts.generation += 1000
        first = await place.begin()
        talks = random_talks(seed, 250, NUMBER, place.parts.keys, first)
        raws = await place.parts.put(talks.rows)
        partition = await place.own(rng.choice([2, 50]))
        for batch in split(rng, raws[: rng.randint(40, len(raws))], 20):
            await partition.process(batch)
            place.rounds.consider(NUMBER)
            await asyncio.sleep(0)
            if rng.random() < 0.1:
                await place.settle()
            if rng.random() < 0.1:
                partition = await place.own(rng.choice([2, 50]))
            if rng.random() < 0.2 and isinstance(place.topic, MemorySnapshots):
                place.topic.compact(NUMBER)
        place.rounds.forget([NUMBER])
        partition = await place.lose()
        restored += await place.heal(partition) or 0
        await fold(partition, split(rng, raws, 20))
        passed += partition.counts.passed
        assert not partition.checkpoint.healing
        assert await place.parts.images() == place.parts.expected(talks), f"seed {seed}"
    assert restored > 0, "no window came from a snapshot"
    assert passed > 0 or place.parts.settings is not None, "no window was ahead of its marker"


async def test_a_healed_partition_heals_again_from_rounds_of_its_new_owner(place: Place) -> None:
    first = await place.begin()
    talks = random_talks(5, 240, NUMBER, place.parts.keys, first)
    raws = await place.parts.put(talks.rows)
    partition = await place.own()
    for until in (80, 160, 240):
        await fold(partition, split(random.Random(until), raws[:until]))
        place.rounds.take_over(partition)
        await place.settle()
        partition = await place.lose()
        assert await place.heal(partition) is not None
        assert partition.checkpoint.offset == raws[until - 1].position.offset
    await fold(partition, [raws])
    assert await place.parts.images() == place.parts.expected(talks)


async def test_what_changed_before_a_take_over_is_in_the_next_round(place: Place) -> None:
    talks, raws = await filled(place)
    first = await place.own()
    await first.process(raws[:4])
    await place.settle()
    await first.process(raws[4:8])
    await place.own()
    await place.settle()
    partition = await place.lose()
    assert await place.heal(partition) == 4
    assert partition.checkpoint.offset == raws[7].position.offset
    assert await place.parts.images() == [
        replay(k, NUMBER, RULES, talks.logs[k][:2]).image() for k in talks.keys
    ]


async def test_until_all_windows_are_back_the_partition_heals_and_a_crash_begins_anew(
    place: Place,
) -> None:
    talks, raws = await filled(place)
    await (await place.own()).process(raws)
    await place.settle()
    partition = await place.lose()
    partition.store = Failing(place.parts.store, 3)
    with pytest.raises(RedisUnavailable):
        await place.heal(partition, raws[-1].position.offset)
    stored = await place.parts.store.checkpoint(place.parts.generation, NUMBER)
    assert stored is not None and stored.healing and stored.offset == -1
    there = [image for image in await place.parts.images() if image is not None]
    assert 0 < len(there) < len(talks.keys)
    again = place.parts.partition()
    assert await place.heal(again) == len(talks.keys)
    assert not again.checkpoint.healing
    assert await place.parts.images() == place.parts.expected(talks)


class Failing:
    """A store that is gone after some writes."""

    def __init__(self, store: object, writes: int) -> None:
        self._store, self._left = store, writes

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def apply(
        self, generation: int, partition: int, checkpoint: Checkpoint, writes: list[Write]
    ) -> Applied:
        if self._left == 0:
            raise RedisUnavailable("the test's Redis is away")
        self._left -= 1
        return await self._store.apply(generation, partition, checkpoint, writes)  # type: ignore[attr-defined,no-any-return]


async def test_windows_ahead_of_the_marker_are_not_served_before_the_others_are_there(
    place: Place,
) -> None:
    talks, raws = await filled(place)
    partition = await place.own()
    await partition.process(raws[:4])
    await place.settle()
    await partition.process(raws[4:])
    # A round that dies before its marker: windows as of the last record, the marker is the first
    # round's.
    await place.rounds.partitions[NUMBER].publish(set(talks.keys[:2]))
    partition = await place.lose()
    assert await place.heal(partition) == 4
    assert (partition.checkpoint.offset, partition.checkpoint.target) == (
        raws[3].position.offset,
        raws[-1].position.offset,
    )
    await partition.process(raws)
    assert partition.counts.passed == 4
    assert await place.parts.images() == place.parts.expected(talks)


async def test_whoever_stops_in_order_takes_the_rounds_that_are_due(place: Place) -> None:
    talks, raws = await filled(place)
    await (await place.own()).process(raws)
    await place.rounds.finish(10.0)
    assert await place.heal(await place.lose()) == len(talks.keys)
    assert await place.parts.images() == place.parts.expected(talks)


async def test_a_round_that_fails_leaves_no_marker_and_the_next_one_has_everything() -> None:
    place = in_memory()
    assert isinstance(place.topic, MemorySnapshots)
    talks, raws = await filled(place)
    partition = await place.own()
    await partition.process(raws)
    place.topic.fail_after = 2
    for _ in range(20):
        place.rounds.consider(NUMBER)
        await asyncio.sleep(0)
    assert len(await place.latest()) == 2 and MARKER_KEY not in await place.latest()
    assert await place.heal(await place.lose()) is None
    await fold(partition := await place.own(), [raws])
    place.topic.fail_after = None
    await place.settle()
    assert await place.heal(await place.lose()) == len(talks.keys)
    assert await place.parts.images() == place.parts.expected(talks)


async def test_snapshots_of_another_generation_are_set_aside_and_written_over() -> None:
    place = in_memory()
    talks, raws = await filled(place)
    await (await place.own()).process(raws)
    await place.settle()
    place.parts.generation += 1
    partition = await place.lose()
    assert await place.heal(partition) is None
    await partition.process(raws)
    await place.own()
    await place.settle()
    assert await place.heal(await place.lose()) == len(talks.keys)
    assert await place.parts.images() == place.parts.expected(talks)


async def test_a_generations_snapshots_are_set_aside_when_the_one_before_writes_over_them() -> None:
    place = in_memory()
    talks, raws = await filled(place)
    await (await place.own()).process(raws)
    await place.settle()
    old = (await place.latest())[str(talks.keys[0]).encode()]
    place.parts.generation += 1
    await (await place.own()).process(raws)
    await place.settle()
    await place.topic.put(NUMBER, [(old.key or b"", old.value)])
    partition = await place.lose()
    assert await place.heal(partition) is None
    await partition.process(raws)
    assert await place.parts.images() == place.parts.expected(talks)


async def test_snapshots_of_another_log_are_set_aside_and_its_conversations_do_not_come_back() -> (
    None
):
    place = in_memory()
    talks, raws = await filled(place)
    await (await place.own()).process(raws)
    await place.settle()
    ghosts = list(talks.keys)
    place.parts.log = MemoryLog(4)
    place.rounds = SnapshotWriter(place.parts.log, place.topic, 1)
    place.parts.keys = [Key("acme", "new")]
    talks = Talks(random.Random(2), NUMBER, place.parts.keys)
    for i in range(20):
        talks.say(talks.keys[0], events.Message("user", f"other {i}"))
    raws = await place.parts.put(talks.rows)
    partition = await place.lose()
    assert await place.heal(partition) is None
    await partition.process(raws)
    await place.own()
    await place.settle()
    assert set(await place.latest()) == {b"acme/new", MARKER_KEY}
    assert await place.heal(await place.lose()) == 1
    assert await place.parts.images() == place.parts.expected(talks)
    assert (await place.parts.store.read(place.parts.generation, NUMBER, ghosts))[1] == [
        None
    ] * len(ghosts)


@pytest.mark.parametrize("value", [b"", b"\xc1", b"\x95\x94\x01", b"text", None])
async def test_one_unreadable_snapshot_sets_all_aside_and_the_fold_from_zero_is_right(
    value: bytes | None,
) -> None:
    place = in_memory()
    talks, raws = await filled(place)
    await (await place.own()).process(raws)
    await place.settle()
    await place.topic.put(NUMBER, [(str(talks.keys[2]).encode(), value)])
    partition = await place.lose()
    assert await place.heal(partition) is None
    assert partition.checkpoint.offset == -1
    place.rounds.take_over(partition)
    await fold(partition, [raws])
    assert await place.parts.images() == place.parts.expected(talks)
    # The marker that is there says nothing of these windows: all of them are written again.
    await place.settle()
    assert await place.heal(await place.lose()) == len(talks.keys)


async def test_a_window_ahead_of_the_marker_that_a_truncated_log_does_not_bear_out_sets_all_aside() -> (
    None
):
    place = in_memory()
    talks, raws = await filled(place)
    partition = await place.own()
    await partition.process(raws[:8])
    await place.settle()
    await partition.process(raws[8:])
    await place.rounds.partitions[NUMBER].publish(set(talks.keys))
    place.parts.log = MemoryLog(4)
    other = Talks(random.Random(1), NUMBER, talks.keys)
    for i in range(16):
        other.say(talks.keys[i % 4], events.Message("user", f"text {i}" if i < 8 else f"other {i}"))
    raws = await place.parts.put(other.rows)
    partition = await place.lose()
    assert await place.heal(partition) is None
    await partition.process(raws)
    assert await place.parts.images() == place.parts.expected(other)


async def test_a_snapshot_with_a_damaged_body_sets_all_aside_and_leaves_nothing_half_restored() -> (
    None
):
    place = in_memory()
    assert isinstance(place.topic, MemorySnapshots)
    talks, raws = await filled(place)
    await (await place.own()).process(raws)
    await place.settle()
    rows = place.topic.rows[NUMBER]
    i = max(i for i, row in enumerate(rows) if row.key != MARKER_KEY)
    good = decode_snapshot(rows[i].value, stamp_of(place.parts.generation, RULES))
    assert good is not None
    rows[i] = rows[i]._replace(
        value=msgspec.msgpack.encode(msgspec.structs.replace(good, body=good.body[:-30]))
    )
    partition = await place.lose()
    assert await place.heal(partition, 7) is None
    assert (partition.checkpoint.offset, partition.checkpoint.target) == (-1, 7)
    assert await place.parts.images() == [None] * len(talks.keys)
    await fold(partition, [raws])
    assert await place.parts.images() == place.parts.expected(talks)


async def test_text_that_the_log_has_lost_sets_snapshots_aside() -> None:
    place = in_memory()
    talks, raws = await filled(place)
    await (await place.own()).process(raws)
    await place.settle()
    partition = await place.lose()
    assert await place.heal(partition, log=Forgetful(place.parts.log, raws[1].position)) is None
    assert await place.heal(place.parts.partition()) == len(talks.keys)


class Forgetful:
    """A log without one of its records."""

    def __init__(self, log: Log, gone: Position) -> None:
        self._log, self._gone = log, gone

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    async def read(self, positions: Iterable[Position]) -> dict[Position, Raw]:
        return {p: raw for p, raw in (await self._log.read(positions)).items() if p != self._gone}


async def test_an_old_snapshot_written_over_a_newer_one_after_the_marker_sets_all_aside(
    place: Place,
) -> None:
    talks, raws = await filled(place)
    partition = await place.own()
    await partition.process(raws[:4])
    await place.settle()
    old = (await place.latest())[str(talks.keys[0]).encode()]
    await partition.process(raws[4:])
    await place.settle()
    await place.topic.put(NUMBER, [(old.key or b"", old.value)])
    partition = await place.lose()
    assert await place.heal(partition) is None
    await partition.process(raws)
    assert await place.parts.images() == place.parts.expected(talks)


async def test_an_old_snapshot_that_comes_into_a_round_is_written_over_before_the_marker() -> None:
    place = in_memory()
    assert isinstance(place.topic, MemorySnapshots)
    talks, raws = await filled(place)
    partition = await place.own()
    await partition.process(raws[:4])
    await place.settle()
    old = (await place.latest())[str(talks.keys[0]).encode()]
    await partition.process(raws[4:])
    place.rounds.consider(NUMBER)
    for _ in range(1000):
        if place.topic.next[NUMBER] >= 7:
            break
        await asyncio.sleep(0)
    assert place.rounds.is_running(NUMBER)
    await place.topic.put(NUMBER, [(old.key or b"", old.value)])
    await place.settle()
    place.topic.compact(NUMBER)
    assert await place.heal(await place.lose()) == len(talks.keys)
    assert await place.parts.images() == place.parts.expected(talks)


async def test_where_snapshots_were_deleted_none_is_believed_and_the_next_round_writes_all_again() -> (
    None
):
    place = in_memory()
    assert isinstance(place.topic, MemorySnapshots)
    talks, raws = await filled(place)
    partition = await place.own()
    await partition.process(raws[:10])
    await place.settle()
    place.topic.delete(NUMBER, 2)
    assert len(await place.latest()) == 3
    assert await place.heal(place.parts.partition()) is None
    await partition.process(raws[10:])
    await place.settle()
    assert await place.heal(await place.lose()) == len(talks.keys)
    assert await place.parts.images() == place.parts.expected(talks)
    place.topic.rows[NUMBER], place.topic.next[NUMBER], place.topic.begin[NUMBER] = [], 0, 0
    partition = await place.own()
    await place.settle()
    assert await place.heal(await place.lose()) == len(talks.keys)
    assert await place.parts.images() == place.parts.expected(talks)


async def test_a_checkpoint_from_before_the_marker_heals_and_one_ahead_of_it_is_left_alone(
    place: Place,
) -> None:
    talks, raws = await filled(place)
    partition = await place.own()
    await partition.process(raws[:8])
    await place.settle()
    await partition.process(raws[8:])
    assert await place.heal(partition) is None
    assert await place.parts.images() == place.parts.expected(talks)
    behind = await place.lose()
    await behind.process(raws[:4])
    assert await place.heal(behind, raws[-1].position.offset) == 4
    assert behind.checkpoint.offset == raws[7].position.offset
    await behind.process(raws)
    assert await place.parts.images() == place.parts.expected(talks)


async def test_an_erased_conversation_stays_erased_whatever_its_snapshot_held(place: Place) -> None:
    talks, _ = await filled(place, 8)
    talks.say(talks.keys[0], events.Erased())
    talks.say(talks.keys[1], events.Message("user", "later"))
    rest = talks.rows[8:]
    raws = [raw async for raw in place.parts.log.scan(NUMBER, talks.first, talks.first + 7)]
    partition = await place.own()
    await partition.process(raws)
    await place.settle()
    place.parts.first += 8
    raws += await place.parts.put(rest)
    partition = await place.lose()
    assert await place.heal(partition) == 4
    await partition.process(raws)
    images = await place.parts.images()
    assert images == place.parts.expected(talks)
    stored = (await place.parts.store.read(place.parts.generation, NUMBER, [talks.keys[0]]))[1][0]
    assert stored is not None and stored.load(talks.keys[0], NUMBER, RULES).meta.erased


async def test_what_a_former_owner_erased_leaves_the_topic_without_waiting_for_other_changes() -> (
    None
):
    class Known(Unsealed):
        """The keys topic says that the conversation is erased."""

        def is_erased(self, conversation: bytes) -> bool:
            return conversation == str(talks.keys[0]).encode()

    place = Place(Parts(MemoryLog(4, seals=Known()), MemoryStore(), None), MemorySnapshots(4))
    talks, raws = await filled(place, 8)
    await fold(await place.own(), [raws])
    await place.settle()
    place.parts.first += 8
    talks.say(talks.keys[0], events.Erased())
    erased = await place.parts.put(talks.rows[8:])
    await fold(await place.own(), [erased])
    # It died before its round. For its successor so few changes make none due.
    place.rounds = SnapshotWriter(place.parts.log, place.topic, 10_000)
    await place.own()
    await place.settle()
    record = (await place.latest())[str(talks.keys[0]).encode()]
    assert b"text 0" not in (record.value or b"")
    snapshot = decode_snapshot(record.value, stamp_of(place.parts.generation, RULES))
    assert snapshot is not None and snapshot.offset == erased[0].position.offset


async def test_a_partition_that_stopped_in_the_middle_of_a_batch_gives_no_snapshot() -> None:
    place = in_memory()
    talks, raws = await filled(place)
    partition = await place.own()
    await partition.process(raws[:4])
    partition.store = Failing(place.parts.store, 0)  # type: ignore[assignment]
    with pytest.raises(RedisUnavailable):
        await partition.process(raws[4:])
    with pytest.raises(Fenced, match="middle of a batch"):
        await partition.windows(talks.keys)


async def test_a_marker_is_found_however_many_snapshots_came_after_it() -> None:
    place = in_memory()
    _, raws = await filled(place)
    await (await place.own()).process(raws)
    await place.settle()
    stamp = stamp_of(place.parts.generation, RULES)
    await place.topic.put(NUMBER, [(b"acme/other", b"x")] * 3_000)
    found = await find_marker(place.topic, place.parts.log, NUMBER, stamp)
    assert (
        found is not None
        and found[0].offset == found[1].position.offset == raws[-1].position.offset
    )
    assert (
        await find_marker(
            place.topic, place.parts.log, NUMBER, msgspec.structs.replace(stamp, version=99)
        )
        is None
    )
    assert decode_marker(b"junk", stamp) is None
    assert replace(Checkpoint(), offset=3).offset == 3


async def test_lists_come_back_from_snapshots_and_from_the_log_with_the_same_times(
    place: Place,
) -> None:
    first = await place.begin()
    talks = Talks(random.Random(3), NUMBER, place.parts.keys, first)
    for i, key in enumerate(talks.keys):
        talks.say(key, events.Opened(user="ann" if i % 2 else "ben", channel="web"))
        talks.say(key, events.Message("user", "hello"))
    talks.say(talks.keys[0], events.Suspension("s", "input"))
    partition = await place.own()
    rows = await place.parts.put(talks.rows)
    for batch in split(random.Random(3), rows, 3):
        await partition.process(batch)
    await place.settle()

    async def lists() -> dict[str, dict[str, int]]:
        return (await place.parts.store.index(place.parts.generation, NUMBER))[1].lists

    before = await lists()
    kinds = {name.partition(":")[0] for name in before}
    assert kinds == {"recent", "waiting", "user", "channel", "state"}
    assert await place.heal(await place.lose()) == len(talks.keys)
    assert await lists() == before
    again = await place.lose()
    again.adopt(Checkpoint())
    await again.process(rows)
    assert await lists() == before, "folded from the log in one batch, they are the same"
