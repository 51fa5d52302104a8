"""What projections of one's own run on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import redis.asyncio as aredis

from streams.log.topics import create_topics
from streams.settings.settings import Settings
from tests.conftest import fresh_settings
from tests.support.custom_projections import KEY
from tests.support.generations import open_generation
from threadfold.custom.access import Parts, opened
from threadfold.embedded.stack import EmbeddedStack


@pytest.fixture(scope="module")
async def parts(stack: EmbeddedStack) -> AsyncIterator[tuple[Settings, Parts]]:
    """Topics of their own, a tenant that is encrypted, and the open parts."""
    settings = fresh_settings(stack, master_keys=KEY, session_timeout=6)
    client = aredis.Redis.from_url(settings.redis)
    await client.flushdb()
    await client.aclose()
    await create_topics(settings)
    await open_generation(settings, {}, sealed={"encryption": True})
    async with opened(settings) as made:
        yield settings, made
