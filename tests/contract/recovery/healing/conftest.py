"""Rounds of snapshots that interleave with everything, and the place they happen in."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from projections.redis.store import RedisStore
from streams.log.kafka_log import KafkaLog
from streams.recovery import healing, partition_snapshots, snapshot_writer
from streams.recovery.snapshot_topic import KafkaSnapshots
from streams.settings.settings import Settings
from tests.support.healing import Place
from tests.support.partitions import Parts
from tests.support.snapshots import MemorySnapshots
from threadfold.testing import MemoryLog, MemoryStore


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds are due at once and take one window at a time, and healing writes one at a time, so
    that everything interleaves.
    """
    monkeypatch.setattr(partition_snapshots, "EVENTS_A_WINDOW", 0)
    monkeypatch.setattr(partition_snapshots, "SLICE", 1)
    monkeypatch.setattr(snapshot_writer, "RETRY_AFTER", 0.0)
    monkeypatch.setattr(healing, "WRITE_WINDOWS", 1)
    monkeypatch.setattr(healing, "CHUNK_BYTES", 2_000)


@pytest.fixture(params=["memory", "real"])
async def place(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[Place]:
    if request.param == "memory":
        made = Place(Parts(MemoryLog(4), MemoryStore(), None), MemorySnapshots(4))
        yield made
        await made.rounds.stop()
        return
    log, store, topic = (
        KafkaLog(settings, 4),
        RedisStore(settings.redis, settings.topic_prefix),
        KafkaSnapshots(settings, 4),
    )
    made = Place(Parts(log, store, settings), topic)
    yield made
    await made.rounds.stop()
    await topic.stop()
    await log.stop()
    await store.close()
