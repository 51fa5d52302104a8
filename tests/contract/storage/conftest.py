"""Every store of windows: in memory, in Redis, compressed, in a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from projections.redis.store import RedisStore
from projections.storage.protocol import WindowStore
from streams.settings.settings import Settings
from tests.support.store import generations
from threadfold.testing import MemoryStore


@pytest.fixture(params=["memory", "real", "compressed", "cluster"])
async def store(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[WindowStore]:
    if request.param == "memory":
        yield MemoryStore()
        return
    url = (
        request.getfixturevalue("redis_cluster").url
        if request.param == "cluster"
        else settings.redis
    )
    real = RedisStore(url, settings.topic_prefix, compress=request.param == "compressed")
    yield real
    await real.close()


@pytest.fixture
def generation() -> int:
    """A generation no other test uses."""
    return next(generations)
