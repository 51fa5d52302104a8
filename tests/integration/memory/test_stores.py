"""The store of a folder on real Kafka and Redis: fed on after a restart, rebuilt beside the live one
and switched while it is read, verified, and made anew from the topic or the logs to equal digests.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from projections.errors import Healing
from projections.events.types import MemorySaved
from projections.memory.identity import Scope
from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.log.clients import admin_client
from streams.log.topics import create_topics
from streams.memory.store_folder import StoreFolder
from streams.settings.settings import Settings
from tests.support.commands import Ran, cli, ok
from tests.support.worker import running_worker, until
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config
from threadfold.service.conversations import ConversationService
from threadfold.service.erasure import Eraser
from threadfold.service.memories import Memories, Whose


class World:
    """A stack with a store folder, and how commands reach it."""

    def __init__(self, settings: Settings, data: Path) -> None:
        self.settings, self.data = settings, data
        self.folder = StoreFolder(Path(settings.memory_store))

    async def run(self, *args: str) -> Ran:
        return await cli("memories", *args, "--data", str(self.data))

    async def rebuilt(self, *args: str) -> str:
        """Rebuild the store; returns its digest."""
        done = await ok("memories", "rebuild", *args, "--data", str(self.data))
        return done.lines[-1].rpartition(" ")[2]

    def file_digests(self) -> dict[Scope, str]:
        from streams.memory.sqlite_store import SqliteMemories

        assert self.folder.live is not None
        store = SqliteMemories.copied(self.folder.live)
        assert store is not None
        found = store.digests()
        store.close()
        return found


@pytest.fixture(scope="module")
async def world(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    data = tmp_path_factory.mktemp("data")
    made = msgspec.structs.replace(settings, memory_store=str(data / "memories"))
    write_config(data / CONFIG_FILE, made)
    control = await Control(made).start()
    await control.write({"generation/1": Generation(1, made.partitions, {}), "generation/live": 1})
    for name in ("acme", "rival"):
        await control.ensure_tenant(name)
    await control.stop()
    async with running_worker(made):
        yield World(made, data)


def record(text: str, **more: Any) -> MemorySaved:
    return MemorySaved(
        memory_id="", memory_type="fact", text=text, normalized_text="", trust="user", **more
    )


async def taught(backend: ConversationService, memories: Memories, name: str) -> list[str]:
    """A conversation that teaches, goes back and teaches again; returns its positions."""
    whose = Whose("acme", f"u-{name}", conversation=name)
    opened = {"type": "conversation.opened", "user": whose.user}
    said = {"type": "message", "role": "user", "content": "hello"}
    appended = await backend.append("acme", [(name, opened), (name, said)])
    await backend.wait_applied("acme", name, appended)
    await memories.save([(whose, record(f"Fact {n} of {name}.")) for n in range(4)], free)
    back = {"type": "rollback", "to": str(appended[-1].position)}
    await backend.append("acme", [(name, back)])
    await memories.save([(whose, record(f"Later fact of {name}."))], free, wait=True)
    return [str(one.position) for one in appended]


def free(appended: object) -> None:
    del appended


async def no_text(key: object) -> None:
    del key


async def test_a_store_outlives_its_process_and_is_switched_while_it_is_read(world: World) -> None:
    async with ConversationService(world.settings) as backend:
        memories = Memories(backend, hold=True)
        for name in ("a", "b"):
            await taught(backend, memories, name)
        await memories.stop()
        first = world.folder.live
        assert first is not None and world.file_digests() == memories_digests(world)

        memories = Memories(backend, hold=True)
        found = await memories.page(Whose("acme", "u-a").filter(), None, 10)
        assert [one.text for one in found[0]] == ["Later fact of a."]
        done = await world.run("verify")
        assert (done.code, done.lines[-1]) == (0, "verified: 2, differing: 0")

        reading = asyncio.create_task(read_on(memories))
        digest = await world.rebuilt()

        async def switched() -> bool:
            return memories.store.path == world.folder.live

        await until(switched)
        reading.cancel()
        (ended,) = await asyncio.gather(reading, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError)
        assert world.folder.live != first and not first.exists()
        await memories.save([(Whose("acme", "u-a"), record("Said after."))], free, wait=True)
        assert len((await memories.page(Whose("acme", "u-a").filter(), None, 10))[0]) == 2
        await memories.stop()
        assert await world.rebuilt() != digest
        assert (await world.run("verify", "--tenant", "acme")).code == 0


def memories_digests(world: World) -> dict[Scope, str]:
    """The live store's digests, read past the store's own code."""
    assert world.folder.live is not None
    with sqlite3.connect(world.folder.live) as db:
        (count,) = db.execute("SELECT count(*) FROM records WHERE record IS NOT NULL").fetchone()
    found = world.file_digests()
    assert count == 2 and len(found) == 2
    return found


async def read_on(memories: Memories) -> None:
    """Read until cancelled; fails when less is found than before."""
    while True:
        found, _ = await memories.page(Whose("acme").filter(), None, 10)
        assert len(found) == 2
        await asyncio.sleep(0.01)


@pytest.mark.long
async def test_a_second_process_reads_a_copy_and_takes_the_folder_over(world: World) -> None:
    async with ConversationService(world.settings) as backend:
        holder, other = Memories(backend, hold=True), Memories(backend, hold=True)
        await holder.stats(Whose("acme"))
        await holder.save([(Whose("acme", "u-x"), record("Likes tea."))], free, wait=True)
        assert (await other.stats(Whose("acme", "u-x"))).records == 1
        assert other.store.path is None
        await holder.stop()

        async def taken_over() -> bool:
            return other.store.path == world.folder.live

        await until(taken_over)
        await other.save([(Whose("acme", "u-x"), record("Likes gin."))], free, wait=True)
        assert (await other.stats(Whose("acme", "u-x"))).records == 2
        await other.stop()


async def test_verify_and_diff_name_what_a_store_has_wrong(world: World) -> None:
    async with ConversationService(world.settings) as backend:
        memories = Memories(backend, hold=True)
        whose = Whose("rival", "u-9")
        await memories.save([(whose, record("Owns a boat.", confidence=0.5))], free, wait=True)
        await memories.stop()
    assert world.folder.live is not None
    with sqlite3.connect(world.folder.live) as db:
        db.execute("UPDATE records SET record = NULL WHERE tenant = 'rival'")
    db.close()
    done = await world.run("verify")
    assert done.code == 1
    assert done.lines[0] == "differs: tenant=rival user=u-9"
    assert done.lines[-1].endswith("differing: 1")
    assert (await world.run("verify", "--tenant", "acme")).code == 0
    found = await world.run("diff")
    assert (found.code, found.lines[-1]) == (1, "removed: 0, added: 1, changed: 0")
    shown = json.loads(found.lines[0])
    assert (shown["difference"], shown["tenant"], shown["text"]) == (
        "added",
        "rival",
        "Owns a boat.",
    )
    await world.rebuilt()
    assert (await world.run("verify")).code == 0
    assert (await world.run("diff")).lines[-1] == "removed: 0, added: 0, changed: 0"


@pytest.mark.long
async def test_a_store_whose_file_is_damaged_is_fed_anew(world: World) -> None:
    async with ConversationService(world.settings) as backend:
        memories = Memories(backend, hold=True)
        records = [(Whose("rival", "u-7"), record(f"Fact {n}.")) for n in range(200)]
        await memories.save(records, free, wait=True)
        await memories.stop()
        assert world.folder.live is not None
        content = bytearray(world.folder.live.read_bytes())
        middle = len(content) // 2
        content[middle:] = b"\xff" * (len(content) - middle)
        world.folder.live.write_bytes(content)
        memories = Memories(backend, hold=True)

        async def whole() -> bool:
            try:
                return (await memories.stats(Whose("rival", "u-7"))).records == 200
            except Healing:
                return False

        await until(whole)
        await memories.stop()
    assert (await world.run("verify")).code == 0


async def test_a_topic_made_anew_from_the_logs_gives_an_equal_store(world: World) -> None:
    async with ConversationService(world.settings) as backend:
        memories = Memories(backend, hold=True)
        for name in ("kept", "erased"):
            await taught(backend, memories, name)
        await Eraser(backend, no_text).conversation("acme", "erased")

        async def gone() -> bool:
            found, _ = await memories.page(Whose("acme", "u-erased").filter(), None, 10)
            return found == []

        await until(gone)
        await memories.stop()
    before = await world.rebuilt()
    assert await world.rebuilt("--from-logs") == before

    topic = world.settings.topic("memories")
    async with admin_client(world.settings) as admin:
        await admin.delete_topics([topic])

        async def missing() -> bool:
            return topic not in await admin.list_topics()

        await until(missing)
    await create_topics(world.settings)
    assert (await world.run("verify")).code == 2
    assert await world.rebuilt("--from-logs") == before
    assert (await world.run("verify")).code == 0


async def test_diff_shows_what_the_rules_would_find_in_the_logs(world: World) -> None:
    async with ConversationService(world.settings) as backend:
        opened = {"type": "conversation.opened", "user": "ann"}
        said = {"type": "message", "role": "user", "content": "I live in Oslo."}
        appended = await backend.append("rival", [("ruled", opened), ("ruled", said)])
        await backend.wait_applied("rival", "ruled", appended)
    await world.rebuilt()
    found = await world.run("diff", "--rules", "--tenant", "rival")
    assert (found.code, found.lines[-1]) == (1, "removed: 0, added: 1, changed: 0")
    shown = json.loads(found.lines[0])
    assert (shown["text"], shown["user"]) == ("The user lives in Oslo.", "ann")
    both = await world.run("diff", "--rules", "--after", str(world.folder.live))
    assert both.code == 2 and "--rules and --after" in both.said


async def test_without_a_folder_a_command_says_what_to_set(world: World, tmp_path: Path) -> None:
    write_config(tmp_path / CONFIG_FILE, msgspec.structs.replace(world.settings, memory_store=""))
    for command in ("rebuild", "verify", "diff"):
        done = await cli("memories", command, "--data", str(tmp_path))
        assert done.code == 2 and "THREADFOLD_MEMORY_STORE" in done.said
