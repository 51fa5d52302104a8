"""What every log promises, run against the one in memory and the one in Kafka."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.partitioner import DefaultPartitioner

from projections.errors import EventTooLarge, KafkaUnavailable
from projections.events.validation import Record
from projections.names import Key, Position, partition_of
from streams.log.kafka_log import KafkaLog
from streams.log.log import Log
from streams.log.rollback_cache import RollbackCache
from streams.settings.settings import Settings
from tests.support.ports import closed_port
from threadfold.testing import MemoryLog

PARTITIONS = 4


@pytest.fixture(params=["memory", "remembered", "real"])
async def log(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[Log]:
    if request.param != "real":
        memory = MemoryLog(PARTITIONS)
        yield memory if request.param == "memory" else RollbackCache(memory)
        return
    real = KafkaLog(settings, PARTITIONS)
    yield real
    await real.stop()


def record(key: Key, id_: str, size: int = 0) -> Record:
    return Record(
        key,
        id_,
        "threadfold.message.v1",
        id_.encode() + b" " + random.Random(id_).randbytes(size // 2).hex().encode(),
    )


def records(conversation: str, n: int, size: int = 0) -> list[Record]:
    key = Key("acme", conversation)
    return [record(key, f"{conversation}-{i}", size) for i in range(n)]


async def ends(log: Log) -> dict[int, int]:
    return dict(await log.end_offsets())


async def test_a_list_of_one_conversation_lands_in_order_in_its_partition(log: Log) -> None:
    before = await ends(log)
    wanted = records("order", 20)
    positions = await log.append(wanted)
    partition = partition_of(Key("acme", "order"), PARTITIONS)
    assert positions == [Position(partition, before[partition] + i) for i in range(20)]
    found = await log.read(positions)
    assert [found[p].value for p in positions] == [r.value for r in wanted]
    assert {found[p].key for p in positions} == {b"acme/order"}
    assert all(found[p].position == p for p in positions)


@pytest.mark.parametrize("apart", [1, 100])
async def test_records_within_some_bytes_are_the_first_in_the_order_asked_for(
    log: Log, apart: int
) -> None:
    mixed = [records(name, 12, size=300_000 * (name == "large")) for name in ("small", "large")]
    positions: list[Position] = []
    for wanted in mixed:
        for one in wanted:
            positions += await log.append([one])
            await log.append(records("small", apart - 1))
    for asked in (positions, positions[::-1]):
        left, seen, most = list(asked), [], 0
        while left:
            found, count = await log.read_within(left, 1 << 20)
            assert set(found) == set(left[:count])
            most = max(most, sum(len(raw.value or b"") for raw in found.values()))
            seen += left[:count]
            left = left[count:]
        assert seen == asked
        assert most < 1_500_000
    found, count = await log.read_within(positions[:12], 1 << 20)
    assert count == 12, "small records come together"
    found, count = await log.read_within(positions[-2:], 1)
    assert list(found) == positions[-2:-1], "one comes however large it is"
    assert count == 1


async def test_a_list_over_several_conversations_answers_positions_in_the_callers_order(
    log: Log,
) -> None:
    wanted = [record(Key("acme", f"many{i % 7}"), f"m{i}") for i in range(60)]
    positions = await log.append(wanted)
    assert [p.partition for p in positions] == [partition_of(r.key, PARTITIONS) for r in wanted]
    for partition in range(PARTITIONS):
        offsets = [p.offset for p in positions if p.partition == partition]
        assert offsets == sorted(offsets)
    found = await log.read(positions)
    assert [found[p].value for p in positions] == [r.value for r in wanted]


async def test_an_empty_list_appends_nothing(log: Log) -> None:
    before = await ends(log)
    assert await log.append([]) == []
    assert await ends(log) == before


async def test_one_record_by_itself_gets_the_next_position(log: Log) -> None:
    partition = partition_of(Key("acme", "single"), PARTITIONS)
    before = (await ends(log))[partition]
    assert await log.append(records("single", 1)) == [Position(partition, before)]
    assert (await ends(log))[partition] == before + 1


async def test_timestamps_are_the_logs_own_and_do_not_run_backwards(log: Log) -> None:
    began = int(time.time() * 1000)
    positions = [(await log.append([r]))[0] for r in records("clock", 5)]
    stamps = [(await log.read([p]))[p].timestamp for p in positions]
    assert stamps == sorted(stamps)
    assert began - 5_000 <= stamps[0] <= stamps[-1] <= began + 60_000


async def test_positions_that_the_log_does_not_hold_are_absent(log: Log) -> None:
    positions = await log.append(records("missing", 3))
    partition, last = positions[-1]
    absent = [
        Position(partition, last + 1),
        Position(partition, 10**15),
        Position(partition, -1),
        Position(PARTITIONS, 0),
        Position(-1, 0),
    ]
    assert set(await log.read([*positions, *absent])) == set(positions)
    assert await log.read(absent) == {}
    assert await log.read([]) == {}


async def test_a_position_asked_for_twice_is_answered_once(log: Log) -> None:
    positions = await log.append(records("twice", 2))
    assert len(await log.read([*positions, *positions])) == 2


async def test_scattered_positions_far_apart_are_read_together(log: Log) -> None:
    positions = await log.append(records("scattered", 1_200))
    wanted = [positions[i] for i in (0, 1, 350, 700, 701, 1_199)]
    found = await log.read(reversed(wanted))
    assert [found[p].value for p in wanted] == [
        r.value for i, r in enumerate(records("scattered", 1_200)) if positions[i] in found
    ]


async def test_a_range_is_read_with_both_ends(log: Log) -> None:
    positions = await log.append(records("range", 30))
    partition, first = positions[0]
    rows = [raw async for raw in log.scan(partition, first + 5, first + 9)]
    assert [raw.position.offset - first for raw in rows] == [5, 6, 7, 8, 9]


async def test_a_range_over_the_end_or_before_the_beginning_gives_what_there_is(log: Log) -> None:
    positions = await log.append(records("edges", 3))
    partition, first = positions[0]
    end = (await ends(log))[partition]
    assert [raw.position.offset async for raw in log.scan(partition, first, end + 100)] == list(
        range(first, end)
    )
    whole = [raw.position.offset async for raw in log.scan(partition, -50, end)]
    assert whole == list(range(end))
    assert [raw async for raw in log.scan(partition, end, end + 10)] == []
    assert [raw async for raw in log.scan(partition, first + 2, first)] == []


async def test_an_empty_partition_ends_at_zero_and_is_read_as_empty(
    log: Log, settings: Settings
) -> None:
    fresh: Log = MemoryLog(PARTITIONS)
    if isinstance(log, KafkaLog):
        from streams.log.topics import create_topics

        other = Settings.load(
            env={},
            **{
                **{n: getattr(settings, n) for n in settings.__struct_fields__},
                "topic_prefix": "empty",
            },
        )
        await create_topics(other)
        fresh = KafkaLog(other, PARTITIONS)
    assert await fresh.end_offsets() == dict.fromkeys(range(PARTITIONS), 0)
    assert [raw async for raw in fresh.scan(0, 0, 100)] == []
    assert await fresh.read([Position(0, 0)]) == {}
    if isinstance(fresh, KafkaLog):
        await fresh.stop()


async def test_a_log_that_lost_nothing_begins_at_zero(log: Log) -> None:
    await log.append(records("begins", 3))
    assert await log.beginning_offsets() == dict.fromkeys(range(PARTITIONS), 0)


async def test_fifty_readers_and_scans_beside_appends_do_not_mix_up(log: Log) -> None:
    wanted = records("crowd", 600, 200)
    positions = await log.append(wanted)
    value_at = {p: r.value for p, r in zip(positions, wanted, strict=True)}
    partition, first = positions[0]
    rng = random.Random(4)

    async def read() -> None:
        some = rng.sample(positions, 12)
        assert {p: raw.value for p, raw in (await log.read(some)).items()} == {
            p: value_at[p] for p in some
        }

    async def scan() -> None:
        begin = rng.randrange(550)
        rows = [raw async for raw in log.scan(partition, first + begin, first + begin + 49)]
        assert [raw.value for raw in rows] == [r.value for r in wanted[begin : begin + 50]]

    async def append(i: int) -> None:
        mine = records(f"crowd{i}", 9)
        found = await log.read(there := await log.append(mine))
        assert [found[p].value for p in there] == [r.value for r in mine]

    await asyncio.gather(
        *(read() for _ in range(25)), *(scan() for _ in range(25)), *(append(i) for i in range(10))
    )


async def test_lists_appended_at_once_do_not_lose_their_order(log: Log) -> None:
    lists = [records("race", 40) for _ in range(8)]
    answers = await asyncio.gather(*(log.append(some) for some in lists))
    for positions in answers:
        offsets = [p.offset for p in positions]
        assert offsets == sorted(offsets)
    assert len({p for positions in answers for p in positions}) == 320


async def test_a_list_larger_than_a_batch_lands_whole_and_in_order(log: Log) -> None:
    wanted = records("large", 3_000, 2_000)
    positions = await log.append(wanted)
    assert [p.offset for p in positions] == list(
        range(positions[0].offset, positions[0].offset + 3_000)
    )
    rows = [
        raw.value
        async for raw in log.scan(positions[0].partition, positions[0].offset, positions[-1].offset)
    ]
    assert rows == [r.value for r in wanted]


async def test_a_record_of_five_megabytes_comes_back_alone_and_among_others(log: Log) -> None:
    big = record(Key("acme", "big"), "big", 5 << 20)
    small = records("big", 2)
    alone = (await log.append([big]))[0]
    listed = await log.append([small[0], big, small[1]])
    found = await log.read([alone, *listed])
    assert found[alone].value == big.value
    assert [found[p].value for p in listed] == [small[0].value, big.value, small[1].value]


async def test_kafkas_own_partitioner_agrees_with_ours(settings: Settings) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=settings.kafka)
    await producer.start()
    try:
        for i in range(40):
            key = Key("acme", f"{'c' * (i % 9)}{i}")
            sent = await producer.send_and_wait(settings.topic("events"), b"x", str(key).encode())
            assert sent.partition == partition_of(key, PARTITIONS), key
    finally:
        await producer.stop()


def test_the_partitioner_agrees_for_keys_of_any_length_and_any_partition_count() -> None:
    theirs = DefaultPartitioner()
    rng = random.Random(1)
    for _ in range(2_000):
        key = Key(
            "".join(rng.choices("aZ09._:-", k=rng.randint(1, 20))),
            "".join(rng.choices("bY18._:-", k=rng.randint(1, 128))),
        )
        count = rng.choice([1, 3, 16, 1_000])
        partitions = list(range(count))
        assert partition_of(key, count) == theirs(str(key).encode(), partitions, partitions), key


async def test_an_event_over_what_kafka_takes_is_refused_by_its_id_and_nothing_of_its_list_is_appended(
    settings: Settings,
) -> None:
    log = KafkaLog(settings, PARTITIONS)
    huge = record(Key("acme", "huge"), "huge", 17 << 20)
    before = await log.end_offsets()
    try:
        for some in ([huge], [huge, huge], [*records("huge", 2), huge]):
            with pytest.raises(EventTooLarge, match="event huge: 17825797 bytes"):
                await log.append(some)
        assert await log.end_offsets() == before
    finally:
        await log.stop()


async def test_without_kafka_every_call_says_so_in_bounded_time() -> None:
    log = KafkaLog(
        Settings.load(env={}, kafka=f"127.0.0.1:{closed_port()}", append_timeout=3.0), PARTITIONS
    )
    began = time.monotonic()
    with pytest.raises(KafkaUnavailable, match="unknown whether it is in"):
        await log.append(records("away", 1))
    with pytest.raises(KafkaUnavailable, match="reading the log"):
        await log.read([Position(0, 0)])
    with pytest.raises(KafkaUnavailable, match="reading the log"):
        _ = [raw async for raw in log.scan(0, 0, 5)]
    with pytest.raises(KafkaUnavailable):
        await log.end_offsets()
    assert time.monotonic() - began < 45
    await log.stop()
