"""The store of a folder on real Kafka and Redis: fed on after a restart, rebuilt beside the live one
and switched while it is read, verified, and made anew from the topic or the logs to equal digests.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence

import pytest
from aiokafka import AIOKafkaProducer

from projections.errors import Healing
from projections.memory.identity import Scope
from projections.memory.news import News
from streams.encryption.payload_cipher import Unsealed
from streams.log.topic_copies import extents
from streams.memory.sqlite_store import SqliteMemories
from streams.memory.store import Filter, Stats
from streams.memory.store_build import feed_until
from streams.memory.topic_feed import TopicFeed
from streams.memory.turns import SqliteTurns
from streams.runtime.tasks import end_tasks
from tests.support.memory_stack import (
    LocalStack,
    erase,
    free,
    read_on,
    record,
    save,
    taught,
    texts_of,
)
from tests.support.raw_records import put_raw
from tests.support.worker import until
from threadfold.service.conversations import ConversationService
from threadfold.service.memories import Memories
from threadfold.service.question import Question
from threadfold.service.whose import Whose


async def test_a_store_outlives_its_process_and_is_switched_while_it_is_read(
    world: LocalStack,
) -> None:
    async with ConversationService(world.settings) as backend:
        memories = Memories(backend, hold=True)
        for name in ("a", "b"):
            await taught(backend, memories, name)
        await memories.stop()
        first = world.folder.live
        assert first is not None and world.file_digests() == memories_digests(world)

        memories = Memories(backend, hold=True)
        assert await texts_of(memories, "u-a") == ["Later fact of a."]
        done = await world.run("verify")
        assert (done.code, done.lines[-1]) == (0, "verified: 2, differing: 0")

        async def count() -> int:
            return len((await memories.page(Whose("acme").filter(), None, 10))[0])

        async def switched() -> bool:
            # What it switched from is removed a moment later.
            return memories.store.path == world.folder.live and not first.exists()

        async with read_on(count, 2):
            digest = await world.rebuilt()
            await until(switched)
        assert world.folder.live != first
        await save(memories, Whose("acme", "u-a"), "Said after.")
        assert len(await texts_of(memories, "u-a")) == 2
        await memories.stop()
        assert await world.rebuilt() != digest
        assert (await world.run("verify", "--tenant", "acme")).code == 0


async def test_a_build_whose_store_takes_nothing_more_ends(world: LocalStack) -> None:
    class Full(SqliteMemories):
        def apply(self, news: Sequence[News], checkpoints: Mapping[int, int]) -> None:
            raise sqlite3.OperationalError("database or disk is full")

    rows = [(0, b"acme/none", b"no news" * 100_000)] * 12  # more than are read in one go
    await put_raw(world.settings, "memories", *rows)
    store = Full()
    with pytest.raises(sqlite3.OperationalError, match="full"):
        async with asyncio.timeout(20):
            await feed_until(world.settings, Unsealed(), store)
    store.close()


async def test_a_store_has_all_up_to_its_end_also_while_more_comes(world: LocalStack) -> None:
    class Slow(SqliteMemories):
        applied = 0

        def apply(self, news: Sequence[News], checkpoints: Mapping[int, int]) -> None:
            time.sleep(0.3)
            super().apply(news, checkpoints)
            self.applied = checkpoints.get(0, self.applied)

    async def say_on() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=world.settings.kafka)
        await producer.start()
        try:
            while True:
                await producer.send_and_wait(world.settings.topic("memories"), b"{}", b"k", 0)
        finally:
            await producer.stop()

    await put_raw(world.settings, "memories", *[(0, b"k", b"{}")] * 12)
    end = (await extents(world.settings, "memories"))[0].end
    store = Slow()
    saying = asyncio.create_task(say_on())
    await feed_until(world.settings, Unsealed(), store, {0: end})
    await end_tasks([saying])
    assert store.applied == end - 1
    store.close()


def memories_digests(world: LocalStack) -> dict[Scope, str]:
    """The live store's digests, read past the store's own code."""
    assert world.folder.live is not None
    with sqlite3.connect(world.folder.live) as db:
        (count,) = db.execute("SELECT count(*) FROM records WHERE record IS NOT NULL").fetchone()
    found = world.file_digests()
    assert count == 2 and len(found) == 2
    return found


@pytest.mark.long
async def test_a_second_process_reads_a_copy_and_takes_the_folder_over(world: LocalStack) -> None:
    async with ConversationService(world.settings) as backend:
        holder, other = Memories(backend, hold=True), Memories(backend, hold=True)
        await holder.stats(Whose("acme"))
        await save(holder, Whose("acme", "u-x"), "Likes tea.")
        assert (await other.stats(Whose("acme", "u-x"))).records == 1
        assert other.store.path is None
        await holder.stop()

        async def taken_over() -> bool:
            return other.store.path == world.folder.live

        await until(taken_over)
        await save(other, Whose("acme", "u-x"), "Likes gin.")
        assert (await other.stats(Whose("acme", "u-x"))).records == 2
        await other.stop()


async def test_the_index_of_turns_goes_on_after_a_restart_without_what_was_erased(
    world: LocalStack,
) -> None:
    async with ConversationService(world.settings) as backend:

        async def say(name: str, *texts: str) -> None:
            flats = [{"type": "message", "role": "user", "content": text} for text in texts]
            appended = await backend.append("rival", [(name, flat) for flat in flats])
            await backend.wait_applied("rival", name, appended)

        async def found(memories: Memories, query: str) -> list[str]:
            asked = Question(Filter("rival"), query, kinds=("turn",))
            answer = await memories.recall.ask(asked)
            assert "turns" not in answer.away
            return [one.found.text for one in answer.found]

        await say("talk", "The zeppelin is blue.", "So is the marmalade.")
        await say("other", "Nobody knows of my marmalade.")
        memories = Memories(backend, hold=True)
        assert len(await found(memories, "marmalade")) == 2
        await memories.stop()
        file = world.folder.turns
        with sqlite3.connect(file) as db:
            db.execute("UPDATE texts SET text = 'as it was' WHERE text LIKE '%zeppelin%'")
        db.close()
        await erase(backend, "rival", "other")
        await say("talk", "A new zeppelin.")

        memories, second = Memories(backend, hold=True), Memories(backend, hold=True)
        for one in (memories, second):
            # What was read before the restart was not read again.
            assert set(await found(one, "zeppelin")) >= {"as it was", "A new zeppelin."}
            assert (await found(one, "marmalade"))[0] == "So is the marmalade."
            assert "Nobody knows of my marmalade." not in await found(one, "marmalade nobody")
        assert memories.turns is not None and memories.turns.path == file
        assert second.turns is not None and second.turns.path is None
        await second.stop()
        await memories.stop()
        for path in file.parent.glob("turns.db*"):
            assert b"Nobody knows" not in path.read_bytes(), path.name


@pytest.mark.long
async def test_verify_and_diff_name_what_a_store_has_wrong(world: LocalStack) -> None:
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
async def test_a_store_whose_file_is_damaged_is_fed_anew(world: LocalStack) -> None:
    async with ConversationService(world.settings) as backend:
        memories = Memories(backend, hold=True)
        await save(memories, Whose("rival", "u-7"), *(f"Fact {n}." for n in range(200)))
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


async def test_readers_wait_while_a_damaged_store_is_fed_anew(
    world: LocalStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ConversationService(world.settings) as backend:
        memories = Memories(backend, hold=True)
        whose = Whose("rival", "u-8")
        await save(memories, whose, "Fact of the damaged store.")
        await memories.ask(Question(whose.filter(), "Which fact?"))
        turns, feed = memories.turns, memories.turn_feed
        assert turns is not None and feed is not None
        dropped: list[bool] = []

        def watch(store: SqliteMemories | SqliteTurns, fed: TopicFeed) -> None:
            drop = store.drop

            def watched() -> None:
                drop()
                dropped.append(fed.is_ready)

            monkeypatch.setattr(store, "drop", watched)

        watch(memories.store, memories.feed)
        watch(turns, feed)
        memories.store.damaged = turns.damaged = True

        async def both_dropped() -> bool:
            return len(dropped) == 2

        await until(both_dropped)
        assert dropped == [False, False]
        assert (await memories.stats(whose)).records == 1

        stats, emptied = memories.store.stats, threading.Event()

        def meanwhile_emptied(only: Filter) -> Stats:
            memories.store.damaged = True
            assert emptied.wait(60)
            return stats(only)

        drop = memories.store.drop
        monkeypatch.setattr(memories.store, "drop", lambda: (drop(), emptied.set()))
        monkeypatch.setattr(memories.store, "stats", meanwhile_emptied)
        with pytest.raises(Healing, match="being rebuilt"):
            await memories.stats(whose)
        await memories.stop()
