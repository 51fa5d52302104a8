"""Clients whose brokers hang are closed all the same, and leave nothing that goes on. Those that
begin when no broker is known wait for one.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import msgspec
import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import ProducerClosed, UnknownMemberIdError
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.metadata import MetadataRequest

from streams.log.clients import make_consumer, make_producer, start_client, stop_client
from streams.log.consumer_group import Commits
from streams.log.topics import partition_count
from streams.settings.settings import Settings
from tests.support.worker import until


class HangingBroker:
    """Stands in for a client's requests: none is answered before ``refuses`` is set. ``asked`` is
    set by the first.
    """

    def __init__(self) -> None:
        self.asked, self.refuses = asyncio.Event(), asyncio.Event()

    async def send(self, *_: object, **__: object) -> None:
        self.asked.set()
        await self.refuses.wait()
        raise UnknownMemberIdError


@pytest.fixture
def impatient(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, append_timeout=0.3)


async def joined(settings: Settings) -> Any:
    """A consumer that is a member of a group."""
    consumer = make_consumer(settings, group=settings.group)
    await start_client(consumer, settings)
    consumer.subscribe([settings.topic("events")])

    async def assigned() -> bool:
        return bool(consumer.assignment())

    await until(assigned)
    return consumer


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
    consumer = await joined(settings)
    monkeypatch.setattr(AIOKafkaClient, "send", broker.send)
    await stop_client(consumer, impatient)
    assert broker.asked.is_set()
    await nothing_is_left_but(others)


@pytest.mark.long
async def test_a_last_commit_that_fails_when_nobody_waits_for_it_any_more_is_no_complaint(
    settings: Settings, impatient: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, complaints, broker = asyncio.get_running_loop(), list[object](), HangingBroker()
    monkeypatch.setattr(loop, "call_exception_handler", complaints.append)
    consumer, others = await joined(settings), asyncio.all_tasks()
    send = AIOKafkaClient.send

    async def commits_hang(client: Any, node: int, request: object, **options: Any) -> Any:
        hangs = isinstance(request, OffsetCommitRequest)
        return await (broker.send() if hangs else send(client, node, request, **options))

    with monkeypatch.context() as patched:
        patched.setattr(AIOKafkaClient, "send", commits_hang)
        await Commits(impatient, settings.topic("events")).last(consumer, {0: 5})
        assert broker.asked.is_set()
        broker.refuses.set()

        async def ended() -> bool:
            names = {task.get_coro().__qualname__ for task in asyncio.all_tasks() - others}
            return not any("commit" in name for name in names)

        await until(ended)
    await stop_client(consumer, settings)
    gc.collect()
    assert not complaints


async def test_a_command_waits_while_the_cluster_names_no_broker(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers, none_yet = ClusterMetadata.brokers, [set[object](), set[object]()]

    def named(cluster: Any) -> Any:
        return none_yet.pop() if none_yet else brokers(cluster)

    monkeypatch.setattr(ClusterMetadata, "brokers", named)
    assert await partition_count(settings) == settings.partitions
    assert not none_yet


async def test_a_start_that_is_cancelled_twice_leaves_no_client_that_is_closed_in_part() -> None:
    class Client:
        begun, closing, goes_on, closed = (asyncio.Event() for _ in range(4))

        async def start(self) -> None:
            self.begun.set()
            await asyncio.Event().wait()

        async def stop(self) -> None:
            self.closing.set()
            await self.goes_on.wait()
            self.closed.set()

    client = Client()
    starting = asyncio.create_task(start_client(client, Settings(kafka="unused", redis="unused")))
    for reached in (client.begun, client.closing):
        await reached.wait()
        starting.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await starting
    client.goes_on.set()
    await asyncio.wait_for(client.closed.wait(), 30)


async def test_a_start_that_is_cancelled_while_it_asks_for_the_brokers_leaves_no_connection(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ask, used = asyncio.Event(), AIOKafkaConnection.send, set()

    def send(connection: Any, request: Any, *more: Any, **options: Any) -> Any:
        used.add(connection)  # what nobody refers to is closed by and by
        answer = ask(connection, request, *more, **options)
        if isinstance(request, MetadataRequest):
            asked.set()
        return answer

    monkeypatch.setattr(AIOKafkaConnection, "send", send)
    others = asyncio.all_tasks()
    starting = asyncio.create_task(start_client(make_consumer(settings), settings))
    await asked.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert used and not any(connection.connected() for connection in used)
    await nothing_is_left_but(others)
