"""A platform that summarises, and a client of it, for adapters whose tests bring none."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from streams.settings.settings import Settings
from tests.support.platform import SUMMARIZING, Platform, running_platform
from threadfold_client import AsyncClient


@pytest.fixture(scope="module")
async def platform(settings: Settings) -> AsyncIterator[Platform]:
    async with running_platform(settings, SUMMARIZING) as running:
        yield running


@pytest.fixture
async def client(platform: Platform) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(platform.url, platform.key) as made:
        yield made
