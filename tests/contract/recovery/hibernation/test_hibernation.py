"""Hibernation in memory and real: whoever sleeps and wakes whenever, windows are the replay's, and
nothing is written by a reader.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from projections.events import types as events
from projections.names import Key
from projections.storage import listing
from projections.storage.snapshots import MARKER_KEY
from streams.recovery import partition_snapshots
from streams.recovery.hibernation import sleepers
from tests.support.healing import fold
from tests.support.hibernation import HibernationPlace, asleep, in_memory, more
from tests.support.partitions import NUMBER, split
from tests.support.snapshots import MemorySnapshots
from tests.support.talks import Talks, random_talks


async def test_conversations_that_sleep_and_wake_at_random_have_the_windows_of_the_replay(
    place: HibernationPlace,
) -> None:
    slept = woken = healed = 0
    for seed in range(15 if place.parts.settings is None else 2):
        rng = random.Random(seed)
        place.parts.generation += 1000
        first = await place.begin()
        talks = random_talks(seed, 250, NUMBER, place.parts.keys, first)
        raws = await place.parts.put(talks.rows)
        partition = await place.own(rng.choice([2, 50]))
        upto = rng.randint(120, len(raws))
        for batch in split(rng, raws[:upto], 20):
            before = await place.stubs()
            await partition.process(batch)
            woken += len(before.keys() - (await place.stubs()).keys())
            if rng.random() < 0.4:
                await place.sleep(rng.choice([1, 2, 100]))
                slept += len(await place.stubs())
            if rng.random() < 0.1:
                partition = await place.own(rng.choice([2, 50]))
            if rng.random() < 0.2 and isinstance(place.topic, MemorySnapshots):
                place.topic.compact(NUMBER)
        images = await place.parts.images()
        await place.sleep()
        assert await place.parts.images() == images, f"seed {seed}: sleeping changed a window"
        place.rounds.forget([NUMBER])
        partition = await place.lose()
        healed += await place.heal(partition) or 0
        await fold(partition, split(rng, raws, 20))
        assert await place.parts.images() == place.parts.expected(talks), f"seed {seed}"
    assert slept and woken and healed


async def test_a_window_that_changes_while_its_record_is_written_stays(
    place: HibernationPlace,
) -> None:
    talks, partition = await asleep(place)
    key, others = talks.keys[0], set(talks.keys[1:])
    await more(place, talks, partition, key, "one")
    put = place.topic.put

    async def meanwhile(number: int, rows: Sequence[Any]) -> list[int]:
        offsets = await put(number, rows)
        place.topic.put = put  # type: ignore[method-assign]
        await more(place, talks, partition, key, "two")
        return offsets

    await place.settle()
    place.topic.put = meanwhile  # type: ignore[method-assign]
    await place.rounds.run(NUMBER, rest=True)
    assert set(await place.stubs()) == others
    assert partition.changed == {key}
    assert await place.parts.images() == place.parts.expected(talks)
    await place.sleep()
    assert set(await place.stubs()) == {key, *others}
    assert await place.parts.images() == place.parts.expected(talks)


async def test_an_owner_that_was_fenced_puts_nobody_to_sleep(place: HibernationPlace) -> None:
    talks, zombie = await asleep(place)
    await more(place, talks, zombie, talks.keys[0])
    await place.settle()
    other = place.parts.partition()
    await place.parts.readopt(other)
    await more(place, talks, other, talks.keys[0], "by the new owner")
    await place.rounds.run(NUMBER, rest=True)
    assert talks.keys[0] not in await place.stubs()
    assert await place.parts.images() == place.parts.expected(talks)


async def test_a_stranger_who_writes_over_a_sleeping_conversations_record_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    place = in_memory()
    assert isinstance(place.topic, MemorySnapshots)
    talks, partition = await asleep(place)
    await place.settle()
    old = {
        key: (await place.topic.read(NUMBER, [stub.at]))[stub.at].value
        for key, stub in (await place.stubs()).items()
    }
    await more(place, talks, partition, talks.keys[0])
    await place.sleep()
    before = await place.stubs()
    # A frozen process wakes, and writes what it had; then the topic is compacted down to that.
    key = talks.keys[0]
    await place.topic.put(NUMBER, [(str(key).encode(), old[key])])
    await more(place, talks, partition, talks.keys[1])
    await place.settle()
    after = await place.stubs()
    assert after[key].at > before[key].at and after[key].checksum == before[key].checksum
    place.topic.compact(NUMBER)
    assert {
        name: row.position.offset
        for name, row in (await place.latest()).items()
        if name != MARKER_KEY
    } == {str(key).encode(): stub.at for key, stub in after.items()} | {
        str(talks.keys[1]).encode(): (
            (await place.latest())[str(talks.keys[1]).encode()].position.offset
        )
    }
    assert await place.parts.images() == place.parts.expected(talks)
    assert "folded from the log" not in caplog.text
    assert await place.heal(await place.lose()) == len(talks.keys)
    assert await place.parts.images() == place.parts.expected(talks)


async def test_a_round_writes_nothing_again_of_those_that_fell_asleep_before_it(
    place: HibernationPlace,
) -> None:
    talks, partition = await asleep(place)
    stubs, (_, end) = await place.stubs(), await place.topic.bounds(NUMBER)
    await more(place, talks, partition, talks.keys[0])
    await place.settle()
    now = (await place.topic.bounds(NUMBER))[1]
    written = [row.key async for row in place.topic.scan(NUMBER, end, now - 1)]
    assert sorted(name for name in written if name) == sorted(
        [MARKER_KEY, str(talks.keys[0]).encode()]
    )
    assert await place.stubs() == {key: stub for key, stub in stubs.items() if key != talks.keys[0]}


async def test_what_falls_asleep_is_not_left_for_the_next_round_and_the_marker_follows_by_itself(
    place: HibernationPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    talks, partition = await asleep(place)
    mine, key = place.rounds.partitions[NUMBER], talks.keys[0]
    await more(place, talks, partition, key)
    await more(place, talks, partition, talks.keys[1])
    # One is left from a round that failed, the other has changed since.
    mine.again, partition.changed = {key}, {talks.keys[1]}
    end = (await place.topic.bounds(NUMBER))[1]
    await place.rounds.run(NUMBER, rest=True)
    assert (mine.again, partition.changed) == (set(), set())
    mine.covered = partition.checkpoint.offset  # as if no round were due for any other reason
    assert not mine.is_due(1)
    monkeypatch.setattr(partition_snapshots, "MARK_EVERY", 0.0)
    count = mine.rounds
    async with asyncio.timeout(20):
        while mine.rounds == count:
            place.rounds.consider(NUMBER)
            await asyncio.sleep(0)
    now = (await place.topic.bounds(NUMBER))[1]
    names = [row.key async for row in place.topic.scan(NUMBER, end, now - 1)]
    assert names[-1] == MARKER_KEY and sorted(name for name in names[:-1] if name) == sorted(
        str(k).encode() for k in talks.keys[:2]
    )
    assert not mine.slept
    again = await place.own()
    await place.settle()
    assert (await place.topic.bounds(NUMBER))[
        1
    ] <= now + 1 and again.checkpoint.offset == partition.checkpoint.offset
    assert await place.heal(await place.lose()) == len(talks.keys)
    assert await place.parts.images() == place.parts.expected(talks)


async def test_a_window_whose_summary_comes_while_others_are_put_to_sleep_comes_up_again(
    place: HibernationPlace,
) -> None:
    first = await place.begin()
    talks = Talks(random.Random(1), NUMBER, place.parts.keys, first)
    due, *rest = talks.keys
    while talks.windows[due].meta.due is None:
        talks.say(due, events.Message("user", "word " * 30), tokens=60)
    for key in rest:
        talks.say(key, events.Message("user", "hello"))
    partition = await place.own()
    await partition.process(await place.parts.put(talks.rows))
    put = place.topic.put

    async def meanwhile(number: int, rows: Sequence[Any]) -> list[int]:
        place.topic.put = put  # type: ignore[method-assign]
        before, place.parts.first = len(talks.rows), talks.next_offset
        talks.summarise(due)
        await partition.process(await place.parts.put(talks.rows[before:]))
        return await put(number, rows)

    await place.settle()
    place.topic.put = meanwhile  # type: ignore[method-assign]
    await place.rounds.run(NUMBER, rest=True)
    assert set(await place.stubs()) == set(rest)
    await place.sleep()
    assert set(await place.stubs()) == set(talks.keys)
    assert await place.parts.images() == place.parts.expected(talks)


async def test_due_and_erased_windows_stay_and_do_not_hold_the_others_up(
    place: HibernationPlace,
) -> None:
    first = await place.begin()
    talks = Talks(random.Random(1), NUMBER, place.parts.keys, first)
    due, erased, *rest = talks.keys
    while talks.windows[due].meta.due is None:
        talks.say(due, events.Message("user", "word " * 30), tokens=60)
    talks.say(erased, events.Message("user", "secret"))
    talks.put(erased, _erasure(erased))
    for key in rest:
        talks.say(key, events.Message("user", "hello"))
    partition = await place.own()
    await partition.process(await place.parts.put(talks.rows))
    for _ in range(len(talks.keys)):
        await place.sleep(1)
    assert set(await place.stubs()) == set(rest)
    assert await place.parts.store.idle(place.parts.generation, NUMBER, 10**15, 10) == []
    assert await place.parts.images() == place.parts.expected(talks)
    # What is written next comes up again.
    before = len(talks.rows)
    place.parts.first = talks.next_offset
    talks.summarise(due)
    await partition.process(await place.parts.put(talks.rows[before:]))
    assert await place.parts.store.idle(place.parts.generation, NUMBER, 10**15, 10) == [due]


def _erasure(key: Key) -> events.AnyEvent:
    return events.ErasedEvent(
        specversion="1.0", id=f"erasure-{key.conversation}", source=key.source, data=events.Erased()
    )


async def test_timers_and_lists_of_sleeping_conversations_stay_and_come_back_with_them(
    place: HibernationPlace,
) -> None:
    first = await place.begin()
    talks = Talks(random.Random(1), NUMBER, place.parts.keys, first)
    for key in talks.keys:
        talks.say(key, events.Opened(user="ann", policy={"idle_close_seconds": 3600}))
        talks.say(key, events.Message("user", "hello"))
        talks.say(key, events.Suspension("s", "approval"))
    partition = await place.own()
    await partition.process(await place.parts.put(talks.rows))

    async def told() -> dict[str, Any]:
        generation, tenant = place.parts.generation, talks.keys[0].tenant
        names = [
            f"recent:{tenant}",
            f"waiting:{tenant}",
            listing.place("user", tenant, "ann"),
            listing.place("state", tenant, "awaiting_approval"),
        ]
        lists = [
            [
                (item.conversation, item.at_ms)
                for item in await place.inner.listed(generation, NUMBER, name, None, 10)
            ]
            for name in names
        ]
        return {
            "timers": set(await place.inner.timers(generation, NUMBER, 10**15, 10)),
            "lists": [sorted(one) for one in lists],
        }

    before = await told()
    assert all(len(one) == len(talks.keys) for one in before["lists"])
    await place.sleep()
    assert set(await place.stubs()) == set(talks.keys)
    assert await told() == before
    assert await place.heal(await place.lose()) == len(talks.keys)
    assert set(await place.stubs()) == set(talks.keys), "what slept comes back asleep"
    assert await told() == before
    assert await place.parts.images() == place.parts.expected(talks)


async def test_a_new_owner_writes_no_record_again_of_those_that_sleep_by_their_latest(
    place: HibernationPlace,
) -> None:
    talks, partition = await asleep(place)
    await place.settle()
    await more(place, talks, partition, talks.keys[0])
    await place.sleep()
    stubs = await place.stubs()
    _, end = await place.topic.bounds(NUMBER)
    again = await place.own()
    await more(place, talks, again, talks.keys[1])
    await place.settle()
    after = await place.stubs()
    assert {key: stub for key, stub in stubs.items() if key != talks.keys[1]} == after
    begin, now = end, (await place.topic.bounds(NUMBER))[1]
    written = [row.key async for row in place.topic.scan(NUMBER, begin, now - 1)]
    assert (
        written.count(str(talks.keys[0]).encode()) <= 1
        and str(talks.keys[2]).encode() not in written
    )
    assert await sleepers(again, talks.keys) == after


async def test_conversations_in_which_something_happens_are_not_idle(
    place: HibernationPlace,
) -> None:
    talks, partition = await asleep(place)
    await more(place, talks, partition, talks.keys[0])
    store, generation = place.parts.store, place.parts.generation
    assert await store.idle(generation, NUMBER, 10**15, 10) == [talks.keys[0]]
    assert await store.idle(generation, NUMBER, partition.checkpoint.timestamp - 1, 10) == []
    assert await store.idle(generation, NUMBER, partition.checkpoint.timestamp, 10) == [
        talks.keys[0]
    ]
    assert await store.idle(generation, NUMBER, 10**15, 0) == []
