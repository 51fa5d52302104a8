"""Redis loses what it held, or some of it, while everything runs: windows heal by themselves, and
nobody is served an older one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from projections.errors import RedisUnavailable
from projections.redis.store import RedisStore
from projections.storage.records import Checkpoint, Verdict
from streams.log.topics import create_topics
from streams.partition import runtime as partition_runtime
from streams.settings.settings import Settings
from tests.conftest import fresh_settings
from tests.support.gateway import serving
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_sentinel import RedisSentinel
from tests.support.redis_servers import Server
from tests.support.watched import Watched, names_where, nothing_differs, state_key
from tests.support.worker import running_worker, until
from threadfold.embedded.stack import EmbeddedStack
from threadfold.service.conversations import ConversationService

HEALED = 30.0
"""Seconds within which windows are served again; measured here: 2 to 5, most of it until the
replica has taken over.
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Three masters, two of which have a replica: each test fails one of those over."""
    with RedisCluster(tmp_path_factory.mktemp("cluster"), replicas=2) as running:
        yield running


async def prepared(stack: EmbeddedStack, url: str, partitions: int = 4) -> Settings:
    settings = fresh_settings(stack, redis=url, partitions=partitions, snapshot_events=50)
    await create_topics(settings)
    return settings


def healed_in(what: str, begun: float, ended: float) -> None:
    print(f"\n{what}: served again after {ended - begun:.1f} s")
    assert ended - begun < HEALED


@pytest.mark.long
async def test_a_shard_that_fails_over_without_its_last_writes_heals_while_the_others_go_on(
    stack: EmbeddedStack, cluster: RedisCluster
) -> None:
    settings = await prepared(stack, cluster.url, 8)
    hit = names_where(lambda name: cluster.shard_of(state_key(settings, name)) == 0, 3)
    spared = names_where(lambda name: cluster.shard_of(state_key(settings, name)) != 0, 3)
    async with serving(settings) as call, ConversationService(settings) as fresh:
        watched = Watched(call, fresh, hit + spared)
        for name in hit + spared:
            await watched.append(name, 3, "?wait=applied")
        async with watched.running():
            await watched.all_served()
            await asyncio.to_thread(cluster.masters[0].cut_replicas)
            cut = {name: watched.served[name][1] for name in hit}
            await until(
                lambda: asyncio.sleep(
                    0, all(watched.served[name][1] >= cut[name] + 5 for name in hit)
                )
            )
            begun = time.monotonic()
            await asyncio.to_thread(cluster.fail_over, 0)
            healed_in("one shard of three, failed over", begun, await watched.all_served())
            lost = watched.served["c0"]
            await until(lambda: asyncio.sleep(0, watched.served["c0"] > lost))
        assert watched.wrong == []
        assert all(watched.refused[name] for name in hit)
        assert not any(watched.refused[name] for name in spared), "the other shards' reads went on"
        await nothing_differs(settings, fresh, len(hit + spared))


@pytest.mark.long
async def test_a_worker_that_has_not_noticed_yet_lets_nobody_read_what_a_promoted_replica_holds(
    stack: EmbeddedStack, cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = await prepared(stack, cluster.url, 8)
    hit = names_where(lambda name: cluster.shard_of(state_key(settings, name)) == 1, 2)
    # Nothing is appended, and the worker looks this rarely: until it does, nothing else would tell
    # it.
    monkeypatch.setattr(partition_runtime, "TICK", 1.5)
    async with serving(settings) as call, ConversationService(settings) as fresh:
        watched = Watched(call, fresh, hit, appends=False)
        for name in hit:
            await watched.append(name, 3, "?wait=applied")
        await asyncio.to_thread(cluster.masters[1].cut_replicas)
        for name in hit:
            await watched.append(name, 5, "?wait=applied")
        await watched.all_served()
        assert all(watched.served[name][1] == 8 for name in hit)
        begun = time.monotonic()
        await asyncio.to_thread(cluster.fail_over, 1)
        watched.told.clear()
        async with watched.running():
            healed_in("a shard that nobody writes to", begun, await watched.all_served())
        assert watched.wrong == []
        assert "Healing" in watched.told, (
            "the replica answered before the worker had noticed, and was not believed"
        )
        assert all(watched.served[name][1] == 8 for name in hit)
        await nothing_differs(settings, fresh, len(hit))


@pytest.mark.long
async def test_sentinels_promote_a_replica_that_lacks_writes_under_load(
    stack: EmbeddedStack, tmp_path: Path
) -> None:
    with RedisSentinel(tmp_path) as sentinel:
        settings = await prepared(stack, sentinel.url)
        names = [f"c{i}" for i in range(4)]
        async with serving(settings) as call, ConversationService(settings) as fresh:
            watched = Watched(call, fresh, names)
            for name in names:
                await watched.append(name, 3, "?wait=applied")
            async with watched.running():
                await watched.all_served()
                await asyncio.to_thread(sentinel.master.cut_replicas)
                cut = dict(watched.served)
                await until(
                    lambda: asyncio.sleep(
                        0, all(watched.served[name][1] >= cut[name][1] + 5 for name in names)
                    )
                )
                begun = time.monotonic()
                await asyncio.to_thread(sentinel.fail_over)
                healed_in(
                    "a master under sentinels, failed over", begun, await watched.all_served()
                )
                again = dict(watched.served)
                await until(
                    lambda: asyncio.sleep(
                        0, all(watched.served[name] > again[name] for name in names)
                    )
                )
            assert watched.wrong == []
            assert all(watched.refused[name] for name in names)
            await nothing_differs(settings, fresh, len(names))


@pytest.mark.long
async def test_a_server_that_is_flushed_and_then_set_back_to_an_old_snapshot_heals_each_time(
    stack: EmbeddedStack, tmp_path: Path
) -> None:
    server = Server(tmp_path)
    server.start()
    try:
        settings = await prepared(stack, server.url)
        names = [f"c{i}" for i in range(4)]
        async with serving(settings) as call, ConversationService(settings) as fresh:
            watched = Watched(call, fresh, names)
            for name in names:
                await watched.append(name, 3, "?wait=applied")
            async with watched.running():
                await watched.all_served()
                begun = time.monotonic()
                await asyncio.to_thread(server.ask, "FLUSHALL")
                healed_in("flushed", begun, await watched.all_served())
                assert all(watched.refused[name] for name in names)
                await asyncio.to_thread(server.ask, "SAVE")
                old = dict(watched.served)
                await until(
                    lambda: asyncio.sleep(
                        0, all(watched.served[name][1] >= old[name][1] + 5 for name in names)
                    )
                )
                begun = time.monotonic()
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)  # from the snapshot
                healed_in("set back to an old snapshot", begun, await watched.all_served())
                again = dict(watched.served)
                await until(
                    lambda: asyncio.sleep(
                        0, all(watched.served[name] > again[name] for name in names)
                    )
                )
            assert watched.wrong == []
            await nothing_differs(settings, fresh, len(names))
    finally:
        server.stop()


class Vip:
    """An address that moves: new connections go to ``port``, those that are there stay where they
    are.
    """

    def __init__(self, port: int) -> None:
        self.port = port

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.port)
        with contextlib.suppress(OSError):  # either side may end it
            await asyncio.gather(self._copy(reader, back), self._copy(there, writer))

    @staticmethod
    async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)
        target.close()


async def test_behind_an_address_that_moves_the_former_master_is_left_for_the_new_one(
    tmp_path: Path,
) -> None:
    old, new = Server(tmp_path / "old"), Server(tmp_path / "new")
    old.start()
    new.start()
    vip = Vip(old.port)
    listening = await asyncio.start_server(vip.take, "127.0.0.1", 0)
    url = f"redis://127.0.0.1:{listening.sockets[0].getsockname()[1]}/0"
    writer, reader = RedisStore(url, "vip"), RedisStore(url, "vip")
    try:
        first = await writer.apply(1, 0, Checkpoint("", 0, 0, "a", -1), [])
        assert await reader.checkpoint(1, 0) == Checkpoint(first.revision, 0, 0, "a", -1)
        await asyncio.to_thread(new.ask, "REPLICAOF", "127.0.0.1", old.port)
        await until(
            lambda: asyncio.to_thread(lambda: new.info("replication")["master_link_status"] == "up")
        )
        await asyncio.to_thread(new.ask, "REPLICAOF", "NO", "ONE")
        await asyncio.to_thread(old.ask, "REPLICAOF", "127.0.0.1", new.port)
        vip.port = new.port
        with pytest.raises(RedisUnavailable, match="read only replica"):
            await writer.apply(1, 0, Checkpoint(first.revision, 1, 0, "b", -1), [])
        second = await writer.apply(1, 0, Checkpoint(first.revision, 1, 0, "b", -1), [])
        assert second.verdict is Verdict.APPLIED
        wanted = Checkpoint(second.revision, 1, 0, "b", -1)

        async def follows() -> bool:
            return await reader.checkpoint(1, 0) == wanted

        await until(follows)
    finally:
        await writer.close()
        await reader.close()
        listening.close()
        old.stop()
        new.stop()


@pytest.mark.long
async def test_a_new_worker_does_not_take_a_set_back_server_for_what_was_served(
    stack: EmbeddedStack, tmp_path: Path
) -> None:
    """It has nothing to go by: not what the one before served, and no committed offset."""
    server = Server(tmp_path)
    server.start()
    try:
        settings = await prepared(stack, server.url)
        async with AsyncExitStack() as gateways:
            async with serving(settings) as call:
                fresh = await gateways.enter_async_context(ConversationService(settings))
                watched = Watched(call, fresh, ["c0", "c1"], appends=False)
                for name in watched.conversations:
                    await watched.append(name, 2, "?wait=applied")
                await asyncio.to_thread(server.ask, "SAVE")
                for name in watched.conversations:
                    await watched.append(name, 3, "?wait=applied")
                await watched.all_served()
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            async with fresh_only(watched).running():
                await until(lambda: asyncio.sleep(0, "Healing" in watched.told))
                async with running_worker(
                    msgspec.structs.replace(settings, group=f"{settings.group}.new")
                ):
                    since = dict(watched.read)
                    await until(
                        lambda: asyncio.sleep(
                            0, all(watched.read[name] > since[name] for name in since)
                        ),
                        60,
                    )
            assert watched.wrong == []
            assert {count for _, count in watched.served.values()} == {5}
    finally:
        server.stop()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["cluster", "sentinel"])
async def test_a_master_that_was_frozen_comes_back_and_serves_nothing_old(
    stack: EmbeddedStack, tmp_path: Path, kind: str
) -> None:
    """It hangs, its replica takes over and is written to; then it wakes up, and takes itself for
    the master until it is told.
    """
    with (
        RedisCluster(tmp_path, replicas=1)
        if kind == "cluster"
        else RedisSentinel(tmp_path) as place
    ):
        settings = await prepared(stack, place.url, 8)
        if isinstance(place, RedisCluster):
            names = names_where(lambda name: place.shard_of(state_key(settings, name)) == 0, 3)
            master, replica = place.masters[0], place.replicas[0]
        else:
            names, master, replica = ["c0", "c1", "c2"], place.master, place.replica
        async with serving(settings) as call, ConversationService(settings) as fresh:
            watched = Watched(call, fresh, names)
            for name in names:
                await watched.append(name, 3, "?wait=applied")
            async with watched.running():
                await watched.all_served()
                begun = time.monotonic()
                master.freeze()
                await until(
                    lambda: asyncio.to_thread(
                        lambda: replica.info("replication")["role"] == "master"
                    ),
                    30,
                )
                healed_in(f"a frozen master ({kind})", begun, await watched.all_served())
                master.thaw()
                again = dict(watched.served)
                await until(
                    lambda: asyncio.to_thread(
                        lambda: master.info("replication")["role"] == "slave"
                    ),
                    60,
                )
                await until(
                    lambda: asyncio.sleep(
                        0, all(watched.served[name][1] > again[name][1] + 20 for name in names)
                    ),
                    60,
                )
            assert watched.wrong == []
            await nothing_differs(settings, fresh, len(names))


@pytest.mark.long
async def test_shard_after_shard_fails_over_and_back(stack: EmbeddedStack, tmp_path: Path) -> None:
    with RedisCluster(tmp_path, replicas=3) as place:
        settings = await prepared(stack, place.url, 8)
        names = [f"c{i}" for i in range(12)]
        async with serving(settings) as call, ConversationService(settings) as fresh:
            watched = Watched(call, fresh, names)
            for name in names:
                await watched.append(name, 1, "?wait=applied")
            async with watched.running():
                await watched.all_served()
                for round_ in range(6):
                    shard = round_ % 3
                    master, replica = place.masters[shard], place.replicas[shard]
                    await asyncio.to_thread(master.cut_replicas)
                    cut = dict(watched.served)
                    await until(
                        lambda cut=cut: asyncio.sleep(
                            0, all(watched.served[name][1] >= cut[name][1] + 5 for name in names)
                        ),
                        60,
                    )
                    begun = time.monotonic()
                    await asyncio.to_thread(place.fail_over, shard)
                    healed_in(f"failover {round_}", begun, await watched.all_served())
                    await asyncio.to_thread(master.start)
                    await until(
                        lambda master=master: asyncio.to_thread(
                            lambda: master.info("replication").get("master_link_status") == "up"
                        ),
                        60,
                    )
                    place.masters[shard], place.replicas[shard] = replica, master
            assert watched.wrong == []
            await nothing_differs(settings, fresh, len(names))


def fresh_only(watched: Watched) -> Watched:
    """Without the gateway, which is stopped."""
    watched.over_http = False
    return watched
