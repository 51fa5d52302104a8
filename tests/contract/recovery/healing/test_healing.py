"""Rounds of snapshots and healing from them, in memory and real: whenever the store is lost, the
windows come back as the replay's.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from projections.errors import RedisUnavailable
from projections.events import types as events
from projections.fold.replay import replay
from projections.storage.records import Applied, Checkpoint, Write
from projections.storage.snapshots import MARKER_KEY, decode_snapshot, stamp_of
from streams.encryption.payload_cipher import Unsealed
from streams.partition.owned import Fenced
from streams.recovery.snapshot_writer import SnapshotWriter
from tests.support.healing import Place, filled, fold, in_memory, repeats
from tests.support.histories import RULES
from tests.support.partitions import NUMBER, Parts, split
from tests.support.snapshots import MemorySnapshots
from tests.support.talks import Talks, random_talks
from threadfold.testing import MemoryLog, MemoryStore


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
