"""A stranger that writes in transactions: its marks take offsets of the log, nobody is given a record for them, and nothing waits."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from projections.intake import make_record
from projections.names import Position, partition_of
from streams.control import Control, Generation
from streams.feed import left_to_fold
from streams.log import KafkaLog
from streams.preview import Preview
from streams.settings import Settings
from streams.topics import create_topics
from streams.worker import Runtime
from tests.conftest import fresh_settings
from tests.integration.test_healing import KEYS, differing, flush
from tests.integration.test_pipeline import POLICY
from tests.support.worker import running_worker, until
from threadfold.backend import Backend
from threadfold.embedded.stack import EmbeddedStack


@pytest.fixture
async def settings(stack: EmbeddedStack) -> AsyncIterator[Settings]:
    made = fresh_settings(stack, append_timeout=5.0, snapshot_events=0)
    await flush(made)
    await create_topics(made)
    control = await Control(made).start()
    await control.write({"generation/1": Generation(1, made.partitions, {**POLICY, "compaction": False}), "generation/live": 1})
    await control.ensure_tenant("acme")
    await control.stop()
    yield made


@asynccontextmanager
async def stranger(settings: Settings) -> AsyncIterator[Any]:
    producer = AIOKafkaProducer(bootstrap_servers=settings.kafka, transactional_id=settings.topic_prefix)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def write(settings: Settings, producer: Any, mark: str) -> Position:
    """A message of each conversation in one transaction; returns the last one's position."""
    sent = []
    async with producer.transaction():
        for key in KEYS:
            flat = {"type": "message", "role": "user", "content": mark}
            record = make_record(key, flat, where="tx", now="2026-01-31T12:00:00Z", new_id=f"{key.conversation}-{mark}")
            partition = partition_of(key, settings.partitions)
            sent.append(await producer.send_and_wait(settings.topic("events"), record.value, str(key).encode(), partition=partition))
    return Position(sent[-1].partition, sent[-1].offset)


async def test_marks_at_the_end_of_the_log_are_waited_for_by_nobody(settings: Settings) -> None:
    log = KafkaLog(settings, settings.partitions)
    async with stranger(settings) as producer, running_worker(settings, compact=False) as runtime, Backend(settings) as backend:
        await write(settings, producer, "one")
        last = await write(settings, producer, "two")
        ends, tops = await log.ends(), await log.tops()
        used = {partition_of(key, settings.partitions) for key in KEYS}
        assert {p: ends[p] - tops[p] for p in ends} == {p: int(p in used) for p in ends}
        await backend.caught_up(range(settings.partitions))
        assert await log.read([Position(last.partition, last.offset + 1)]) == {}, "a mark is no record"
        # Nothing of Redis is left, and nothing more comes: the partitions heal, and are read.
        await flush(settings)
        await until(lambda: _served(backend), 15)
        assert await differing(settings, log, runtime.store) == []
        assert await _not_behind(runtime, used)
        rows = [row async for _, rows in log.stream({p: (0, end - 1) for p, end in ends.items()}) for row in rows]
        assert len(rows) == 2 * len(KEYS)
        report = Preview(runtime.control, log, runtime.projector.rules, runtime.projector.rules)  # type: ignore[union-attr]
        await report.run()
        assert report.document()["conversations"]["compared"] == len(KEYS)
    await log.stop()


async def _served(backend: Backend) -> bool:
    try:
        found = [json.loads(await backend.context(key.tenant, key.conversation)) for key in KEYS]
    except Exception:  # noqa: BLE001 (healing, or not there yet)
        return False
    return all(len(document["messages"]) == 2 for document in found)


async def _not_behind(runtime: Runtime, used: set[int]) -> bool:
    assert runtime.projector is not None
    projector = runtime.projector
    parts = [projector.partitions[number] for number in used]
    return not any([await left_to_fold(projector.log, part, projector._lag(part), projector._feeds[part.number]) for part in parts])
