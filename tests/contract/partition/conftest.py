"""The parts of a partition, in memory and real."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from projections.redis.store import RedisStore
from streams.log.kafka_log import KafkaLog
from streams.settings.settings import Settings
from tests.support.partitions import Parts
from threadfold.testing import MemoryLog, MemoryStore


@pytest.fixture(params=["memory", "real"])
async def parts(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[Parts]:
    if request.param == "memory":
        yield Parts(MemoryLog(4), MemoryStore(), None)
        return
    log, store = KafkaLog(settings, 4), RedisStore(settings.redis, settings.topic_prefix)
    yield Parts(log, store, settings)
    await log.stop()
    await store.close()
