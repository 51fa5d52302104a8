"""Summaries by worker processes on real Kafka and Redis, with a model behind a real HTTP server."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from streams.log.topics import create_topics
from tests.conftest import fresh_settings
from tests.support.generations import open_generation
from tests.support.model_server import (
    Behaviour,
    fails,
    model_server,
    says_once_there_are,
    takes,
)
from tests.support.pipeline import POLICY
from tests.support.summary_workers import SUMMARY, TALKS, World
from tests.support.worker import until
from threadfold.embedded.stack import EmbeddedStack


@pytest.fixture
async def world(stack: EmbeddedStack, tmp_path: Path) -> AsyncIterator[World]:
    # A consumer that stands still after a rebalance is found out, and started again, in time.
    settings = fresh_settings(
        stack, session_timeout=6.0, summary_time_cap=10.0, watchdog_seconds=30.0
    )
    await create_topics(settings)
    await open_generation(settings, {**POLICY, "summarizer": "cheap"})
    async with World(settings, tmp_path) as made:
        yield made


@pytest.mark.long
async def test_an_endpoint_is_called_as_often_at_once_as_it_takes(world: World) -> None:
    """Also: a worker of each part alone."""
    async with model_server(says_once_there_are(65, SUMMARY)) as server:
        projector = world.start(server.url, "--only", "projector", max_concurrent=100)
        await world.append()

        async def applied() -> bool:
            ends = await world.log.end_offsets()
            found = {p: await world.store.checkpoint(1, p) for p in ends}
            return all(c is not None and c.offset == ends[p] - 1 for p, c in found.items())

        await until(applied, 60, "all is applied")
        assert server.calls == [] and projector.poll() is None
        world.start(server.url, "--only", "compactor", max_concurrent=100)
        found = await world.all_summarised()
        assert server.most > 64
    assert {event.data.summarizer for _, event in found} == {"cheap"}
    assert set(Counter(key for key, _ in found).values()) == {1}


@pytest.mark.long
async def test_a_worker_that_is_killed_amid_its_calls_loses_no_summary_and_none_counts_twice(
    world: World,
) -> None:
    async with model_server(takes(0.3, SUMMARY)) as server:
        for _ in range(2):
            world.start(server.url, max_concurrent=4)
        await world.append()

        async def amid() -> bool:
            return len(server.calls) >= 20 and server.under_way > 0

        await until(amid, 60, "calls amid the work")
        world.kill(0)
        found = await world.all_summarised()
    # Its successor may make one again that it had just appended: with the same id, so it is a
    # repeat to the fold.
    assert len({event.data.summary_id for _, event in found}) == TALKS
    assert len({event.id for _, event in found}) == TALKS


@pytest.mark.long
async def test_a_pause_that_an_endpoint_asks_for_is_kept_by_all_workers(world: World) -> None:
    asked_at: list[float] = []
    busy = fails(429, headers={"Retry-After": "4"})

    async def once_busy(server: Any, request: Any, asked: dict[str, Any]) -> Any:
        behave: Behaviour = takes(0.2, SUMMARY)
        if len(server.calls) >= 12 and not asked_at:
            asked_at.append(time.monotonic())
            behave = busy
        return await behave(server, request, asked)

    async with model_server(once_busy) as server:
        for _ in range(2):
            world.start(server.url, max_concurrent=2)
        await world.append()
        found = await world.all_summarised()
        late = [at - asked_at[0] for at in server.times if at > asked_at[0]]
    assert [at for at in late if 0.5 < at < 3.9] == [] and len(late) > TALKS / 2
    assert {event.data.summarizer for _, event in found} == {"cheap"}
