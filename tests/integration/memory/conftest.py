"""The stack that the tests of a folder's stores share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from streams.settings.settings import Settings
from tests.support.memory_stack import LocalStack, local_stack


@pytest.fixture(scope="module")
async def world(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[LocalStack]:
    async with local_stack(settings, tmp_path_factory.mktemp("data")) as stack:
        yield stack
