"""The store of LanceDB on real Kafka: fed on after a restart, rebuilt beside the live one and
switched while it is read, verified against SQLite, and taken over by another process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from streams.memory.store_build import feed_until
from streams.memory.store_folder import LANCE, SQLITE, StoreFolder, folder_of
from streams.settings.settings import Settings
from tests.support.commands import cli
from tests.support.local_stores import contents, stores_of
from tests.support.memory_stack import (
    MemoryStack,
    holding,
    memory_stack,
    read_on,
    save,
    save_and_erase,
    texts_of,
)
from tests.support.worker import until
from threadfold.service.conversations import ConversationService
from threadfold.service.memories import Memories
from threadfold.service.whose import Whose

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
async def stack(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[MemoryStack]:
    stores_of(LANCE)
    data = tmp_path_factory.mktemp("data")
    async with memory_stack(settings, data, memory_store=f"lancedb:{data / 'memories'}") as made:
        yield made


def folder(stack: MemoryStack) -> StoreFolder:
    found = folder_of(stack.settings.memory_store)
    assert found is not None
    return found


async def test_it_outlives_its_process_is_rebuilt_while_it_is_read_and_equals_sqlites(
    stack: MemoryStack,
) -> None:
    async with ConversationService(stack.settings) as backend:
        memories = Memories(backend, hold=True)
        bob = Whose("acme", "bob")
        await save(memories, bob, *(f"Fact {n}." for n in range(9)))
        await memories.stop()
        first = folder(stack).live
        assert first is not None and first.suffix == ".lance"

        memories = Memories(backend, hold=True)
        assert len(await texts_of(memories, "bob")) == 9
        done = await stack.run("verify")
        assert (done.code, done.lines[-1][-12:]) == (0, "differing: 0"), done.lines

        async def count() -> int:
            return len(await texts_of(memories, "bob"))

        async def switched() -> bool:
            return memories.store.path == folder(stack).live and not first.exists()

        async with read_on(count, 9):
            digest = await stack.rebuilt()
            await until(switched)
        await save(memories, bob, "Said after.")
        local = stores_of(SQLITE)()
        await feed_until(stack.settings, backend.keys, local)
        assert local.digests() == await asyncio.to_thread(memories.store.digests)
        local.close()
        await memories.stop()
        assert await stack.rebuilt() != digest
        assert (await stack.run("diff")).code == 0
        assert "ok    memory store: LanceDB" in (await cli("doctor", "--data", str(stack.data))).out


async def test_what_is_erased_leaves_its_folder(stack: MemoryStack) -> None:
    async def kept() -> bool:
        path = folder(stack).live
        assert path is not None
        return any(b"armalade" in content for content in contents(path))

    async with holding(stack.settings) as (backend, memories):
        await save_and_erase(backend, memories, "Hides marmalade.", kept)


async def test_a_second_process_reads_a_copy_and_takes_the_folder_over(stack: MemoryStack) -> None:
    async with ConversationService(stack.settings) as backend:
        holder, other = Memories(backend, hold=True), Memories(backend, hold=True)
        whose = Whose("acme", "ann")
        await save(holder, whose, "Likes tea.")
        assert await texts_of(other, "ann") == ["Likes tea."] and other.store.path is None
        await holder.stop()

        async def taken_over() -> bool:
            return other.store.path == folder(stack).live

        await until(taken_over)
        await save(other, whose, "Likes gin.")
        assert await texts_of(other, "ann") == ["Likes gin.", "Likes tea."]
        await other.stop()
