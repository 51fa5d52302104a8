"""A Redis that takes no writes: everybody who looks is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from projections.errors import WaitTimedOut
from projections.redis.store import RedisStore
from streams.log.topics import create_topics
from streams.settings.settings import Settings
from tests.conftest import fresh_settings
from tests.support.commands import cli
from tests.support.gateway import say
from tests.support.gateway_outages import gateway, is_ready, make_key
from tests.support.redis_servers import Server
from tests.support.worker import running_worker, until
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config
from threadfold.embedded.stack import EmbeddedStack
from threadfold.service.conversations import ConversationService


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = Server(tmp_path / "redis")
    await asyncio.to_thread(made.start)
    yield made
    await asyncio.to_thread(made.stop)


async def test_store_reports_why_it_takes_no_writes(server: Server) -> None:
    store = RedisStore(server.url)
    assert (await store.ping())["refuses"] == ""
    server.ask("CONFIG", "SET", "maxmemory", 1 << 20)
    assert "is at its maxmemory" in (await store.ping())["refuses"]
    server.ask("CONFIG", "SET", "maxmemory", 1 << 30)
    assert (await store.ping())["refuses"] == ""
    await store.close()


async def test_replica_and_a_server_without_its_snapshot_are_reported(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    server = Server(tmp_path / "redis", dir=data, save="3600 1000000")
    await asyncio.to_thread(server.start)
    store = RedisStore(server.url)

    async def refuses() -> str:
        return str((await store.ping())["refuses"])

    async def is_refused() -> bool:
        return "cannot write its snapshot" in await refuses()

    try:
        assert await refuses() == ""
        server.ask("REPLICAOF", "127.0.0.1", 1)
        assert "is a replica" in await refuses()
        server.ask("REPLICAOF", "NO", "ONE")
        assert await refuses() == ""
        data.rmdir()
        server.ask("BGSAVE")
        await until(is_refused)
        server.ask("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
        assert await refuses() == ""
    finally:
        await store.close()
        await asyncio.to_thread(server.stop)


@pytest.mark.long
async def test_full_redis_is_named_wherever_one_looks_and_contexts_say_how_old_they_are(
    stack: EmbeddedStack, server: Server, tmp_path: Path
) -> None:
    settings = fresh_settings(stack, redis=server.url, stale_after=0.5)
    await create_topics(settings)
    headers = {"Authorization": f"Bearer {await make_key(settings)}"}
    write_config(tmp_path / CONFIG_FILE, settings)
    async with gateway(settings) as http, running_worker(settings):

        async def append(text: str, query: str = "") -> httpx.Response:
            path = f"/v1/conversations/c/events{query}"
            return await http.post(path, content=json.dumps(say(text)), headers=headers)

        async def context() -> dict[str, object]:
            answer = await http.get("/v1/conversations/c/context", headers=headers)
            assert answer.status_code == 200
            return dict(answer.json())

        await is_ready(http)
        assert (await append("before", "?wait=applied")).status_code == 200
        assert "stale" not in await context()
        assert "redis" not in (await http.get("/readyz")).json()
        assert "threadfold_redis_refuses_writes 0.0" in (await http.get("/metrics")).text

        server.ask("CONFIG", "SET", "maxmemory", 1 << 20)
        assert (await append("behind")).status_code == 202
        ready = await http.get("/readyz")
        assert ready.status_code == 200
        assert f"{server.place}/0 is at its maxmemory" in ready.json()["redis"]
        metrics = (await http.get("/metrics")).text
        assert "threadfold_redis_refuses_writes 1.0" in metrics
        assert "threadfold_redis_maxmemory_bytes 1.048576e+06" in metrics
        doctor = await cli("doctor", "--data", tmp_path)
        assert doctor.code == 1
        assert "maxmemory" in doctor.out + doctor.err
        await refused_wait(settings)

        async def stale() -> bool:
            return float(str((await context()).get("stale", 0.0))) > settings.stale_after

        await until(stale)

        server.ask("CONFIG", "SET", "maxmemory", 0)
        assert (await append("after", "?wait=applied")).status_code == 200
        found = await context()
        assert found["count"] == 4
        assert "stale" not in found


async def refused_wait(settings: Settings) -> None:
    async with ConversationService(settings) as backend:
        appended = await backend.append("acme", [("c", say("also behind"))])
        with pytest.raises(WaitTimedOut, match="is at its maxmemory"):
            await backend.wait_applied("acme", "c", appended, timeout=0.5)
