"""The TypeScript client on a real stack: its own tests, run by Node."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from streams.settings.settings import Settings
from tests.support.node import run_tests
from tests.support.platform import SUMMARIZING, Platform, running_platform

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
async def platform(settings: Settings) -> AsyncIterator[Platform]:
    async with running_platform(settings, SUMMARIZING) as running:
        yield running


async def test_the_client_reaches_a_real_stack(platform: Platform) -> None:
    await run_tests("stack", THREADFOLD_URL=platform.url, THREADFOLD_KEY=platform.key)
