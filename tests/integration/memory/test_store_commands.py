"""Stores that commands make anew and compare: from the logs where the topic lacks records, by other
rules, by a model.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete

from streams.encryption.key_table import Erasure
from streams.log.clients import admin_client
from streams.log.topic_copies import extents
from streams.log.topics import create_topics
from streams.settings.endpoints import ModelSettings
from tests.support.commands import Ran, cli
from tests.support.memory_stack import (
    LocalStack,
    erase,
    taught,
    texts_of,
)
from tests.support.model_learning import BOAT, teaches
from tests.support.model_server import fails, model_server
from tests.support.worker import until
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config
from threadfold.service.conversations import ConversationService
from threadfold.service.memories import Memories


@pytest.mark.long
async def test_a_topic_made_anew_from_the_logs_gives_an_equal_store(world: LocalStack) -> None:
    async with ConversationService(world.settings) as backend:
        memories = Memories(backend, hold=True)
        for name in ("kept", "erased"):
            await taught(backend, memories, name)
        await erase(backend, "acme", "erased")

        async def gone() -> bool:
            return await texts_of(memories, "u-erased") == []

        await until(gone)
        await memories.stop()
    before = await world.rebuilt()
    assert await world.rebuilt("--from-logs") == before

    topic = world.settings.topic("memories")
    async with admin_client(world.settings) as admin:
        ends = await extents(world.settings, "memories")
        first = {
            TopicPartition(topic, number): RecordsToDelete(before_offset=1)
            for number, part in enumerate(ends)
            if part.end
        }
        await admin.delete_records(first)
    ran = await world.run("rebuild")
    assert ran.code == 2, ran
    assert "has lost its beginning" in ran.said
    assert "memories rebuild --from-logs" in ran.said
    assert await world.rebuilt("--from-logs") == before

    async with admin_client(world.settings) as admin:
        await admin.delete_topics([topic])

        async def missing() -> bool:
            return topic not in await admin.list_topics()

        await until(missing)
    await create_topics(world.settings)
    assert (await world.run("verify")).code == 2
    assert await world.rebuilt("--from-logs") == before
    assert (await world.run("verify")).code == 0


async def test_diff_shows_what_the_rules_would_find_in_the_logs(world: LocalStack) -> None:
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
    async with ConversationService(world.settings) as backend:
        begun = Erasure("begun", "2026-01-31T12:00:00Z", "kept")
        await backend.keys.put_erasure(b"rival/ruled", begun)
    found = await world.run("diff", "--rules", "--tenant", "rival")
    assert (found.code, found.lines) == (0, ["removed: 0, added: 0, changed: 0"])


async def test_diff_shows_what_a_model_would_find_in_a_conversation(
    world: LocalStack, tmp_path: Path
) -> None:
    async with ConversationService(world.settings) as backend:
        said = [
            {"type": "message", "role": "user", "content": text} for text in ("Yes?", "A boat!")
        ]
        appended = await backend.append("rival", [("asked", one) for one in said])
        back = {"type": "rollback", "to": str(appended[0].position)}
        gone = {"type": "message", "role": "user", "content": "I take the boat."}
        appended += await backend.append("rival", [("asked", back), ("asked", gone)])
        await backend.wait_applied("rival", "asked", appended)
    await world.rebuilt()
    boat = {**BOAT, "positions": [str(appended[-1].position)]}
    wanted = ("--tenant", "rival", "--conversation", "asked")
    async with model_server(teaches(boat), fails(503)) as server:
        endpoint = ModelSettings(base_url=server.url, model="small-1")
        changed = {"summarizers": {"cheap": endpoint}, "summary_attempts": 1}
        write_config(tmp_path / CONFIG_FILE, msgspec.structs.replace(world.settings, **changed))

        async def diff(*words: str) -> Ran:
            return await cli("memories", "diff", *words, "--data", str(tmp_path))

        found = await diff("--model", "cheap", *wanted)
        assert (found.code, found.lines[-1]) == (1, "removed: 0, added: 1, changed: 0"), found.said
        assert json.loads(found.lines[0])["text"] == BOAT["text"]
        assert "A boat!" not in json.dumps(server.calls), "an abandoned message was sent"
        silent = await diff("--model", "cheap", *wanted)
        assert silent.code == 2 and "'cheap' did not answer for rival/asked" in silent.said
        for words, says in (
            (("--model", "dear", *wanted), "no endpoint 'dear'"),
            (("--model", "cheap", *wanted[:2]), "--model needs --tenant and --conversation"),
            (("--model", "cheap", "--rules", *wanted), "--rules and --model exclude each other"),
            (("--model", "cheap", *wanted[:3], "nobody"), "nobody is not known"),
        ):
            refused = await diff(*words)
            assert refused.code == (1 if "nobody" in words else 2) and says in refused.said
    assert len(server.calls) == 2


async def test_without_a_folder_a_command_says_what_to_set(
    world: LocalStack, tmp_path: Path
) -> None:
    write_config(tmp_path / CONFIG_FILE, msgspec.structs.replace(world.settings, memory_store=""))
    for command in ("rebuild", "verify", "diff"):
        done = await cli("memories", command, "--data", str(tmp_path))
        assert done.code == 2 and "THREADFOLD_MEMORY_STORE" in done.said
