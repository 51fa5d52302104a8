"""Clients whose brokers hang are closed all the same, and leave nothing that goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import ProducerClosed

from streams.log.clients import make_consumer, make_producer, start_client, stop_client
from streams.settings.settings import Settings
from tests.support.worker import until


class HangingBroker:
    """Stands in for a client's requests: none is answered. ``asked`` is set by the first."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def send(self, *_: object, **__: object) -> None:
        self.asked.set()
        await asyncio.get_running_loop().create_future()


@pytest.fixture
def impatient(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, append_timeout=0.3)


async def nothing_is_left_but(others: set[asyncio.Task[Any]]) -> None:
    async def ended() -> bool:
        return asyncio.all_tasks() <= others

    await until(ended)


async def test_a_producer_that_cannot_send_is_closed_and_does_not_go_on_trying(
    settings: Settings, impatient: Settings
) -> None:
    others, broker = asyncio.all_tasks(), HangingBroker()
    producer: Any = make_producer(settings)
    await start_client(producer, settings)
    topic = settings.topic("events")
    await producer.send_and_wait(topic, b"first", b"k")
    producer.client.send = broker.send
    sent = await producer.send(topic, b"second", b"k")
    await broker.asked.wait()
    await stop_client(producer, impatient)
    with pytest.raises(ProducerClosed):
        await sent
    await nothing_is_left_but(others)


async def test_a_consumer_that_cannot_leave_its_group_is_closed_and_does_not_go_on_trying(
    settings: Settings, impatient: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    others, broker = asyncio.all_tasks(), HangingBroker()
    consumer: Any = make_consumer(settings, group=settings.group)
    await start_client(consumer, settings)
    consumer.subscribe([settings.topic("events")])

    async def joined() -> bool:
        return bool(consumer.assignment())

    await until(joined)
    monkeypatch.setattr(AIOKafkaClient, "send", broker.send)
    await stop_client(consumer, impatient)
    assert broker.asked.is_set()
    await nothing_is_left_but(others)
