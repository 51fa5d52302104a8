"""Embedded servers that ask for a password."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError

from projections.errors import KafkaUnavailable
from streams.log.clients import admin_client, make_producer
from streams.log.topics import create_topics
from streams.settings.settings import Settings
from threadfold.embedded.ports import HOST
from threadfold.embedded.probe import kafka_cluster, redis_pid
from threadfold.embedded.stack import EmbeddedStack


@pytest.fixture(scope="module")
def closed() -> Iterator[EmbeddedStack]:
    with EmbeddedStack(passwords=True) as running:
        yield running


def settings_of(stack: EmbeddedStack, **changes: object) -> Settings:
    values = {**stack.addresses, "partitions": 2, "replication": 1, "min_isr": 1, **changes}
    return Settings.load({}, append_timeout=4.0, **values)


async def test_settings_of_the_stack_reach_both_servers(closed: EmbeddedStack) -> None:
    settings = settings_of(closed)
    await create_topics(settings)
    async with make_producer(settings) as producer:
        sent = await producer.send_and_wait(settings.topic("events"), b"v", partition=1)
    assert (sent.partition, sent.offset) == (1, 0)
    async with Redis.from_url(settings.redis) as redis:
        assert await redis.ping()


@pytest.mark.long
async def test_nobody_else_reads_what_is_in_them(closed: EmbeddedStack) -> None:
    assert closed.embedded_kafka is not None
    assert closed.embedded_redis is not None
    ports = closed.embedded_kafka.port, closed.embedded_redis.port
    assert kafka_cluster(HOST, ports[0] or 0) is None
    assert kafka_cluster(HOST, ports[0] or 0, ("threadfold", "guessed")) is None
    assert redis_pid(HOST, ports[1] or 0) is None
    assert redis_pid(HOST, ports[1] or 0, "guessed") is None
    async with Redis(port=ports[1]) as stranger:
        with pytest.raises(AuthenticationError):
            await stranger.keys("*")


async def test_wrong_password_is_one_clear_error(closed: EmbeddedStack) -> None:
    with pytest.raises(KafkaUnavailable, match="it accepts kafka_user and kafka_password"):
        async with admin_client(settings_of(closed, kafka_password="guessed")):
            pass
