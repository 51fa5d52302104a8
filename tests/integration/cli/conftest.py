"""A folder for the commands, and a worker in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.support.command_folder import folder
from tests.support.worker import running_worker


@pytest.fixture(scope="module")
async def data(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("stack"), settings)


@pytest.fixture(scope="module")
async def worker(settings: Settings) -> AsyncIterator[Runtime]:
    async with running_worker(settings) as runtime:
        yield runtime
