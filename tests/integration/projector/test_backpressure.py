"""Slow parts slow what depends on them, and nothing else: no queue grows without bound, no model is
paid twice, others are not starved.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from projections.events.validation import Record, make_record
from projections.names import Key, partition_of
from projections.redis.store import RedisStore
from projections.storage.records import Applied, Checkpoint, Write
from streams.control.control_topic import Control
from streams.log.kafka_log import KafkaLog
from streams.log.topics import create_topics
from streams.partition.runtime import FETCH_ROWS
from streams.projector.projector import Projector
from streams.settings.settings import Settings
from tests.conftest import fresh_settings
from tests.support.endpoint_talk import POLICY as ENDPOINT_POLICY
from tests.support.endpoint_talk import talk
from tests.support.generations import open_generation
from tests.support.model_server import ModelServer, completion, model_server
from tests.support.worker import running_worker, until
from tests.support.worker_process import all_applied
from threadfold.embedded.stack import EmbeddedStack
from threadfold.service.conversations import ConversationService

NOW = "2026-01-01T00:00:00Z"


def record(key: Key, number: int, content: str) -> Record:
    return make_record(
        key,
        {"type": "message", "role": "user", "content": content},
        where="event",
        now=NOW,
        new_id=f"m{number}",
    )


async def begin(settings: Settings, policy: dict[str, Any]) -> None:
    await create_topics(settings)
    await open_generation(settings, policy)


class SlowStore(RedisStore):
    """A Redis that takes its time for every batch."""

    pause = 0.15

    async def apply(
        self, generation: int, partition: int, checkpoint: Checkpoint, writes: list[Write]
    ) -> Applied:
        await asyncio.sleep(self.pause)
        return await super().apply(generation, partition, checkpoint, writes)


@pytest.fixture
async def projecting(
    stack: EmbeddedStack,
) -> AsyncIterator[tuple[Settings, KafkaLog, SlowStore, Projector]]:
    settings = fresh_settings(stack, batch_events=50, batch_bytes=32 << 10, snapshot_events=0)
    await begin(settings, {})
    control = await Control(settings).start()
    log, store = (
        KafkaLog(settings, settings.partitions),
        SlowStore(settings.redis, settings.topic_prefix),
    )
    yield settings, log, store, Projector(settings, control, log, store)
    await log.stop()
    await store.close()
    await control.stop()


@pytest.mark.long
async def test_a_slow_redis_slows_the_intake_and_what_waits_for_it_stays_bounded(
    projecting: tuple[Settings, KafkaLog, SlowStore, Projector],
) -> None:
    settings, log, store, projector = projecting
    text = "word " * 200
    records = [record(Key("acme", f"c{i % 40}"), i, text) for i in range(4_000)]
    begun = time.monotonic()
    await log.append(records)
    assert time.monotonic() - begun < 10, "appends do not wait for Redis"
    task = asyncio.create_task(projector.run())
    most, slow_until = 0, time.monotonic() + 4
    try:
        while time.monotonic() < slow_until:
            most = max(most, sum(feed.held for feed in projector.runtime.queues()))
            await asyncio.sleep(0.01)
        done = sum(p.checkpoint.offset + 1 for p in projector.partitions.values())
        assert 0 < done < len(records), "it goes on, slowly"
        # A feed that is not full yet takes one more fetch, whole.
        bound = settings.partitions * (
            2 * settings.batch_bytes + FETCH_ROWS * (len(records[0].value) + 100)
        )
        assert settings.batch_bytes < most <= bound < sum(len(r.value) for r in records)
        store.pause = 0.0
        await all_applied(settings, log, store)
    finally:
        projector.stop()
        await task


class Slow:
    """A model that takes its time."""

    def __init__(self) -> None:
        self.seconds = 0.8

    async def __call__(
        self, server: ModelServer, request: web.Request, asked: dict[str, Any]
    ) -> web.StreamResponse:
        await asyncio.sleep(self.seconds)
        return web.json_response(
            completion("Mia Berg wants orders #W58201 and #W58202 in Oslo by 2026-03-14.")
        )


@pytest.mark.long
async def test_requests_that_wait_for_a_slow_summariser_are_not_repeated_and_each_summary_is_paid_once(
    stack: EmbeddedStack,
) -> None:
    async with model_server(Slow()) as server:
        settings = fresh_settings(
            stack,
            # Less than six summaries take one after the other, so that each would be repeated; a
            # call has time on a busy machine.
            summary_time_cap=3.0,
            summarizers={
                "cheap": {
                    "base_url": server.url,
                    "model": "small-1",
                    "key": "sk-1",
                    "max_concurrent": 1,
                }
            },
        )
        await begin(settings, ENDPOINT_POLICY)
        keys = [Key("acme", f"talk-{i}") for i in range(6)]
        async with running_worker(settings) as runtime:
            assert runtime.log is not None and runtime.projector is not None
            for key in keys:
                await runtime.log.append(
                    [
                        make_record(key, flat, where="e", now=NOW, new_id=f"{key.conversation}-{i}")
                        for i, flat in enumerate(talk())
                    ]
                )
            await all_applied(settings, runtime.log, runtime.store)
            requests = KafkaLog(settings, settings.partitions, "compactions")
            summaries = KafkaLog(settings, settings.partitions, "summaries")

            async def settled() -> bool:
                due = [
                    await runtime.store.due(1, p, 2**52, 100) for p in range(settings.partitions)
                ]
                return not any(due)

            await until(settled, 60)
            asked = sum((await requests.end_offsets()).values())

            async def published() -> int:
                found = 0
                for p, end in (await summaries.end_offsets()).items():
                    found += len([raw async for raw in summaries.scan(p, 0, end - 1)])
                return found if found >= len(server.calls) else 0

            taken = await until(published)
            assert taken >= len(keys)
            # One that was answered may be repeated before the fold comes to its summary.
            assert asked <= taken + len(keys), "requests were repeated while they waited"
            assert len(server.calls) == taken, "each summary is paid for once"
            await requests.stop()
            await summaries.stop()


@pytest.mark.long
async def test_a_hot_conversation_does_not_starve_the_others_of_its_partition(
    stack: EmbeddedStack,
) -> None:
    settings = fresh_settings(stack)
    await begin(settings, {"working_budget": 2000, "keep_recent_tokens": 800})
    rng = random.Random(5)
    hot = Key("acme", "hot")
    near = [
        k for i in range(200) if partition_of(k := Key("acme", f"n{i}"), 4) == partition_of(hot, 4)
    ][:10]
    waits: list[float] = []
    async with running_worker(settings) as runtime:
        assert runtime.log is not None
        log, store, partition = runtime.log, runtime.store, partition_of(hot, 4)
        sent = 0

        async def heat(events: int) -> None:
            nonlocal sent
            while sent < events or len(waits) < 10:
                await log.append(
                    [record(hot, sent + i, f"number {rng.random()} of many") for i in range(100)]
                )
                sent += 100
                await asyncio.sleep(0.05)

        async def reached(offset: int) -> bool:
            checkpoint = await store.checkpoint(1, partition)
            return checkpoint is not None and checkpoint.offset >= offset

        flood = asyncio.create_task(heat(4_000))
        number = 1_000_000
        while not flood.done():
            (at,) = await log.append(
                [record(near[number % len(near)], number, "is anybody there?")]
            )
            begun = time.monotonic()
            await until(lambda offset=at.offset: reached(offset), 30)  # type: ignore[misc]
            waits.append(time.monotonic() - begun)
            number += 1
        await flood
        await all_applied(settings, log, store)
    assert sent >= 2_000 and len(waits) >= 10
    # In the log's order nobody waits for more than what came before, and 2,000 events of one
    # conversation are far from a second's work.
    assert sorted(waits)[len(waits) // 2] < 1.0 and max(waits) < 5.0


@pytest.mark.long
async def test_other_partitions_are_served_while_a_worker_is_far_behind(
    stack: EmbeddedStack, caplog: pytest.LogCaptureFixture
) -> None:
    settings = fresh_settings(stack, partitions=4, session_timeout=6.0)
    await begin(settings, {})
    log = KafkaLog(settings, settings.partitions)
    quiet = next(c for i in range(99) if partition_of(Key("other", c := f"c{i}"), 4) == 3)
    busy = [k for i in range(800) if partition_of(k := Key("acme", f"c{i}"), 4) != 3]
    text = "many words of a message " * 30
    for start in range(0, 60_000, 5_000):
        await log.append(
            [record(busy[i % len(busy)], i, text) for i in range(start, start + 5_000)]
        )
    service = ConversationService(settings)
    waits = []

    async def appended_and_applied() -> float:
        begun = time.monotonic()
        flat = {"type": "message", "role": "user", "content": "hello"}
        appended = await service.append("other", [(quiet, flat)])
        await service.wait_applied("other", quiet, appended, timeout=60)
        return time.monotonic() - begun

    async with running_worker(settings), service:
        await appended_and_applied()  # learns the tenant and opens connections
        while sum((await service.behind()).values()) > 1_000:
            waits.append(await appended_and_applied())
    await log.stop()
    assert waits and max(waits) < 3, waits  # 5 s before
    assert "session expired" not in caplog.text.lower()
