"""Appending under load on a real Kafka: order, fairness, what is refused, and what a caller that
gives up leaves behind.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka.errors import KafkaError, NotLeaderForPartitionError, ProducerClosed

from projections.errors import KafkaUnavailable, Overloaded
from projections.events.validation import Record
from projections.names import Key, partition_of
from streams.log.appender import Load
from streams.log.clients import SharedProducer
from streams.log.kafka_log import KafkaLog
from streams.settings.settings import Settings
from tests.support.worker import until

PARTITIONS = 4


@pytest.fixture
def shared(settings: Settings) -> SharedProducer:
    return SharedProducer(settings)


@pytest.fixture
def load() -> Load:
    return Load(1_000_000, 1_000_000, 600_000)


@pytest.fixture
async def log(settings: Settings, shared: SharedProducer, load: Load) -> AsyncIterator[KafkaLog]:
    made = KafkaLog(settings, PARTITIONS, producer=shared, load=load)
    yield made
    await made.stop()


def records(conversation: str, *ids: str, size: int = 0) -> list[Record]:
    return [
        Record(Key("acme", conversation), id_, "threadfold.message.v1", id_.encode() + b" " * size)
        for id_ in ids
    ]


async def test_single_events_do_not_wait_for_another_callers_large_list(
    settings: Settings,
) -> None:
    log = KafkaLog(settings, 1)
    await asyncio.gather(
        log.append(records("small", "first")), log.append(records("large", "first", size=2 << 20))
    )
    noise = [os.urandom(1 << 20) for _ in range(28)]  # which does not become smaller by a codec
    large = [
        Record(Key("acme", "large"), str(i), "threadfold.message.v1", value)
        for i, value in enumerate(noise)
    ]
    sending = asyncio.create_task(log.append(large))
    acknowledged = 0
    while not sending.done():
        await log.append(records("small", str(acknowledged)))
        acknowledged += 1
    assert len(await sending) == len(large)
    await log.stop()
    # The list goes out as two batches; who waits for them has a turn before, between and after.
    assert acknowledged > 6


async def test_five_hundred_callers_on_one_partition_are_all_served_each_list_in_order_and_unmixed(
    log: KafkaLog,
) -> None:
    lists = [records("hot", *(f"{caller}-{i}" for i in range(5))) for caller in range(500)]
    answers = await asyncio.gather(*(log.append(some) for some in lists))
    starts = sorted(positions[0].offset for positions in answers)
    for positions in answers:
        assert [p.offset for p in positions] == list(
            range(positions[0].offset, positions[0].offset + 5)
        )
    assert [b - a for a, b in itertools.pairwise(starts)] == [5] * 499
    found = await log.read([p for positions in answers for p in positions])
    for some, positions in zip(lists, answers, strict=True):
        assert [found[p].value for p in positions] == [r.value for r in some]


async def test_what_came_while_a_batch_was_under_way_goes_out_together(
    log: KafkaLog, shared: SharedProducer
) -> None:
    await log.append(records("warm", "w"))
    producer = await shared.get()
    sent: list[int] = []
    send_batch = producer.send_batch

    async def counted(batch, topic, *, partition):  # type: ignore[no-untyped-def]
        sent.append(batch.record_count())
        return await send_batch(batch, topic, partition=partition)

    producer.send_batch = counted
    await asyncio.gather(*(log.append(records("together", f"t{i}")) for i in range(300)))
    assert sum(sent) == 300
    assert len(sent) <= 3


async def test_a_caller_that_gives_up_before_its_turn_leaves_nothing_and_the_others_are_served(
    log: KafkaLog, load: Load
) -> None:
    await log.append(records("quit", "first"))
    ahead = asyncio.create_task(log.append(records("quit", "ahead", size=500_000)))
    await asyncio.sleep(0)
    gone = asyncio.create_task(log.append(records("quit", "gone")))
    behind = asyncio.create_task(log.append(records("quit", "behind")))
    await asyncio.sleep(0)
    gone.cancel()
    first, last = (await ahead)[0], (await behind)[0]
    values = [raw.value async for raw in log.scan(first.partition, first.offset, last.offset)]
    assert [value.split()[0] for value in values if value] == [b"ahead", b"behind"]
    assert gone.cancelled()
    with load.of({("acme", 0): 2_000_000}):  # accepted only beside nothing else
        pass


@pytest.mark.parametrize("steps", [1, 2, 3])
async def test_a_stopped_log_tells_those_who_still_wait(log: KafkaLog, steps: int) -> None:
    await log.append(records("stop", "before"))
    waiting = asyncio.create_task(log.append(records("stop", "waiting")))
    for _ in range(steps):
        await asyncio.sleep(0)
    await log.stop()
    with pytest.raises(KafkaUnavailable, match="unknown whether it is in") as caught:
        await waiting
    assert isinstance(caught.value.__cause__, ProducerClosed)


async def test_a_failed_batch_is_reported_to_its_callers_and_the_next_one_is_sent(
    log: KafkaLog, shared: SharedProducer
) -> None:
    await log.append(records("fail", "before"))
    producer = await shared.get()
    send_batch = producer.send_batch

    async def broken(batch, topic, *, partition):  # type: ignore[no-untyped-def]
        raise OSError("no route to it")

    producer.send_batch = broken
    with pytest.raises(KafkaUnavailable, match="no route to it"):
        await log.append(records("fail", "lost"))
    producer.send_batch = send_batch
    position = (await log.append(records("fail", "after")))[0]
    assert (await log.read([position]))[position].value == b"after"


async def test_beyond_the_bound_a_list_is_refused_at_once_and_accepted_again_later(
    log: KafkaLog,
) -> None:
    under_way = asyncio.create_task(log.append(records("full", "a", size=500_000)))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="being written to partition"):
        await log.append(records("full", "b", size=200_000))
    await under_way
    assert len(await log.append(records("full", "c", size=200_000))) == 1


async def ends_quietly(
    shared: SharedProducer, producer: Any, sent: asyncio.Future[Any], others: set[Any]
) -> None:
    """Give a producer up: its send fails, and nothing but the other tasks is left."""
    shared.abandon(producer)
    with pytest.raises(KafkaError, match="could not be sent"):
        await sent

    async def ended() -> bool:
        return asyncio.all_tasks() <= others

    await until(ended)


async def test_a_producer_that_is_given_up_between_two_tries_ends_without_a_complaint(
    shared: SharedProducer, settings: Settings
) -> None:
    loop, complaints, others = asyncio.get_running_loop(), list[object](), asyncio.all_tasks()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    producer, topic, tried = await shared.get(), settings.topic("events"), asyncio.Event()
    await producer.send_and_wait(topic, b"first", b"k")

    async def fails(node: int, request: object) -> None:
        tried.set()
        raise NotLeaderForPartitionError

    producer.client.send = fails
    sent = await producer.send(topic, b"second", b"k")
    await tried.wait()
    await ends_quietly(shared, producer, sent, others)
    assert not complaints


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_a_producer_that_is_given_up_just_before_it_sends_ends_without_a_complaint(
    shared: SharedProducer, settings: Settings, turns: int, caplog: pytest.LogCaptureFixture
) -> None:
    producer, topic, others = await shared.get(), settings.topic("events"), asyncio.all_tasks()
    loop, complaints = asyncio.get_running_loop(), list[object]()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    await producer.send_and_wait(topic, b"first", b"k")
    sent = await producer.send(topic, b"second", b"k")
    for _ in range(turns):
        await asyncio.sleep(0)
    time.sleep(0.01)  # noqa: ASYNC251 (a process that stood still: its next look sends the record)
    await ends_quietly(shared, producer, sent, others)
    assert not complaints
    # Other tests' clients may still look for their servers.
    assert not [one for one in caplog.records if one.name.startswith("aiokafka.producer")]


async def test_one_tenants_full_share_of_a_partition_refuses_no_other_tenant(log: KafkaLog) -> None:
    mine = [*records("full", "a", size=500_000), *records("full", "b", size=90_000)]
    under_way = asyncio.create_task(log.append(mine))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="being written to partition"):
        await log.append(records("full", "c", size=20_000))
    others = (Key("other", f"talk{i}") for i in itertools.count())
    key = next(
        key
        for key in others
        if partition_of(key, PARTITIONS) == partition_of(mine[0].key, PARTITIONS)
    )
    assert len(await log.append([Record(key, "d", "message", bytes(20_000))])) == 1
    await under_way


def test_load_is_bounded_in_all_by_tenant_and_by_partition_and_given_back() -> None:
    load = Load(most=100, most_of_tenant=80, most_of_one=60)
    with load.of({("a", 0): 50}):
        with pytest.raises(Overloaded, match="partition 0"), load.of({("a", 0): 11}):
            pass
        with pytest.raises(Overloaded, match="written to the log"), load.of({("a", 1): 31}):
            pass
        with (
            load.of({("b", 0): 50}),
            pytest.raises(Overloaded, match="written to the log"),
            load.of({("c", 2): 1}),
        ):
            pass
        with load.of({("a", 0): 10, ("b", 1): 40}):
            pass
    with load.of({("a", 0): 1000}):  # alone, one of any size
        pass
    with pytest.raises(KeyError), load.of({("a", 3): 60}):
        raise KeyError
    with load.of({("a", 3): 100}):
        pass
