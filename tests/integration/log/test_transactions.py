"""A producer with transactions writes to the log: each leaves a marker, an offset without a record,
which nobody may wait for.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import redis.asyncio as aredis
from aiokafka import AIOKafkaProducer

from projections.errors import Healing
from projections.events.validation import make_record
from projections.names import Key
from streams.log.kafka_log import KafkaLog
from streams.log.topics import create_topics
from streams.projector.progress import FoldProgress
from streams.rebuild.rebuild import rebuild
from streams.settings.settings import Settings
from tests.conftest import fresh_settings
from tests.support.generations import open_generation
from tests.support.worker import running_worker, until
from tests.support.worker_process import verified
from threadfold.embedded.stack import EmbeddedStack
from threadfold.service.conversations import ConversationService

KEYS = [Key("acme", f"c{i}") for i in range(6)]


@pytest.fixture
async def settings(stack: EmbeddedStack) -> AsyncIterator[Settings]:
    """A log of two partitions, both of which end with a marker."""
    made = fresh_settings(stack, partitions=2)
    client = aredis.Redis.from_url(made.redis)
    await client.flushdb()
    await client.aclose()
    await create_topics(made)
    await open_generation(made, {}, acme=None)
    producer = AIOKafkaProducer(bootstrap_servers=made.kafka, transactional_id=made.topic_prefix)
    await producer.start()
    async with producer.transaction():
        for i in range(30):
            flat = {"type": "message", "role": "user", "content": f"message {i}"}
            record = make_record(
                KEYS[i % 6], flat, where="event", now="2026-01-01T00:00:00Z", new_id=f"m{i}"
            )
            await producer.send(made.topic("events"), record.value, str(record.key).encode())
    await producer.stop()
    log = KafkaLog(made, made.partitions)

    async def ended() -> bool:
        return sum((await log.end_offsets()).values()) == 32

    await until(ended, what="both markers are written, a moment after the commit")
    await log.stop()
    yield made


@pytest.mark.long
async def test_what_a_transaction_left_is_folded_waited_for_verified_and_rebuilt(
    settings: Settings,
) -> None:
    log = KafkaLog(settings, settings.partitions)
    ends = await log.end_offsets()
    rows = [raw for p in ends for raw in [raw async for raw in log.scan(p, 0, ends[p] - 1)]]
    assert len(rows) == 30
    assert await log.last_records() == {p: end - 1 for p, end in ends.items()}
    begun = time.monotonic()
    assert (
        sum([len(batch) async for _, batch in log.stream({p: (0, ends[p] - 1) for p in ends})])
        == 30
    )
    assert time.monotonic() - begun < settings.append_timeout / 2
    async with (
        running_worker(settings, compact=False) as runtime,
        ConversationService(settings) as backend,
    ):
        assert runtime.projector is not None and runtime.log is not None
        await backend.caught_up(range(settings.partitions))
        looks = FoldProgress(runtime.projector, runtime.log, runtime.store)

        async def nothing_left() -> bool:
            return {name: look.lag for name, look in (await looks()).items()} == {
                "partition 0": 0,
                "partition 1": 0,
            }

        await until(nothing_left, what="the watchdog sees nothing that waits")
        await runtime.store.drop_generation(1, settings.partitions)

        async def back() -> bool:
            checkpoints = [await runtime.store.checkpoint(1, p) for p in range(settings.partitions)]
            return all(
                c is not None and not c.healing and c.offset == ends[p] - 2
                for p, c in enumerate(checkpoints)
            )

        await until(back, what="a lost Redis heals up to the last record")
        assert (await backend.window("acme", "c0")).meta.count == 5
        report = await verified(settings, log, runtime.store)
        assert (report.verified, report.differing) == (6, [])
        await rebuild(settings, runtime.control, log, runtime.store, switch=True)

        async def served() -> bool:
            with suppress(Healing):
                return (await backend.window("acme", "c0")).meta.count == 5
            return False

        await until(served, what="the new generation is served")
    await log.stop()


@pytest.mark.long
async def test_a_worker_without_partitions_is_not_held_up_by_a_marker(settings: Settings) -> None:
    async with (
        running_worker(settings, compact=False) as runtime,
        ConversationService(settings) as backend,
    ):
        await backend.caught_up(range(settings.partitions))
        assert runtime.projector is not None and runtime.log is not None
        partitions = runtime.projector.runtime
        assignment, partitions.assignment = partitions.assignment, dict  # type: ignore[method-assign]
        (look,) = (await FoldProgress(runtime.projector, runtime.log, runtime.store)()).values()
        assert look.lag == 0
        partitions.assignment = assignment  # type: ignore[method-assign]


async def test_what_an_aborted_transaction_wrote_counts_as_it_stands_in_the_log(
    settings: Settings,
) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=settings.kafka, transactional_id=f"{settings.topic_prefix}-2"
    )
    await producer.start()
    flat = {"type": "message", "role": "user", "content": "taken back"}
    record = make_record(
        KEYS[0], flat, where="event", now="2026-01-01T00:00:00Z", new_id="taken-back"
    )
    await producer.begin_transaction()
    await producer.send_and_wait(settings.topic("events"), record.value, str(record.key).encode())
    await producer.abort_transaction()
    await producer.stop()
    async with running_worker(settings, compact=False), ConversationService(settings) as backend:
        await backend.caught_up(range(settings.partitions))
        assert (await backend.window("acme", "c0")).meta.count == 6
