"""Where requests are read from once partitions were given out anew."""

from __future__ import annotations

import asyncio
from time import monotonic
from unittest.mock import AsyncMock, Mock

import pytest
from faust.types import TP

from streams.log.clients import AIOKafkaConsumer, TopicPartition, make_consumer, make_producer
from streams.settings.settings import Settings
from streams.worker import Consumer, ConsumerThread, create_app
from tests.support.worker import until

REQUESTS = TP("requests", 0)


class Thread(ConsumerThread):
    """The part that seeks, with a consumer of its own, on the caller's loop."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer

    async def call_thread(self, called, *args):  # type: ignore[no-untyped-def]
        return await called(*args)


async def test_requests_that_were_fetched_are_read_again_until_some_are_committed(
    settings: Settings,
) -> None:
    topic = settings.topic("compactions")
    async with make_producer(settings) as producer:
        for n in range(3):
            await producer.send_and_wait(topic, b"request", partition=n % 2)
    consumer = make_consumer(settings, group=f"{settings.topic_prefix}.positions")
    consumer.subscribe([topic])
    async with consumer:
        thread, both = Thread(consumer), [TopicPartition(topic, n) for n in (0, 1)]

        async def read_to(*ends: int) -> None:
            async def there() -> bool:
                await consumer.getmany(timeout_ms=100)
                return [await consumer.position(tp) for tp in both] == list(ends)

            await until(there)

        await read_to(2, 1)
        assert [(await thread.seek_to_committed())[tp] for tp in both] == [None, None]
        assert [await consumer.position(tp) for tp in both] == [0, 0]
        await read_to(2, 1)
        await consumer.commit({both[0]: 1})
        assert [(await thread.seek_to_committed())[tp] for tp in both] == [1, None]
        assert [await consumer.position(tp) for tp in both] == [1, 0]


async def test_a_look_at_a_partition_that_is_sought_does_not_end_the_worker(
    settings: Settings,
) -> None:
    topic = settings.topic("compactions")
    tp = TopicPartition(topic, 2)
    async with make_producer(settings) as producer:
        await producer.send_and_wait(topic, b"request", partition=2)
    consumer = make_consumer(settings)
    consumer.assign([tp])
    async with consumer:
        thread = Thread(consumer)
        thread.consumer, thread.time_started = Mock(), monotonic()
        thread.consumer.app.monitor.stream_inbound_time = {}
        thread.tp_fetch_request_timeout_secs = thread.tp_stream_timeout_secs = 1e9
        await consumer.seek_to_beginning(tp)
        assert await consumer.getone(tp)
        seeks = asyncio.create_task(consumer.seek_to_beginning(tp))
        while not seeks.done():
            thread.verify_event_path(monotonic(), tp)
            await asyncio.sleep(0)
        await seeks
        thread.verify_event_path(monotonic(), tp)


class Committing(Consumer):
    """Kafka commits, or gives the partitions out anew meanwhile; nothing was committed before."""

    kept = True
    sought = False

    def assignment(self) -> set[TP]:
        return {REQUESTS}

    async def seek_to_committed(self) -> dict[TP, int | None]:
        return {REQUESTS: None}

    async def _commit(self, offsets: dict[TP, int]) -> bool:
        if not self.kept:
            await self.on_partitions_revoked({REQUESTS})
            if self.sought:
                await self.perform_seek()
        return self.kept


@pytest.mark.parametrize("sought", [False, True], ids=["then-sought", "sought-meanwhile"])
async def test_requests_whose_commit_failed_are_acknowledged_when_they_come_again(
    settings: Settings, sought: bool
) -> None:
    app = create_app(settings)
    app.topics.acks_enabled_for = lambda topic: True
    app.producer.flush = AsyncMock()
    nobody = AsyncMock()
    consumer = Committing(app.transport, nobody, nobody, nobody)

    def acknowledged(offset: int) -> bool:
        message = Mock(acked=False, tp=REQUESTS, offset=offset, topic=REQUESTS.topic)
        return bool(consumer.ack(message))

    assert acknowledged(0) and acknowledged(1)
    consumer.kept, consumer.sought = False, sought
    assert not await consumer.commit()
    if not sought:
        await consumer.perform_seek()
    consumer.kept = True
    assert acknowledged(0) and acknowledged(1)
    assert await consumer.commit()
    assert not acknowledged(1) and acknowledged(2)
