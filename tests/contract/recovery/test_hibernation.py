"""Hibernation in memory and real: whoever sleeps and wakes whenever, windows are the replay's, and
nothing is written by a reader.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from projections.errors import CorruptWindow, Healing
from projections.events import types as events
from projections.names import Key
from projections.policy.policy import Rules
from projections.redis.store import RedisStore
from projections.storage import listing
from projections.storage.layout import HEAD
from projections.storage.protocol import WindowStore
from projections.storage.records import Stored
from projections.storage.snapshots import MARKER_KEY, body_of
from projections.storage.stubs import STUB, Stub, decode_stub, encode_stub, is_packed
from streams.log.kafka_log import KafkaLog
from streams.log.log import Row
from streams.partition.partition import Partition
from streams.recovery import healing, partition_snapshots, revival, snapshot_writer
from streams.recovery.hibernation import sleepers
from streams.recovery.hydrating_reader import HydratingReader
from streams.recovery.revival import Revival
from streams.recovery.snapshot_topic import KafkaSnapshots
from streams.recovery.snapshot_writer import SnapshotWriter
from streams.settings.settings import Settings
from tests.contract.partition.test_partition import NUMBER, Parts, split
from tests.contract.recovery.test_healing import Place, fold
from tests.support.histories import RULES
from tests.support.snapshots import MemorySnapshots
from tests.support.talks import Talks, random_talks
from threadfold.testing import MemoryLog, MemoryStore


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds are due at once, and everything is done in small pieces, so that it interleaves."""
    monkeypatch.setattr(partition_snapshots, "EVENTS_A_WINDOW", 0)
    monkeypatch.setattr(partition_snapshots, "SLICE", 1)
    monkeypatch.setattr(partition_snapshots, "REST_AT_ONCE", 100)
    monkeypatch.setattr(partition_snapshots, "REST_AGAIN", 2)
    monkeypatch.setattr(snapshot_writer, "RETRY_AFTER", 0.0)
    monkeypatch.setattr(healing, "AT_ONCE", 2)
    monkeypatch.setattr(revival, "AT_ONCE", 2)


async def known(generation: int, tenants: set[str]) -> Rules:
    assert generation and all(tenant.startswith("acme") for tenant in tenants)
    return RULES


class Dormitory(Place):
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


@pytest.fixture(params=["memory", "real"])
async def place(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[Dormitory]:
    if request.param == "memory":
        made = in_memory()
        yield made
        await made.rounds.stop()
        await made.revival.stop()
        return
    log, store, topic = (
        KafkaLog(settings, 4),
        RedisStore(settings.redis, settings.topic_prefix),
        KafkaSnapshots(settings, 4),
    )
    made = Dormitory(Parts(log, store, settings), topic)
    yield made
    await made.rounds.stop()
    await made.revival.stop()
    await topic.stop()
    await log.stop()
    await store.close()


def in_memory() -> Dormitory:
    return Dormitory(Parts(MemoryLog(4), MemoryStore(), None), MemorySnapshots(4))


async def asleep(place: Dormitory, n: int = 12) -> tuple[Talks, Partition]:
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
    place: Dormitory, talks: Talks, partition: Partition, key: Key, text: str = "more"
) -> None:
    """One more event of a conversation, appended and folded."""
    place.parts.first = talks.next_offset
    before = len(talks.rows)
    talks.say(key, events.Message("user", text))
    await partition.process(await place.parts.put(talks.rows[before:]))


async def test_conversations_that_sleep_and_wake_at_random_have_the_windows_of_the_replay(
    place: Dormitory,
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


async def test_a_read_revives_and_writes_nothing(place: Dormitory) -> None:
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
    with pytest.raises(CorruptWindow, match="it sleeps"):
        _, (bare,) = await place.inner.read(place.parts.generation, NUMBER, talks.keys[:1])
        assert bare is not None
        bare.load(talks.keys[0], NUMBER, RULES)


async def test_an_event_revives_its_conversation_alone_and_a_repeat_is_still_one(
    place: Dormitory,
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


async def test_a_window_that_changes_while_its_record_is_written_stays(place: Dormitory) -> None:
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


async def test_an_owner_that_was_fenced_puts_nobody_to_sleep(place: Dormitory) -> None:
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
    place: Dormitory,
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
    place: Dormitory, monkeypatch: pytest.MonkeyPatch
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


async def test_a_reader_for_whom_the_log_takes_too_long_is_told_to_try_again_and_finds_it_then(
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
            Healing, match=f"conversation {key.conversation} slept and its snapshot is gone"
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


async def test_a_window_whose_summary_comes_while_others_are_put_to_sleep_comes_up_again(
    place: Dormitory,
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


async def test_due_and_erased_windows_stay_and_do_not_hold_the_others_up(place: Dormitory) -> None:
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
    place: Dormitory,
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
    place: Dormitory,
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


async def test_conversations_in_which_something_happens_are_not_idle(place: Dormitory) -> None:
    talks, partition = await asleep(place)
    await more(place, talks, partition, talks.keys[0])
    store, generation = place.parts.store, place.parts.generation
    assert await store.idle(generation, NUMBER, 10**15, 10) == [talks.keys[0]]
    assert await store.idle(generation, NUMBER, partition.checkpoint.timestamp - 1, 10) == []
    assert await store.idle(generation, NUMBER, partition.checkpoint.timestamp, 10) == [
        talks.keys[0]
    ]
    assert await store.idle(generation, NUMBER, 10**15, 0) == []
