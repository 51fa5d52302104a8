"""Reads and events of sleeping conversations: one fetch, in bounded time, from a snapshot or the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from projections.errors import CorruptWindow, Healing
from projections.events import types as events
from projections.storage.layout import HEAD
from projections.storage.records import Stored
from projections.storage.snapshots import body_of
from projections.storage.stubs import STUB, encode_stub, is_packed
from streams.log.log import Row
from streams.recovery import partition_snapshots, revival
from tests.support.hibernation import HibernationPlace, asleep, in_memory, more
from tests.support.histories import RULES
from tests.support.partitions import NUMBER
from tests.support.snapshots import MemorySnapshots
from threadfold.testing import MemoryLog, MemoryStore


async def test_a_read_revives_and_writes_nothing(place: HibernationPlace) -> None:
    talks, _ = await asleep(place)
    stubs, reader = await place.stubs(), place.reader(cache_bytes=1 << 20)
    for key in talks.keys:
        checkpoint, (stored,) = await reader.read(place.parts.generation, NUMBER, [key])
        assert checkpoint is not None and stored is not None
        assert stored.load(key, NUMBER, RULES).image() == talks.windows[key].image()
        _, fields = await reader.fields(place.parts.generation, NUMBER, key, [HEAD, b"no such"])
        assert fields == {HEAD: stored.fields[HEAD]}
        _, raw = await reader.fields(place.parts.generation, NUMBER, key, [HEAD, STUB])
        assert raw.keys() == {STUB}
        _, head = await reader.head(place.parts.generation, NUMBER, key)
        assert head is not None and head.fields[HEAD] == stored.fields[HEAD]
        assert head.id_blocks == stored.id_blocks
    assert await place.stubs() == stubs
    with pytest.raises(CorruptWindow, match="it hibernates"):
        _, (bare,) = await place.inner.read(place.parts.generation, NUMBER, talks.keys[:1])
        assert bare is not None
        bare.load(talks.keys[0], NUMBER, RULES)


async def test_an_event_revives_its_conversation_alone_and_a_repeat_is_still_one(
    place: HibernationPlace,
) -> None:
    talks, partition = await asleep(place)
    key = talks.keys[1]
    repeat = talks.logs[key][0][1]
    place.parts.first = talks.next_offset
    before = len(talks.rows)
    talks.put(key, repeat)
    talks.say(key, events.Message("user", "awake"))
    await partition.process(await place.parts.put(talks.rows[before:]))
    assert partition.counts.duplicate == 1
    assert key not in await place.stubs() and len(await place.stubs()) == 3
    assert await place.parts.images() == place.parts.expected(talks)
    await place.sleep()
    assert set(await place.stubs()) == set(talks.keys)
    assert await place.parts.images() == place.parts.expected(talks)


@pytest.mark.parametrize("gone", ["emptied", "replaced", "garbage", "cut", "another"])
async def test_what_sleeps_without_its_snapshot_is_folded_from_the_log(
    gone: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = in_memory()
    assert isinstance(place.topic, MemorySnapshots)
    talks, partition = await asleep(place)
    stub = (await place.stubs())[talks.keys[0]]
    if gone == "emptied":
        place.topic.delete(NUMBER, place.topic.next[NUMBER])
    else:
        for i, row in enumerate(place.topic.rows[NUMBER]):
            if row.position.offset == stub.at:
                another = (
                    (await place.topic.read(NUMBER, [(await place.stubs())[talks.keys[1]].at]))
                    .popitem()[1]
                    .value
                )
                value = {
                    "replaced": row.value,
                    "garbage": b"\xc1",
                    "cut": (row.value or b"")[:-3],
                    "another": another,
                }[gone]
                name = b"acme/somebody-else" if gone == "replaced" else row.key
                place.topic.rows[NUMBER][i] = row._replace(value=value, key=name)
    assert await place.parts.images() == place.parts.expected(talks)
    assert "folded from the log" in caplog.text
    for key in talks.keys:
        await more(place, talks, partition, key)
    assert await place.parts.images() == place.parts.expected(talks)
    assert await place.stubs() == {}


async def test_an_emptied_topic_gets_every_sleeping_conversation_again_with_few_readings_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    place = in_memory()
    assert isinstance(place.topic, MemorySnapshots)
    talks, partition = await asleep(place)
    place.topic.delete(NUMBER, place.topic.next[NUMBER])
    await more(place, talks, partition, talks.keys[0])
    await place.settle()
    await place.sleep()
    assert set(await place.stubs()) == set(talks.keys)
    assert (
        caplog.text.count("folded from the log")
        <= 1 + len(talks.keys) // partition_snapshots.REST_AGAIN
    )
    caplog.clear()
    assert await place.parts.images() == place.parts.expected(talks)
    assert "folded from the log" not in caplog.text
    assert await place.heal(await place.lose()) == len(talks.keys)
    assert await place.parts.images() == place.parts.expected(talks)


async def test_a_later_record_of_the_same_window_serves_when_compaction_took_the_stubs_own() -> (
    None
):
    place = in_memory()
    assert isinstance(place.topic, MemorySnapshots)
    talks, _ = await asleep(place)
    for row in list(place.topic.rows[NUMBER]):
        if row.key is not None and is_packed(body_of(row.value) or b""):
            # Written again by an owner that died before it could say so.
            await place.topic.put(NUMBER, [(row.key, row.value)])
    place.topic.compact(NUMBER)
    assert not {stub.at for stub in (await place.stubs()).values()} & {
        row.position.offset for row in place.topic.rows[NUMBER]
    }
    place.parts.log = MemoryLog(4)  # nothing can be folded here
    place.inner.reader = place.reader()
    assert await place.parts.images() == place.parts.expected(talks)


async def test_neither_snapshot_nor_log_is_an_error_and_no_window() -> None:
    place = in_memory()
    assert isinstance(place.topic, MemorySnapshots)
    talks, partition = await asleep(place)
    place.topic.delete(NUMBER, place.topic.next[NUMBER])
    place.inner.reader = place.reader(MemoryLog(4))
    with pytest.raises(CorruptWindow, match="neither its snapshot nor the log"):
        await place.parts.images()
    with pytest.raises(CorruptWindow, match="gives its window"):
        await more(place, talks, partition, talks.keys[0])


async def test_a_round_that_comes_to_a_window_nobody_can_bring_back_says_so_to_the_partitions_owner() -> (
    None
):
    place = in_memory()
    assert isinstance(place.topic, MemorySnapshots)
    talks, partition = await asleep(place)
    place.topic.delete(NUMBER, place.topic.next[NUMBER])
    stub = (await place.stubs())[talks.keys[0]]
    assert isinstance(place.inner, MemoryStore)
    wrong = encode_stub(replace(stub, count=stub.count + 1))
    place.inner.replace(place.parts.generation, NUMBER, talks.keys[0], Stored({STUB: wrong}, {}))
    await more(place, talks, partition, talks.keys[1])
    async with asyncio.timeout(20):
        with pytest.raises(CorruptWindow, match="neither its snapshot nor the log"):
            while True:
                place.rounds.check(NUMBER)
                place.rounds.consider(NUMBER)
                await asyncio.sleep(0)
    place.rounds.check(NUMBER)  # said once


async def test_reads_of_one_window_at_once_are_one_fetch_and_what_was_read_is_kept() -> None:
    place = in_memory()
    assert isinstance(place.topic, MemorySnapshots)
    talks, _ = await asleep(place)
    key, reader = talks.keys[0], place.reader(cache_bytes=1 << 20)
    place.topic.reads = 0
    found = await asyncio.gather(
        *(reader.read(place.parts.generation, NUMBER, [key]) for _ in range(20))
    )
    assert place.topic.reads == 1
    assert all(
        stored is not None and stored.load(key, NUMBER, RULES).image() == talks.windows[key].image()
        for _, (stored,) in found
    )
    await reader.read(place.parts.generation, NUMBER, [key])
    assert place.topic.reads == 1
    assert reader.revival is not None
    reader.revival.forget(key)
    await reader.read(place.parts.generation, NUMBER, [key])
    assert place.topic.reads == 2
    small = place.reader(cache_bytes=1)
    for _ in range(2):
        await small.read(place.parts.generation, NUMBER, [key])
    assert place.topic.reads == 4


async def test_a_reader_that_left_does_not_end_the_fetch_of_the_others() -> None:
    place = in_memory()
    talks, _ = await asleep(place)
    key, reader = talks.keys[0], place.reader()
    leaves = asyncio.create_task(reader.read(place.parts.generation, NUMBER, [key]))
    stays = asyncio.create_task(reader.read(place.parts.generation, NUMBER, [key]))
    await asyncio.sleep(0)
    leaves.cancel()
    _, (stored,) = await stays
    assert (
        stored is not None and stored.load(key, NUMBER, RULES).image() == talks.windows[key].image()
    )


class SlowLog:
    """A log that is read from its begin only when it is allowed."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self.go = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def scan(self, partition: int, first: int, last: int) -> AsyncIterator[Row]:
        await self.go.wait()
        async for row in self._log.scan(partition, first, last):
            yield row


async def test_a_reader_for_whom_the_log_takes_too_long_may_try_again_and_finds_it_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = in_memory()
    assert isinstance(place.topic, MemorySnapshots) and isinstance(place.parts.log, MemoryLog)
    monkeypatch.setattr(revival, "MOST_SLOW", 2)
    talks, _ = await asleep(place)
    place.topic.delete(NUMBER, place.topic.next[NUMBER])
    slow = SlowLog(place.parts.log)
    reader = place.reader(slow, cache_bytes=1 << 20, patience=0.02)
    assert reader.revival is not None
    for key in talks.keys[:3]:
        with pytest.raises(
            Healing,
            match=f"conversation {key.conversation} was hibernated and its snapshot is missing",
        ):
            await reader.read(place.parts.generation, NUMBER, [key])
    slow.go.set()
    folds = [task for task in asyncio.all_tasks() if task.get_name() == "refold"]
    assert len(folds) == 2
    await asyncio.gather(*folds)
    slow.go.clear()
    for key in talks.keys[:2]:
        _, (stored,) = await reader.read(place.parts.generation, NUMBER, [key])
        assert (
            stored is not None
            and stored.load(key, NUMBER, RULES).image() == talks.windows[key].image()
        )
    await reader.revival.stop()
