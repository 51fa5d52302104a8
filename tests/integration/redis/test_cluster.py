"""All of it on a cluster of three masters: a worker process, a gateway, and everything that is kept
in Redis.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from projections.errors import RedisUnavailable
from projections.names import Key, make_key
from projections.redis.shared_buckets import Settling, SharedBuckets
from projections.redis.store import RedisStore
from projections.storage.records import NOTHING, Checkpoint, DueChange, Write
from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.log.kafka_log import KafkaLog
from streams.log.topics import create_topics
from streams.rebuild.rebuild import rebuild
from streams.settings.settings import Settings
from tests.conftest import fresh_settings
from tests.support.commands import cli
from tests.support.gateway import POLICY, say
from tests.support.gateway_process import SCOPES
from tests.support.redis_cluster import RedisCluster
from tests.support.streaming import Gateway, serving, subscribed
from tests.support.watched import nothing_differs
from tests.support.worker import until
from tests.support.worker_process import worker
from threadfold.embedded.stack import EmbeddedStack
from threadfold.service.conversations import ConversationService
from threadfold.streaming.partial_store import PartialStore
from threadfold.streaming.pubsub import PubSub

NAMES = [f"c{i}" for i in range(12)]


class Place:
    """The gateway, and a tenant's key."""

    def __init__(self, settings: Settings, gateway: Gateway, key: str) -> None:
        self.settings = settings
        self.gateway = gateway
        self.key = key

    async def __call__(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.key}"}
        return await self.gateway.http.request(
            method, path, content=None if body is None else json.dumps(body), headers=headers
        )


@pytest.fixture
async def place(
    stack: EmbeddedStack, redis_cluster: RedisCluster, tmp_path: Path
) -> AsyncIterator[Place]:
    settings = fresh_settings(stack, redis=redis_cluster.url, partitions=8)
    await create_topics(settings)
    control = await Control(settings).start()
    await control.write(
        {"generation/1": Generation(1, settings.partitions, POLICY), "generation/live": 1}
    )
    await control.ensure_tenant("acme")
    key = await control.add_key("acme", SCOPES)
    await control.stop()
    process = worker(settings, tmp_path / "worker.log")
    try:
        async with serving(settings) as gateway:
            yield Place(settings, gateway, key)
    finally:
        code = process.stop()
    assert code == 0, (tmp_path / "worker.log").read_text()[-2000:]


def keys_of(cluster: RedisCluster, pattern: str) -> list[int]:
    """How many keys each master has that fit."""
    return [len(master.ask("KEYS", pattern)) for master in cluster.masters]


@pytest.mark.long
async def test_windows_lists_summaries_streams_partials_erasure_and_rebuilds_work_on_a_cluster(
    place: Place, redis_cluster: RedisCluster
) -> None:
    settings, prefix = place.settings, place.settings.topic_prefix
    for i in range(3):
        answers = await asyncio.gather(
            *(
                place(
                    "POST",
                    f"/v1/conversations/{name}/events?wait=applied",
                    [say(f"{i}"), say("b" * 40, "assistant")],
                )
                for name in NAMES
            )
        )
        assert [answer.status_code for answer in answers] == [200] * len(NAMES)
    assert all(keys_of(redis_cluster, f"{prefix}:{{1:*")), "the windows are spread over all masters"
    listed = (await place("GET", "/v1/conversations?limit=100")).json()["conversations"]
    assert sorted(one["conversation"] for one in listed) == sorted(NAMES) and {
        one["count"] for one in listed
    } == {6}

    async def summed_up() -> bool:
        await place("POST", "/v1/conversations/c0/events", [say("word " * 40)])
        return (await place("GET", "/v1/conversations/c0/context")).json()["summary"] is not None

    await until(summed_up, what="a summary is in force")
    async with subscribed(place.gateway, "/v1/conversations/c1/stream", place.key) as stream:
        answer = await place(
            "POST", "/v1/conversations/c1/partial", {"turn_id": "t", "delta": "so far"}
        )
        assert answer.status_code == 202, answer.text
        await place("POST", "/v1/conversations/c1/events", [say("so far", "assistant")])
        await stream.until(
            lambda: stream.of("partial") and stream.of("partial")[-1].get("ended") == "complete"
        )
    assert (await place("DELETE", "/v1/conversations/c2")).status_code == 200
    assert (await place("GET", "/v1/conversations/c2/context")).status_code == 410
    async with ConversationService(settings) as backend:
        await nothing_differs(settings, backend, len(NAMES))
        control = await Control(settings).start()
        log = KafkaLog(settings, settings.partitions, seals=backend.keys)
        await rebuild(settings, control, log, backend.store, switch=True)
        assert await backend.store.drop_generation(1, settings.partitions) > len(NAMES)
        assert keys_of(redis_cluster, f"{prefix}:{{1:*") == [0, 0, 0] and all(
            keys_of(redis_cluster, f"{prefix}:{{2:*")
        )
        await log.stop()
        await control.stop()
        await until(lambda: _answers(place, "/v1/conversations/c3/context"))
        await nothing_differs(settings, backend, len(NAMES), generation=2)


async def _answers(place: Place, path: str) -> bool:
    return bool((await place("GET", path)).status_code == 200)


@pytest.mark.long
async def test_the_commands_work_on_a_cluster(place: Place) -> None:
    settings = place.settings
    env = {
        f"THREADFOLD_{name.upper()}": str(getattr(settings, name))
        for name in ("kafka", "redis", "topic_prefix", "group", "replication")
    }
    for name in NAMES:
        await place("POST", f"/v1/conversations/{name}/events?wait=applied", [say("a")])
    for command in (
        ["doctor"],
        ["verify", "--all"],
        ["rebuild", "--switch"],
        ["generations", "drop", "1"],
        ["doctor"],
    ):
        ran = await cli(*command, env=env)
        assert ran.code == 0, (command, ran)


async def test_pieces_of_text_are_heard_whichever_node_one_listens_at(
    redis_cluster: RedisCluster,
) -> None:
    heard: list[tuple[str, bytes]] = []
    held = PartialStore(redis_cluster.url, "pieces", 30.0)
    hearing = PubSub(
        held.servers,
        "pieces:own",
        lambda channel, data: heard.append((channel, data)),
        lambda channel: None,
    )
    keys = [make_key("acme", name) for name in NAMES]
    for key in keys:
        await hearing.join(held.channel(key))
        assert (await held.append(key, "t", "delta", 0, 7)).name == "ok"
    await until(
        lambda: asyncio.sleep(
            0, {channel for channel, _ in heard} == {held.channel(key) for key in keys}
        )
    )
    assert [(await held.read(key)).text for key in keys] == ["delta"] * len(keys)  # type: ignore[union-attr]
    assert all(keys_of(redis_cluster, "pieces:partial:*")), "they are spread over all masters"
    assert [await held.forget(key) for key in keys] == [True] * len(keys)
    assert await held.claim(1.0) == []
    await hearing.stop()
    await held.close_connections()


async def test_quotas_of_many_tenants_are_settled_at_their_servers_in_one_go(
    redis_cluster: RedisCluster,
) -> None:
    buckets = SharedBuckets(redis_cluster.url, "quotas", timeout=5.0)
    asked = [
        Settling(f"tenant{i}", kind, 0.001, 100.0, 0.0, 60.0)
        for i in range(12)
        for kind in ("requests", "events")
    ]
    assert [
        round(settled.granted) for settled in await buckets.settle(asked) if settled is not None
    ] == [60] * 24
    assert [
        round(settled.granted) for settled in await buckets.settle(asked) if settled is not None
    ] == [40] * 24
    for master in redis_cluster.masters:
        master.ask("SCRIPT", "FLUSH")
    assert [
        round(settled.granted) for settled in await buckets.settle(asked) if settled is not None
    ] == [0] * 24
    assert all(keys_of(redis_cluster, "quotas:*"))
    await buckets.close()


async def test_a_slot_that_moves_is_followed_and_while_it_moves_nothing_is_wrong(
    redis_cluster: RedisCluster,
) -> None:
    store, key = RedisStore(redis_cluster.url, "moving"), Key("acme", "a")
    write = Write(key, False, [(b"h", b"head")], [], [(b"0", b"r")], [], DueChange.KEEP, NOTHING)
    revision = (await store.apply(1, 0, Checkpoint("", 0, 0, "d", -1), [write])).revision
    state = "moving:{1:0}:state"
    source = redis_cluster.masters[redis_cluster.shard_of(state)]
    target = redis_cluster.masters[(redis_cluster.shard_of(state) + 1) % 3]
    slot, source_id, target_id = (
        source.ask("CLUSTER", "KEYSLOT", state),
        source.ask("CLUSTER", "MYID"),
        target.ask("CLUSTER", "MYID"),
    )
    try:
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
        first = f"moving:{{1:0}}:w:{key}"
        others = [
            name for name in source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1000) if name != first
        ]
        assert state in others
        source.ask("MIGRATE", "127.0.0.1", target.port, first, 0, 5000)
        for attempt in (
            store.read(1, 0, [key]),
            store.apply(1, 0, Checkpoint(revision, 1, 0, "e", -1), [write]),
            store.head(1, 0, key),
        ):
            with pytest.raises(RedisUnavailable, match="moving to another node"):
                await attempt
        for name in others:
            source.ask("MIGRATE", "127.0.0.1", target.port, name, 0, 5000)
    finally:
        for server in (target, source):
            server.ask("CLUSTER", "SETSLOT", slot, "NODE", target_id)
    checkpoint, (stored,) = await store.read(1, 0, [key])
    assert stored is not None and stored.fields == {b"h": b"head"} and checkpoint is not None
    assert checkpoint.unverified, "its owner has not said yet that this server has the latest"
    assert (await store.fields(1, 0, key, [b"h"]))[1] == {b"h": b"head"}
    revision = (await store.apply(1, 0, Checkpoint(revision, 1, 0, "e", -1), [write])).revision
    checkpoint = await store.checkpoint(1, 0)
    assert checkpoint == Checkpoint(revision, 1, 0, "e", -1)
    assert await store.drop_partition(1, 0) == 3
    await store.close()


async def test_a_node_named_as_one_server_says_how_to_name_it(redis_cluster: RedisCluster) -> None:
    store = RedisStore(redis_cluster.masters[0].url, "alone")
    with pytest.raises(RedisUnavailable, match=r"name it as redis\+cluster://"):
        for partition in range(16):
            await store.checkpoint(1, partition)
    await store.close()


async def test_noeviction_is_asked_of_every_master(redis_cluster: RedisCluster) -> None:
    store = RedisStore(redis_cluster.url, "policy")
    assert (await store.ping())["maxmemory_policy"] == "noeviction"
    redis_cluster.masters[2].ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        assert (await store.ping())["maxmemory_policy"] == "allkeys-lru"
    finally:
        redis_cluster.masters[2].ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    await store.close()
