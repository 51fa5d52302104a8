"""A Redis that was started again is found by whoever only asks after the servers, as readiness and
subscriptions do: without traffic nobody else would notice that it is another process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from projections.errors import RedisUnavailable
from projections.redis.router import RedisRouter
from projections.redis.store import RedisStore
from tests.support.redis_servers import Server

MEETINGS = 2
"""Calls that may fail: one whose connection has ended, and one that meets the other process."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "redis")
    server.start()
    yield server
    server.stop()


async def test_a_question_after_the_servers_finds_one_that_was_started_again(
    server: Server,
) -> None:
    store = RedisStore(server.url, "t")
    await store.ping()
    server.kill()
    server.start()
    for _ in range(MEETINGS):
        with suppress(RedisUnavailable):
            await store.ping()
    assert (await store.ping())["version"]
    await store.close()


async def test_a_subscription_finds_a_server_that_was_started_again(server: Server) -> None:
    servers = RedisRouter(server.url)
    assert await (await servers.any()).redis.ping()
    server.kill()
    server.start()
    for _ in range(MEETINGS):
        with suppress(RedisConnectionError):
            await (await servers.any()).redis.ping()
    assert await (await servers.any()).redis.ping()
    await servers.close()
