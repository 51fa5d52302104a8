"""Windows whose parts are damaged, lost or of an earlier release heal; what a partition cannot store
or heal at once holds no other.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator

import msgspec
import pytest
import redis.asyncio as aredis

from projections.errors import ThreadfoldError
from projections.events.validation import Record
from projections.names import Key
from streams.log.kafka_log import KafkaLog
from streams.log.topics import create_topics
from streams.settings.settings import Settings
from tests.conftest import fresh_settings
from tests.support.generations import open_generation
from tests.support.lost_redis import differing, flush
from tests.support.pipeline import POLICY
from tests.support.worker import running_worker, until
from tests.support.worker_process import all_applied, messages
from threadfold.embedded.stack import EmbeddedStack


@pytest.fixture
async def settings(stack: EmbeddedStack) -> AsyncIterator[Settings]:
    """Topics of its own, and no snapshots."""
    made = fresh_settings(stack, snapshot_events=0)
    await flush(made)
    await create_topics(made)
    await open_generation(made, POLICY)
    yield made


@pytest.mark.long
async def test_a_damaged_block_of_recent_ids_makes_the_partition_heal(settings: Settings) -> None:
    log = KafkaLog(settings, settings.partitions)
    rng = random.Random(1)
    async with running_worker(settings) as runtime:
        await log.append(messages(rng, 0, 300))
        await all_applied(settings, log, runtime.store)
    client = aredis.Redis.from_url(settings.redis)
    for key in [k async for k in client.scan_iter(match="*:r:*")]:
        await client.hset(key, "0", msgspec.msgpack.encode((b"x" * 8, [-1])))
    async with running_worker(settings) as runtime:
        await log.append(messages(rng, 300, 100))
        await all_applied(settings, log, runtime.store)
        assert await differing(settings, log, runtime.store) == []
    await client.aclose()
    await log.stop()


async def test_recent_ids_that_were_lost_make_the_partition_heal(settings: Settings) -> None:
    log = KafkaLog(settings, settings.partitions)
    sent = messages(random.Random(2), 0, 300)
    async with running_worker(settings, compact=False) as runtime:
        await log.append(sent)
        await all_applied(settings, log, runtime.store)
    client = aredis.Redis.from_url(settings.redis)
    for key in [k async for k in client.scan_iter(match="*:r:*")]:
        await client.delete(key)
    async with running_worker(settings, compact=False) as runtime:
        await log.append(sent[:100])
        await all_applied(settings, log, runtime.store)
        assert await differing(settings, log, runtime.store) == []
    await client.aclose()
    await log.stop()


async def test_windows_of_an_earlier_release_heal_without_another_event(settings: Settings) -> None:
    log = KafkaLog(settings, settings.partitions)
    async with running_worker(settings, compact=False) as runtime:
        await log.append(messages(random.Random(3), 0, 300))
        await all_applied(settings, log, runtime.store)
    client = aredis.Redis.from_url(settings.redis)
    for name in [k async for k in client.scan_iter(match="*:w:*")]:
        # As the release before left them: strings and lists, beside a state of the very same
        # fields.
        await client.delete(name, name.replace(b":w:", b":r:"))
        await client.set(name, b"meta")
        await client.rpush(name.replace(b":w:", b":t:"), b"entry")
        await client.rpush(name.replace(b":w:", b":r:"), b"ids")
    for name in [k async for k in client.scan_iter(match="*:state")]:
        await client.hdel(name, "layout")
    async with running_worker(settings, compact=False) as runtime:

        async def right() -> bool:
            try:
                return await differing(settings, log, runtime.store) == []
            except ThreadfoldError:
                return False

        await until(right)
    await client.aclose()
    await log.stop()


async def test_a_partition_that_heals_slowly_does_not_hold_another_that_has_to_be_prepared(
    settings: Settings, monkeypatch
) -> None:  # type: ignore[no-untyped-def]
    from streams.projector import projector as module

    log = KafkaLog(settings, settings.partitions)
    rng = random.Random(4)
    slow = asyncio.Event()
    began = asyncio.Event()

    async def heal(partition, *_: object):  # type: ignore[no-untyped-def]
        if partition.number == 0:
            began.set()
            await slow.wait()

    async with running_worker(settings, compact=False) as runtime:
        await log.append(messages(rng, 0, 300))
        await all_applied(settings, log, runtime.store)
        monkeypatch.setattr(module, "heal_from_snapshots", heal)
        client = aredis.Redis.from_url(settings.redis)
        prefix = settings.topic_prefix
        await client.delete(f"{prefix}:{{1:0}}:state")
        await began.wait()
        for p in (1, 2, 3):
            # As if another process had written them once: they are well, and have to be loaded
            # again.
            await client.hset(f"{prefix}:{{1:{p}}}:state", "revision", "9" * 16)
        await log.append(messages(rng, 300, 100))

        async def others() -> bool:
            ends = await log.end_offsets()
            found = [await runtime.store.checkpoint(1, p) for p in (1, 2, 3)]
            return all(
                c is not None and not c.healing and c.offset == ends[p] - 1
                for p, c in zip((1, 2, 3), found, strict=True)
            )

        try:
            await until(others)
        finally:
            slow.set()
        await client.aclose()
    await log.stop()


async def test_a_number_that_cannot_be_stored_does_not_stop_its_partition(
    settings: Settings,
) -> None:
    log, key = KafkaLog(settings, settings.partitions), Key("acme", "huge")
    spill = {"chars": 10**30, "bytes": 1, "sha256": "", "size": 1, "chunks": []}
    data = {"tool_call_id": "a", "content": "x", "spill": spill}
    event = {
        "specversion": "1.0",
        "id": "1",
        "type": "threadfold.tool.result.v1",
        "source": key.source,
        "data": data,
    }
    async with running_worker(settings, compact=False) as runtime:
        await log.append(
            [Record(key, "1", "threadfold.tool.result.v1", json.dumps(event).encode())]
        )
        await log.append(messages(random.Random(8), 0, 20))
        await all_applied(settings, log, runtime.store)
    await log.stop()
