"""Which rows go out together: partitions of one broker fill their batches when it has nothing under
way.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.cluster import ClusterMetadata
from aiokafka.producer.message_accumulator import BatchBuilder

from streams.log.appender import LARGE, Appender, Brokers
from tests.support.worker import until


class Rows(list[tuple[bytes, bytes]]):
    """A caller's rows, with which a test can look whether anybody still holds them."""

    __hash__ = object.__hash__


async def give_up(
    appender: Appender, producer: Any, known: weakref.WeakSet[Rows], value: bytes
) -> None:
    """A caller that waits for its append no longer than a moment."""
    rows = Rows([(b"acme/c", value)])
    known.add(rows)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await appender.append(producer, rows)


class Producer:
    """A producer whose batches the test acknowledges; partitions below 10 are led by broker 1, the
    others by 2, and 99 by nobody.
    """

    def __init__(self) -> None:
        self.sent: list[tuple[int, int]] = []
        self.acknowledge: list[asyncio.Future[Any]] = []
        self.client = SimpleNamespace(cluster=self)

    def leader_for_partition(self, partition: TopicPartition) -> int:
        return -1 if partition.partition == 99 else 1 if partition.partition < 10 else 2

    def create_batch(self) -> BatchBuilder:
        return BatchBuilder(1 << 20, 0, is_transactional=False)

    async def send_batch(
        self, batch: BatchBuilder, topic: str, *, partition: int
    ) -> asyncio.Future[Any]:
        self.sent.append((partition, batch.record_count()))
        self.acknowledge.append(asyncio.get_running_loop().create_future())
        return self.acknowledge[-1]

    async def quiet(self) -> list[tuple[int, int]]:
        """What was sent once nothing more happens by itself."""
        for _ in range(10):
            await asyncio.sleep(0)
        return self.sent

    def settle(self, number: int) -> None:
        self.acknowledge[number].set_result(SimpleNamespace(offset=0))


def appenders(*partitions: int) -> dict[int, Appender]:
    brokers = Brokers()
    return {partition: Appender("events", partition, brokers) for partition in partitions}


async def append(appender: Appender, producer: Any, rows: int = 1) -> asyncio.Task[list[int]]:
    task = asyncio.create_task(appender.append(producer, [(b"k", b"v")] * rows))
    await asyncio.sleep(0)
    return task


async def test_partitions_that_find_their_broker_idle_in_one_moment_go_along_and_later_rows_go_together() -> (
    None
):
    to, producer = appenders(0, 1), Producer()
    first = [
        asyncio.create_task(to[partition].append(producer, [(b"k", b"v")])) for partition in (0, 1)
    ]  # type: ignore[arg-type]
    assert sorted(await producer.quiet()) == [(0, 1), (1, 1)]
    later = [
        await append(to[0], producer),
        await append(to[1], producer),
        await append(to[1], producer, 2),
    ]
    producer.settle(0)
    assert len(await producer.quiet()) == 2, "the other batch is under way to the same broker"
    producer.settle(1)
    assert sorted((await producer.quiet())[2:]) == [(0, 1), (1, 3)]
    producer.settle(2)
    producer.settle(3)
    assert sorted([await task for task in later], key=len) == [[0], [0], [1, 2]]
    assert [await task for task in first] == [[0], [0]]


async def test_another_brokers_partitions_and_those_nobody_leads_wait_for_nothing() -> None:
    to, producer = appenders(0, 10, 99), Producer()
    tasks = [await append(to[partition], producer) for partition in (0, 10, 99)]
    assert sorted(await producer.quiet()) == [(0, 1), (10, 1), (99, 1)]
    for number in range(3):
        producer.settle(number)
    assert await asyncio.gather(*tasks) == [[0], [0], [0]]


async def test_a_batch_that_is_never_acknowledged_holds_its_brokers_other_partitions_up_for_a_moment_only() -> (
    None
):
    to, producer = appenders(0, 1), Producer()
    stuck = await append(to[0], producer)
    await producer.quiet()
    other = await append(to[1], producer)

    async def went_on() -> bool:
        return len(producer.sent) == 2

    await until(went_on, 5)
    producer.settle(1)
    assert await other == [0]
    stuck.cancel()
    await asyncio.gather(stuck, return_exceptions=True)
    await to[0].stop()


async def test_large_batches_of_a_producer_go_one_by_one_and_small_ones_beside_them() -> None:
    class Wide(Producer):
        def create_batch(self) -> BatchBuilder:
            return BatchBuilder(8 << 20, 0, is_transactional=False)

    made, producer = appenders(1, 11, 12), Wide()
    given: Any = producer
    large = [
        asyncio.create_task(made[number].append(given, [(b"k", bytes(LARGE + 1))]))
        for number in (1, 11)
    ]
    assert await producer.quiet() == [(1, 1)]
    small = await append(made[12], producer)
    assert await producer.quiet() == [(1, 1), (12, 1)]
    producer.settle(1)
    await small
    producer.settle(0)
    await large[0]

    async def both_sent() -> bool:
        return len(producer.sent) == 3

    await until(both_sent)
    producer.settle(2)
    await large[1]


async def test_a_failed_batch_lets_the_others_go_on() -> None:
    to, producer = appenders(0, 1), Producer()
    failed = await append(to[0], producer)
    await producer.quiet()
    other = await append(to[1], producer)
    producer.acknowledge[0].set_exception(ConnectionError("away"))
    assert (await producer.quiet())[1:] == [(1, 1)]
    producer.settle(1)
    assert await other == [0]
    assert isinstance((await asyncio.gather(failed, return_exceptions=True))[0], ConnectionError)


async def test_callers_that_gave_up_while_kafka_does_not_answer_leave_no_bytes_behind() -> None:
    class Frozen:
        """A producer whose broker does not answer; an idempotent one tries for ever."""

        client = SimpleNamespace(cluster=ClusterMetadata())

        def create_batch(self):  # type: ignore[no-untyped-def]
            from aiokafka.producer.message_accumulator import BatchBuilder

            return BatchBuilder(1 << 20, 0, is_transactional=False)

        async def send_batch(self, *_: object, **__: object) -> object:
            return asyncio.get_running_loop().create_future()

    one, producer = Appender("events", 0), Frozen()
    rows: weakref.WeakSet[Rows] = weakref.WeakSet()
    for _ in range(200):
        await give_up(one, producer, rows, b"x" * 100_000)
    gc.collect()
    held = sum(len(value) for left in rows for _, value in left)
    await one.stop()
    assert held <= 1_000_000, f"{held} bytes of callers that gave up"


class _Batch:
    def append(self, **record: object) -> object:
        return record

    def close(self) -> None:
        return None

    def size(self) -> int:
        return 100


class _Away:
    """A producer whose broker is away: aiokafka's idempotent one never gives a batch up."""

    client = SimpleNamespace(cluster=ClusterMetadata())

    def __init__(self) -> None:
        self.sent = asyncio.Event()

    def create_batch(self) -> _Batch:
        return _Batch()

    async def send_batch(self, batch: object, topic: str, *, partition: int) -> asyncio.Future[Any]:
        self.sent.set()
        return asyncio.get_running_loop().create_future()


async def test_rows_of_callers_that_gave_up_while_kafka_is_away_do_not_pile_up() -> None:
    appender, away = Appender("events", 0), _Away()
    rows: weakref.WeakSet[Rows] = weakref.WeakSet()
    producer: Any = away
    first = asyncio.create_task(appender.append(producer, [(b"k", b"v")]))
    await away.sent.wait()
    for _ in range(50):
        await give_up(appender, producer, rows, bytes(1000))
    await asyncio.sleep(0)
    gc.collect()
    assert len(rows) == 0
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await appender.stop()
