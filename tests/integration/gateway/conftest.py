"""A gateway with a worker: asked without a socket, or served with the end users of its tenant."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from streams.settings.settings import Settings
from tests.support.end_users import World, serving_end_users
from tests.support.gateway import Client, serving
from tests.support.worker import running_worker


@pytest.fixture(scope="module")
async def call(settings: Settings) -> AsyncIterator[Client]:
    async with serving(settings) as client:
        yield client


@pytest.fixture(scope="module")
async def world(settings: Settings) -> AsyncIterator[World]:
    async with serving_end_users(settings) as made, running_worker(settings):
        await made.ready()
        yield made
