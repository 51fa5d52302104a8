"""A log that is folded into the live generation."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from projections.events.validation import make_record
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.support.generations import open_generation
from tests.support.pipeline import sentence
from tests.support.rebuilds import EVENTS, KEYS, POLICY, caught_up
from tests.support.worker import running_worker, until


@pytest.fixture(scope="module")
async def runtime(settings: Settings) -> AsyncIterator[Runtime]:
    """A log, all of it in the live generation's windows, and its worker."""
    await open_generation(settings, POLICY, acme=None)
    async with running_worker(settings, compact=False) as running:
        rng = random.Random(11)
        text = [sentence(rng) for _ in range(100)]
        for begin_ in range(0, EVENTS, 3000):
            await running.log.append(
                [
                    make_record(KEYS[rng.randrange(len(KEYS))], {"type": "message", "role": "user", "content": text[i % 100]},
                                where="event", now="2026-01-01T00:00:00Z", new_id=f"e{begin_ + i}")
                    for i in range(3000)
                ]
            )  # fmt: skip
        await until(lambda: caught_up(running), limit=60)
        yield running
