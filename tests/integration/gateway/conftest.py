"""A gateway with a worker, and the end users of its tenant."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from streams.settings.settings import Settings
from tests.support.end_users import World, serving_end_users
from tests.support.worker import running_worker


@pytest.fixture(scope="module")
async def world(settings: Settings) -> AsyncIterator[World]:
    async with serving_end_users(settings) as made, running_worker(settings):
        await made.ready()
        yield made
