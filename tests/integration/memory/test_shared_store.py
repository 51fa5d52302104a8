"""The memory store in Redis on real Kafka: gateways share it, one feeds it and another takes over;
rebuilt beside the live one, verified, and fed anew after Redis lost it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from streams.memory.redis_store import RedisMemories
from streams.memory.sqlite_store import SqliteMemories
from streams.memory.store_build import feed_until
from streams.settings.settings import Settings
from tests.support.commands import cli
from tests.support.memory_stack import (
    MemoryStack,
    holding,
    memory_stack,
    read_on,
    save,
    save_and_erase,
    texts_of,
)
from tests.support.redis_servers import Server
from tests.support.search_module import search_server
from tests.support.worker import until
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config
from threadfold.service.conversations import ConversationService
from threadfold.service.memories import Memories
from threadfold.service.whose import Whose

pytestmark = pytest.mark.long


class World(MemoryStack):
    """A stack whose Redis has the query engine."""

    server: Server


@pytest.fixture(scope="module")
async def world(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    data = tmp_path_factory.mktemp("data")
    server = search_server(data / "redis")
    server.start()
    async with memory_stack(settings, data, redis=server.url, memory_store="redis") as stack:
        made = World(stack.settings, data)
        made.server = server
        yield made
    server.stop()


def feeds(memories: Memories) -> bool:
    assert isinstance(memories.store, RedisMemories)
    return memories.store.place.hold()


async def test_gateways_share_a_store_and_one_goes_on_where_another_ended(world: World) -> None:
    async with ConversationService(world.settings) as backend:
        first, second = Memories(backend, hold=True), Memories(backend, hold=True)
        ann = Whose("acme", "ann")
        await save(first, ann, "Likes tea.")
        await save(second, ann, "Likes gin.")
        both = ["Likes gin.", "Likes tea."]
        assert await texts_of(first, "ann") == await texts_of(second, "ann") == both
        assert feeds(first) and not feeds(second)
        await first.stop()
        await save(second, ann, "Likes rum.")
        assert feeds(second) and len(await texts_of(second, "ann")) == 3
        assert await texts_of(second, "eve") == []

        local = SqliteMemories()
        await feed_until(world.settings, backend.keys, local)
        assert local.digests() == await asyncio.to_thread(second.store.digests)
        local.close()
        await second.stop()


async def test_a_store_is_rebuilt_beside_the_live_one_while_it_is_read(world: World) -> None:
    async with holding(world.settings) as (_, memories):
        bob = Whose("acme", "bob")
        await save(memories, bob, *(f"Fact {n}." for n in range(9)))
        assert isinstance(memories.store, RedisMemories)
        place = memories.store.place
        before = place.keys.number

        async def count() -> int:
            return len(await texts_of(memories, "bob"))

        async with read_on(count, 9):
            digest = await world.rebuilt()
        assert place.keys.number > before
        done = await world.run("verify")
        assert (done.code, done.lines[-1][-12:]) == (0, "differing: 0"), done.lines
        await save(memories, bob, "Said after.")
        assert len(await texts_of(memories, "bob")) == 10
        assert await world.rebuilt() != digest
        assert (await world.run("diff")).code == 0


async def test_what_is_erased_leaves_the_shared_store(world: World) -> None:
    async def kept() -> bool:
        return "Hides marmalade." in await texts_of(memories, "eva")

    async with holding(world.settings) as (backend, memories):
        await save_and_erase(backend, memories, "Hides marmalade.", kept)


async def test_a_store_that_redis_lost_is_fed_anew(world: World) -> None:
    async with holding(world.settings) as (_, memories):
        before = await texts_of(memories, "bob")
        assert len(before) > 1
        assert isinstance(memories.store, RedisMemories)
        world.server.ask("FLUSHALL")

        async def whole() -> bool:
            return await texts_of(memories, "bob") == before

        await until(whole)
    assert (await world.run("verify")).code == 0


async def test_readers_wait_while_another_process_has_not_yet_fed_what_redis_lost(
    world: World,
) -> None:
    async with ConversationService(world.settings) as backend:
        first, second = Memories(backend, hold=True), Memories(backend, hold=True)
        ida = Whose("acme", "ida")
        await save(first, ida, "Likes tea.")
        assert isinstance(first.store, RedisMemories)

        async def first_feeds() -> bool:
            return feeds(first)

        await until(first_feeds)  # another one may have the lease for some seconds still
        place = first.store.place
        assert await texts_of(second, "ida") == ["Likes tea."]
        before = first.store.checkpoints()
        await save(first, ida, "Likes gin.")
        await save(second, ida, "Likes rum.")
        await first.feed.stop()  # it has the lease for some seconds still
        place.hold()
        name, kept = place.keys("c"), {str(p): at for p, at in before.items()}
        place.server.call(lambda client: client.delete(name))
        place.server.call(lambda client: client.hset(name, mapping=kept))

        async def waits() -> bool:
            place.hold()
            return not second.feed.is_ready

        await until(waits)
        await first.stop()
        assert len(await texts_of(second, "ida")) == 3
        await second.stop()


async def test_doctor_says_where_the_store_is_and_what_a_server_lacks(
    world: World, settings: Settings, tmp_path: Path
) -> None:
    there = await cli("doctor", "--data", str(world.data))
    assert "ok    memory store: in Redis, query engine 2." in there.out
    plain = msgspec.structs.replace(settings, memory_store="redis")
    write_config(tmp_path / CONFIG_FILE, plain)
    found = await cli("doctor", "--data", str(tmp_path))
    assert "wrong memory store:" in found.out and "load its search module" in found.out
    assert found.code == 1
