"""A Redis that takes no writes: everybody who looks is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from projections.errors import RedisUnavailable, WaitTimedOut
from projections.names import Key
from projections.redis.store import RedisStore
from projections.storage.records import Verdict
from streams.custom.persistence import write_of
from streams.custom.result import Cell
from streams.custom.store import RedisProjectionStore
from streams.log.topics import create_topics
from streams.settings.settings import Settings
from tests.conftest import fresh_settings
from tests.support.commands import cli
from tests.support.gateway import say
from tests.support.gateway_outages import gateway, is_ready, make_key
from tests.support.redis_servers import Server
from tests.support.store import A, B, at, begin, write
from tests.support.worker import running_worker, until
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config
from threadfold.embedded.stack import EmbeddedStack
from threadfold.service.conversations import ConversationService
from threadfold.streaming.partial_store import PartialStore


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


async def test_text_in_progress_is_refused_by_its_cause(server: Server) -> None:
    store = PartialStore(server.url, "t", 60.0)
    server.ask("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(RedisUnavailable, match="is at its maxmemory and takes no writes"):
        await store.append(A, "turn", "text", 0, 1)
    await store.close_connections()


@pytest.mark.parametrize("first_deletes", [True, False])
async def test_a_full_server_takes_what_frees_memory_and_nothing_that_grows(
    server: Server, first_deletes: bool
) -> None:
    """Within a script it refuses the first write alone, and a write that deletes never."""
    store, new = RedisStore(server.url), Key("acme", "new")
    large = {"put": {b"0": b"x" * 10_000}}
    revision = await begin(store, 1, write(A), write(B, **large))
    server.ask("CONFIG", "SET", "maxmemory", 1 << 20)
    frees = replace(write(B, reset=True), frees=True)
    for key in (A, new):
        grows = replace(write(key, reset=first_deletes, **large), anew=first_deletes)
        for writes in ([grows], [frees, grows]):
            with pytest.raises(RedisUnavailable, match="maxmemory"):
                await store.apply(1, 0, at(revision, 1), writes)
    checkpoint, left = await store.read(1, 0, [A, B, new])
    assert checkpoint is not None and checkpoint.revision == revision
    assert [None if one is None else one.size > 10_000 for one in left] == [False, True, None]
    done = await store.apply(1, 0, at(revision, 1), [frees])
    assert done.verdict is Verdict.APPLIED
    _, (small,) = await store.read(1, 0, [B])
    assert small is not None and small.size < 100
    await store.close()


async def test_a_full_server_takes_no_value_of_a_projection_beside_one_that_goes(
    server: Server,
) -> None:
    store, a, b = RedisProjectionStore(server.url), Cell("acme", "a"), Cell("other", "b")
    first = await store.apply("p", at("", 0), write_of({a: b"1"}, {}))
    server.ask("CONFIG", "SET", "maxmemory", 1 << 20)
    with pytest.raises(RedisUnavailable, match="maxmemory"):
        await store.apply("p", at(first.revision, 1), write_of({a: None, b: b"2"}, {}))
    assert await store.load("p", [a, b]) == [b"1", None]
    freed = await store.apply("p", at(first.revision, 1), write_of({a: None}, {}))
    assert freed.verdict is Verdict.APPLIED
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
        begun = json.dumps({"turn_id": "t", "delta": "text in progress"})
        partial = await http.post("/v1/conversations/c/partial", content=begun, headers=headers)
        assert partial.status_code == 503
        assert "is at its maxmemory and takes no writes" in partial.json()["detail"]

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
