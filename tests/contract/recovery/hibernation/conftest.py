"""Hibernation in small steps, and the place it happens in."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from projections.redis.store import RedisStore
from streams.log.kafka_log import KafkaLog
from streams.recovery import healing, partition_snapshots, revival, snapshot_writer
from streams.recovery.snapshot_topic import KafkaSnapshots
from streams.settings.settings import Settings
from tests.support.hibernation import HibernationPlace, in_memory
from tests.support.partitions import Parts


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds are due at once, and everything is done in small pieces, so that it interleaves."""
    monkeypatch.setattr(partition_snapshots, "EVENTS_A_WINDOW", 0)
    monkeypatch.setattr(partition_snapshots, "SLICE", 1)
    monkeypatch.setattr(partition_snapshots, "REST_AT_ONCE", 100)
    monkeypatch.setattr(partition_snapshots, "REST_AGAIN", 2)
    monkeypatch.setattr(snapshot_writer, "RETRY_AFTER", 0.0)
    monkeypatch.setattr(healing, "AT_ONCE", 2)
    monkeypatch.setattr(revival, "AT_ONCE", 2)


@pytest.fixture(params=["memory", "real"])
async def place(
    request: pytest.FixtureRequest, settings: Settings
) -> AsyncIterator[HibernationPlace]:
    if request.param == "memory":
        made = in_memory()
        yield made
        await made.rounds.stop()
        await made.revival.stop()
        return
    log, store, topic = (
        KafkaLog(settings, 4),
        RedisStore(settings.redis, settings.topic_prefix),
        KafkaSnapshots(settings, 4),
    )
    made = HibernationPlace(Parts(log, store, settings), topic)
    yield made
    await made.rounds.stop()
    await made.revival.stop()
    await topic.stop()
    await log.stop()
    await store.close()
