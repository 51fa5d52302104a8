"""Budgets of summaries over several worker processes, on real Kafka and Redis."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from projections.names import Key
from projections.redis.daily_counts import DailyCounts
from streams.compaction.summarizers.budgets import all_spent_today, spent_today
from streams.control.control_topic import Control
from streams.log.topics import create_topics
from streams.settings.quotas import Quota
from tests.conftest import fresh_settings
from tests.support.generations import open_generation
from tests.support.model_server import model_server, says, takes
from tests.support.pipeline import POLICY
from tests.support.summary_workers import SUMMARY, World
from tests.support.worker import until
from threadfold.embedded.stack import EmbeddedStack

pytestmark = pytest.mark.long
TALKS = 40
CALLS = 10
"""Calls of 1,000 tokens that the budget has room for."""
USAGE = {"prompt_tokens": 900, "completion_tokens": 100}


@pytest.fixture
async def world(stack: EmbeddedStack, tmp_path: Path) -> AsyncIterator[World]:
    settings = fresh_settings(stack, session_timeout=6.0)
    await create_topics(settings)
    await open_generation(settings, {**POLICY, "summarizer": "cheap"}, acme={}, other={})
    async with World(settings, tmp_path) as made:
        made.keys = [Key(tenant, f"talk{i}") for tenant in ("acme", "other") for i in range(TALKS)]
        yield made


async def give(world: World, quota: Quota) -> None:
    """Set the quota of tenant acme."""
    control = await Control(world.settings).start()
    await control.change_tenant("acme", None, lambda _: quota)
    await control.stop()


async def test_a_tenant_of_thrice_the_weight_has_three_of_four_summaries(world: World) -> None:
    await give(world, Quota(summary_weight=3))
    async with model_server(takes(0.02, SUMMARY)) as server:
        world.start(server.url, "--only", "projector")
        await world.append()

        async def all_are_due() -> bool:
            number = world.settings.partitions
            due = [await world.store.due_count(1, partition) for partition in range(number)]
            return sum(due) == 2 * TALKS

        await until(all_are_due, 60, "all are due")
        world.start(server.url, "--only", "compactor", max_concurrent=1)
        found = await world.all_summarised()
    first = sorted((event.time, key.tenant) for key, event in found)[:40]
    # Requests come partition by partition: the first few are of whoever is there.
    assert 24 <= sum(tenant == "acme" for _, tenant in first) <= 36, first


async def test_two_workers_keep_one_budget_and_the_other_tenant_has_its_model(
    world: World,
) -> None:
    await give(world, Quota(summary_tokens_per_day=CALLS * 1_000.0))
    async with model_server(says(SUMMARY, usage=USAGE)) as server:
        options: dict[str, Any] = {"max_concurrent": 2, "input_price": 1.0, "output_price": 1.0}
        for _ in range(2):
            world.start(server.url, **options)
        await world.append()
        found = await world.all_summarised()
    # A request that another worker takes over may be answered twice, under one id.
    by_talk = {key: event.data.summarizer for key, event in reversed(found)}
    made = Counter((key.tenant, summarizer) for key, summarizer in by_talk.items())
    assert made["other", "cheap"] == TALKS and ("other", "extractive") not in made
    # Prompts are a few hundred tokens: calls under way are estimated at less than they used. At a
    # rebalance an answer may come too late for its summary: the call is counted all the same.
    assert CALLS - 4 <= made["acme", "cheap"] <= CALLS + 4
    assert made["acme", "cheap"] + made["acme", "extractive"] == TALKS
    counts = DailyCounts(world.settings.redis, world.settings.topic_prefix)
    spent = [await spent_today(counts, tenant) for tenant in ("acme", "other")]
    # What the workers report is gone with them; this is not.
    platform = await all_spent_today(counts, 5)
    await counts.close()
    assert platform.all.tokens == sum(one.tokens for one in spent)
    assert platform.all.cost == pytest.approx(sum(one.cost for one in spent))
    assert {tenant for tenant, _ in platform.most} == {"acme", "other"}
    assert CALLS * 1_000 <= spent[0].tokens <= (CALLS + 4) * 1_000
    assert sum(one.tokens for one in spent) == 1_000 * len(server.calls)
    assert sum(one.cost for one in spent) == pytest.approx(len(server.calls) / 1_000)
    lines = (worker.log.read_text() for worker in world.workers if worker.log is not None)
    assert any("tenant acme has used up its quota summary_tokens_per_day" in text for text in lines)
