"""Idle conversations on real Kafka and Redis, behind a worker and a gateway: they leave Redis but
for a stub, and nobody sees it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis.asyncio as aredis

from projections.errors import Erased, Healing, KafkaUnavailable, UnknownConversation
from projections.names import Key, partition_of
from projections.redis.store import RedisStore
from projections.storage.layout import HEAD, decode_head
from projections.storage.records import Stored
from projections.storage.snapshots import body_of
from projections.storage.stubs import is_packed
from streams.encryption.master_keys import new_master
from streams.encryption.payload_cipher import kid_of_body
from streams.log.clients import admin_client
from streams.log.topics import create_topics
from streams.maintenance.verify import verify
from streams.rebuild.rebuild import rebuild
from streams.recovery import partition_snapshots
from streams.settings.settings import Settings
from tests.conftest import fresh_settings
from tests.support.erasure import no_text
from tests.support.generations import open_generation
from tests.support.grep import raw_records
from tests.support.pipeline import POLICY, sentence
from tests.support.processes import freeze
from tests.support.worker import running_worker, until
from tests.support.worker_process import environment
from threadfold.embedded.process import GuardedProcess
from threadfold.embedded.stack import EmbeddedStack
from threadfold.service.conversation_list import conversations
from threadfold.service.conversations import ConversationService
from threadfold.service.erasure import Eraser

SECRET = "the-key-is-under-the-mat"
NAMES = [f"0195d0b6-7c1a-7f3e-9d2b-{n:012x}" for n in range(8)]
"""Conversations are named by UUIDs: what a stub takes has their length in it."""
SOON = 0.3
WORKER = (
    "import sys; from streams.recovery import partition_snapshots as w; w.LOOK_EVERY = 0.0; w.REST_AT_ONCE = 2; from"
    " streams.worker import run_worker; from streams.settings.settings import Settings;"
    " sys.exit(run_worker(Settings.load()))"
)


@pytest.fixture
async def settings(
    stack: EmbeddedStack, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Settings]:
    """Conversations that fall asleep soon; the tenant `sealed` is encrypted."""
    monkeypatch.setattr(partition_snapshots, "LOOK_EVERY", 0.0)
    made = fresh_settings(
        stack,
        hibernate_after=SOON,
        snapshot_events=30,
        master_keys=new_master("first"),
        read_cache_bytes=0,
    )
    client = aredis.Redis.from_url(made.redis)
    await client.flushdb()
    await client.aclose()
    await create_topics(made)
    await open_generation(made, POLICY, acme=None, sealed={"encryption": True})
    yield made


async def say(backend: ConversationService, tenant: str, name: str, n: int, seed: int = 1) -> None:
    rng = random.Random(f"{seed}{name}")
    flats = [
        {
            "type": "message",
            "role": ("user", "assistant")[i % 2],
            "content": f"{SECRET} {sentence(rng)}",
        }
        for i in range(n)
    ]
    await backend.wait_applied(
        tenant, name, await backend.append(tenant, [(name, flat) for flat in flats]), 30
    )


class Bedroom:
    """What Redis itself has of conversations."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = RedisStore(settings.redis, settings.topic_prefix)
        self.redis = aredis.Redis.from_url(settings.redis)

    async def stored(self, key: Key) -> Stored | None:
        return (await self.store.read(1, partition_of(key, self.settings.partitions), [key]))[1][0]

    async def sleeps(self, *keys: Key) -> bool:
        found = [await self.stored(key) for key in keys]
        return all(parts is not None and parts.asleep is not None for parts in found)

    async def asleep(self, *keys: Key) -> None:
        await until(lambda: self.sleeps(*keys), what="all to be asleep")

    async def bytes(self, key: Key) -> list[int]:
        """What each of the conversation's own keys in Redis takes, by Redis' account."""
        names = [name async for name in self.redis.scan_iter(match=f"*{key}")]
        return [int(await self.redis.memory_usage(name, samples=0) or 0) for name in names]

    async def close(self) -> None:
        await self.redis.aclose()
        await self.store.close()


@pytest.fixture
async def bedroom(settings: Settings) -> AsyncIterator[Bedroom]:
    made = Bedroom(settings)
    yield made
    await made.close()


async def shown(backend: ConversationService, tenant: str, name: str) -> tuple[Any, ...]:
    """Everything a reader is told of a conversation."""
    window = await backend.window(tenant, name)
    contexts = [
        await backend.context(tenant, name, fmt=fmt) for fmt in ("openai", "anthropic", "events")
    ]
    listed = (await conversations(backend, tenant, limit=100))["conversations"]
    return (
        window.image(),
        contexts,
        await backend.history(tenant, name, limit=500),
        [one for one in listed if one["conversation"] == name],
        await backend.owner(Key(tenant, name)),
    )


async def differing(backend: ConversationService) -> list[str]:
    report = await verify(
        backend.log, backend.store, backend.control.state.live_generation, backend.live_rules()
    )
    assert report.verified > 0
    return report.differing


@pytest.mark.long
async def test_idle_conversations_become_stubs_of_500_bytes_and_readers_and_events_do_not_notice(
    settings: Settings, bedroom: Bedroom
) -> None:
    awake = msgspec.structs.replace(settings, hibernate_after=0.0)
    keys = [Key(tenant, name) for tenant in ("acme", "sealed") for name in NAMES]
    async with ConversationService(settings) as backend:
        async with running_worker(awake):
            for i, key in enumerate(keys):
                opened = {"type": "conversation.opened", "user": f"u-{i}"}
                await backend.append(key.tenant, [(key.conversation, opened)])
                await say(backend, key.tenant, key.conversation, 3 + 4 * i)
            await until(lambda: no_due(backend))
            owners = [await backend.owner(key) for key in keys]
            assert [owner and owner.user for owner in owners] == [
                f"u-{i}" for i in range(len(keys))
            ]
            before = {key: await shown(backend, key.tenant, key.conversation) for key in keys}
            whole = {key: sum(await bedroom.bytes(key)) for key in keys}
        # Without the compactor: what it was asked before it would answer once more.
        async with running_worker(settings, compact=False):
            await bedroom.asleep(*keys)
            for key in keys:
                (size,) = await bedroom.bytes(key)
                assert size <= 500 < whole[key], key
            for key in keys:
                assert await shown(backend, key.tenant, key.conversation) == before[key], key
            assert await bedroom.sleeps(*keys), "a read wakes nobody in Redis"
            assert await differing(backend) == []
            for name, value in await raw_records(settings, "snapshots"):
                if name is not None and name.startswith(b"sealed/") and value is not None:
                    assert (
                        kid_of_body(body_of(value) or b"") is not None
                        and SECRET.encode() not in value
                    )
            # A repeat of an id from before is one, and an event wakes its conversation.
            key = keys[3]
            page = await backend.history(key.tenant, key.conversation, limit=20)
            old = next(event["id"] for event in page["events"] if event["type"] == "message")
            repeat = {"type": "message", "role": "user", "content": "again", "id": old}
            (told,) = await backend.wait_applied(
                key.tenant,
                key.conversation,
                await backend.append(key.tenant, [(key.conversation, repeat)]),
                30,
            )
            assert told.status == "duplicate"
            await say(backend, key.tenant, key.conversation, 2, seed=2)
            assert (await backend.window(key.tenant, key.conversation)).meta.count == before[key][
                3
            ][0]["count"] + 2
            assert await bedroom.sleeps(*(other for other in keys if other != key))
            assert await differing(backend) == []


async def no_due(backend: ConversationService) -> bool:
    return not any(
        [await backend.store.due(1, p, 10**15, 1) for p in range(backend.log.partitions)]
    )


@pytest.mark.long
async def test_sleeping_conversations_come_back_asleep_when_redis_is_lost_and_from_the_log_when_snapshots_are(
    settings: Settings, bedroom: Bedroom
) -> None:
    keys = [Key("acme", name) for name in NAMES]
    async with ConversationService(settings) as backend, running_worker(settings) as runtime:
        for key in keys:
            await say(backend, key.tenant, key.conversation, 12)
        await bedroom.asleep(*keys)
        images = [(await backend.window(key.tenant, key.conversation)).image() for key in keys]
        await bedroom.redis.flushdb()
        await until(lambda: bedroom.sleeps(*keys))
        assert await differing(backend) == []
        assert runtime.projector is not None
        # -- the topic is deleted and made anew while they sleep
        topic = settings.topic("snapshots")
        async with admin_client(settings) as admin:
            await admin.delete_topics([topic])

            async def gone() -> bool:
                return topic not in await admin.list_topics()

            await until(gone)
        await create_topics(settings)
        assert (await backend.window("acme", NAMES[0])).image() == images[0]
        await say(backend, "acme", NAMES[1], 1, seed=3)
        for key, image in list(zip(keys, images, strict=True))[2:]:
            assert (await backend.window(key.tenant, key.conversation)).image() == image
        assert await differing(backend) == []


@pytest.mark.long
async def test_a_worker_killed_while_it_puts_conversations_to_sleep_leaves_each_asleep_or_awake(
    settings: Settings, bedroom: Bedroom, tmp_path: Path
) -> None:
    keys = [Key("acme", f"{name}-{i}") for name in NAMES for i in range(6)]
    quick = msgspec.structs.replace(settings, session_timeout=2.0)
    env = {
        **environment(quick),
        "THREADFOLD_HIBERNATE_AFTER": str(SOON),
        "THREADFOLD_SNAPSHOT_EVENTS": "30",
        "THREADFOLD_MASTER_KEYS": settings.master_keys,
    }
    async with ConversationService(settings) as backend:
        async with running_worker(
            msgspec.structs.replace(quick, hibernate_after=0.0), compact=False
        ):
            for key in keys:
                await say(backend, key.tenant, key.conversation, 4)
            images = [(await backend.window(key.tenant, key.conversation)).image() for key in keys]
        process = GuardedProcess(
            [sys.executable, "-c", WORKER], env={**os.environ, **env}, log=tmp_path / "worker.log"
        )
        process.start()

        async def some() -> bool:
            return sum([await bedroom.sleeps(key) for key in keys]) >= 4

        await until(some, 60)
        process.kill()
        assert sum([await bedroom.sleeps(key) for key in keys]) < len(keys), (
            "it was killed too late to tell"
        )
        async with running_worker(quick, compact=False):
            await bedroom.asleep(*keys)
            assert [
                (await backend.window(key.tenant, key.conversation)).image() for key in keys
            ] == images
            assert await differing(backend) == []


async def test_a_sleeping_conversation_is_erased_and_rolled_back_like_any_other(
    settings: Settings, bedroom: Bedroom
) -> None:
    keys = [Key("acme", NAMES[0]), Key("sealed", NAMES[1])]
    back = Key("acme", NAMES[2])
    async with ConversationService(settings) as backend, running_worker(settings):
        for key in (*keys, back):
            await say(backend, key.tenant, key.conversation, 6)
        await bedroom.asleep(*keys, back)
        first = (await backend.history("acme", back.conversation, limit=500))["events"][-1][
            "position"
        ]
        rolled = await backend.append(
            "acme", [(back.conversation, {"type": "rollback", "to": first})]
        )
        await backend.wait_applied("acme", back.conversation, rolled, 30)
        assert len(json.loads(await backend.context("acme", back.conversation))["messages"]) == 1
        eraser = Eraser(backend, no_text)
        for key in keys:
            await backend.context(key.tenant, key.conversation)
            assert (await eraser.conversation(key.tenant, key.conversation)).log == (
                "opaque" if key.tenant == "sealed" else "kept"
            )
            with pytest.raises(Erased):
                await backend.context(key.tenant, key.conversation)
            assert await backend.owner(key) is None

        async def overwritten() -> bool:
            latest = dict(await raw_records(settings, "snapshots"))
            return not any(is_whole(latest[str(key).encode()]) for key in keys)

        await until(overwritten)
        assert [key for key in keys if await bedroom.sleeps(key)] == []
        assert await differing(backend) == []


@pytest.mark.long
async def test_what_sleeps_in_a_generation_that_was_left_is_erased_there_too(
    settings: Settings, bedroom: Bedroom
) -> None:
    key, other = Key("acme", NAMES[0]), Key("acme", NAMES[1])
    async with ConversationService(settings) as backend, running_worker(settings, compact=False):
        for one in (key, other):
            await say(backend, one.tenant, one.conversation, 6)
        await bedroom.asleep(key, other)
        image = (await backend.window(other.tenant, other.conversation)).image()
        await rebuild(
            settings,
            backend.control,
            backend.log,
            backend.store,
            policy={**POLICY, "min_messages": 30},
            switch=True,
        )
        assert backend.control.state.live == 2
        await until(lambda: served(backend, other))
        assert (await backend.window(other.tenant, other.conversation)).image() == image
        assert await bedroom.sleeps(key, other), "the old generation is as it was"
        await Eraser(backend, no_text).conversation(key.tenant, key.conversation)
        assert not await bedroom.sleeps(key)
        stored = await bedroom.stored(key)
        assert stored is not None and decode_head(stored.fields[HEAD]).erased


async def served(backend: ConversationService, key: Key) -> bool:
    try:
        return (await backend.window(key.tenant, key.conversation)).meta.count > 0
    except (Healing, UnknownConversation):
        return False


def is_whole(value: bytes | None) -> bool:
    """Whether a record of the snapshots topic holds a window that sleeps."""
    body = body_of(value) or b""
    return is_packed(body) or kid_of_body(body) is not None


@pytest.mark.long
async def test_kafka_frozen_what_needs_it_answers_within_the_append_timeout_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_snapshots, "LOOK_EVERY", 0.0)
    with EmbeddedStack(tmp_path / "stack") as own:
        assert own.embedded_kafka is not None
        made = fresh_settings(own, hibernate_after=SOON, snapshot_events=30, append_timeout=3.0)
        await create_topics(made)
        await open_generation(made, POLICY, acme=None)
        bedroom = Bedroom(made)
        async with ConversationService(made) as backend:

            async def seconds(read: Coroutine[Any, Any, object], *, fails: bool) -> float:
                begun = time.monotonic()
                if fails:
                    with pytest.raises(KafkaUnavailable, match="does not answer"):
                        await read
                else:
                    await read
                return time.monotonic() - begun

            async with running_worker(made):
                for name in ("seen", "unseen"):
                    await say(backend, "acme", name, 40)
                await bedroom.asleep(Key("acme", "seen"), Key("acme", "unseen"))
                await backend.context("acme", "seen")
            async with running_worker(msgspec.structs.replace(made, hibernate_after=0.0)):
                await say(backend, "acme", "awake", 2)
            assert await bedroom.sleeps(Key("acme", "unseen")), "the second worker has woken it"
            freeze(own.embedded_kafka.pid)
            try:
                slow = [
                    read
                    for _ in range(3)
                    for read in (
                        backend.context("acme", "unseen"),
                        backend.history("acme", "unseen"),
                        backend.history("acme", "awake"),
                    )
                ]
                took = await asyncio.gather(*(seconds(read, fails=True) for read in slow))
                # Some wait for their turn first, for 5 s at most.
                assert min(took) < made.append_timeout and max(took) < made.append_timeout + 5
                for name in ("seen", "awake"):
                    read = backend.context("acme", name)
                    assert await seconds(read, fails=False) < made.append_timeout
            finally:
                os.kill(own.embedded_kafka.pid, signal.SIGCONT)
            await backend.context("acme", "unseen")
        await bedroom.close()
