"""Snapshots that are not to be trusted are set aside whole, and the fold from zero is right."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from projections.events import types as events
from projections.names import Position
from projections.storage.records import Checkpoint
from projections.storage.snapshots import MARKER_KEY, decode_marker, decode_snapshot, stamp_of
from streams.log.log import Log, Raw
from streams.recovery.snapshot_topic import find_marker
from streams.recovery.snapshot_writer import SnapshotWriter
from tests.support.healing import Place, filled, fold, in_memory, none_is_trusted, settled
from tests.support.histories import RULES
from tests.support.partitions import NUMBER, keys_of
from tests.support.snapshots import MemorySnapshots
from tests.support.talks import Talks
from threadfold.testing import MemoryLog


async def test_snapshots_of_another_generation_are_set_aside_and_written_over() -> None:
    place, talks, raws = await settled()
    place.parts.generation += 1
    partition = await place.lose()
    assert await place.heal(partition) is None
    await partition.process(raws)
    await place.own()
    await place.settle()
    assert await place.heal(await place.lose()) == len(talks.keys)
    assert await place.parts.images() == place.parts.expected(talks)


async def test_a_generations_snapshots_are_set_aside_when_the_one_before_writes_over_them() -> None:
    place, talks, raws = await settled()
    old = (await place.latest())[str(talks.keys[0]).encode()]
    place.parts.generation += 1
    await (await place.own()).process(raws)
    await place.settle()
    await place.topic.put(NUMBER, [(old.key or b"", old.value)])
    await none_is_trusted(place, talks, raws)


async def test_snapshots_of_another_log_are_set_aside_and_its_conversations_do_not_come_back() -> (
    None
):
    place, talks, raws = await settled()
    ghosts = list(talks.keys)
    place.parts.log = MemoryLog(4)
    place.rounds = SnapshotWriter(place.parts.log, place.topic, 1)
    place.parts.keys = keys_of("acme-other", 1)
    talks = Talks(random.Random(2), NUMBER, place.parts.keys)
    for i in range(20):
        talks.say(talks.keys[0], events.Message("user", f"other {i}"))
    raws = await place.parts.put(talks.rows)
    partition = await place.lose()
    assert await place.heal(partition) is None
    await partition.process(raws)
    await place.own()
    await place.settle()
    assert set(await place.latest()) == {str(place.parts.keys[0]).encode(), MARKER_KEY}
    assert await place.heal(await place.lose()) == 1
    assert await place.parts.images() == place.parts.expected(talks)
    assert (await place.parts.store.read(place.parts.generation, NUMBER, ghosts))[1] == [
        None
    ] * len(ghosts)


@pytest.mark.parametrize("value", [b"", b"\xc1", b"\x95\x94\x01", b"text", None])
async def test_one_unreadable_snapshot_sets_all_aside_and_the_fold_from_zero_is_right(
    value: bytes | None,
) -> None:
    place, talks, raws = await settled()
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
    await none_is_trusted(place, other, raws)


async def test_a_snapshot_with_a_damaged_body_sets_all_aside_and_leaves_nothing_half_restored() -> (
    None
):
    place, talks, raws = await settled()
    assert isinstance(place.topic, MemorySnapshots)
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
    place, talks, raws = await settled()
    partition = await place.lose()
    assert await place.heal(partition, log=Forgetful(place.parts.log, raws[1].position)) is None
    assert await place.heal(place.parts.partition()) == len(talks.keys)


class Forgetful:
    """A log without one of its records."""

    def __init__(self, log: Log, gone: Position) -> None:
        self._log, self._gone = log, gone

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    async def read_within(
        self, positions: Sequence[Position], most_bytes: int
    ) -> tuple[dict[Position, Raw], int]:
        found, count = await self._log.read_within(positions, most_bytes)
        return {p: raw for p, raw in found.items() if p != self._gone}, count


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
    await none_is_trusted(place, talks, raws)


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


async def test_where_snapshots_were_deleted_none_is_trusted_and_the_next_round_writes_all_again() -> (
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
