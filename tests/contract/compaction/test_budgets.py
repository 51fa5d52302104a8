"""What tenants may spend on summaries in a day: the dispatcher with models behind a real HTTP
server, and counts in memory and in Redis.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from projections.errors import RedisUnavailable
from projections.redis.daily_counts import Addition, Counted, DailyCounts
from streams.compaction.summarizers.budgets import (
    Budgets,
    Counts,
    Spending,
    SpentByAll,
    all_spent_today,
    spent_today,
)
from streams.compaction.summarizers.failures import BudgetUsedUp
from streams.settings.quotas import Quota
from streams.settings.settings import Settings
from tests.support.dispatch import SUMMARY, World, endpoint
from tests.support.model_server import gives, model_server, says, stalls, takes
from threadfold.testing import MemoryDailyCounts, MemoryLog

USAGE = {"prompt_tokens": 900, "completion_tokens": 100}
PRICES = {"input_price": 1.0, "output_price": 11.0}
"""A call costs 0.002."""


@pytest.fixture(params=["memory", "real"])
async def counts(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[Counts]:
    if request.param == "memory":
        yield MemoryDailyCounts()
        return
    real = DailyCounts(settings.redis, f"{settings.topic_prefix}{request.node.name}")
    yield real
    await real.close()


def world(url: str, counts: Counts, quotas: dict[str, Quota], **options: Any) -> World:
    budgets = Budgets(counts, lambda tenant: quotas.get(tenant, Quota()))
    options = {"max_concurrent": 1, **PRICES, **options}
    return World(MemoryLog(1), {"cheap": endpoint(url, **options)}, budgets=budgets)


async def makers(world: World, tenant: str) -> Counter[str]:
    """Who made a tenant's summaries."""
    made = await world.made_by()
    return Counter(
        name for key, names in made.items() if key.split("/")[0] == tenant for name in names
    )


@pytest.mark.parametrize(
    "quota", [Quota(summary_tokens_per_day=2_500), Quota(summary_cost_per_day=0.005)]
)
async def test_beyond_its_budget_a_tenants_summaries_are_extractive_and_others_are_not(
    counts: Counts, quota: Quota, caplog: pytest.LogCaptureFixture
) -> None:
    async with model_server(says(SUMMARY, usage=USAGE)) as server:
        made = world(server.url, counts, {"acme": quota})
        names = [f"acme/{i}" for i in range(6)]
        with caplog.at_level(logging.WARNING):
            for i in range(6):
                await made.ask("acme", str(i), "cheap")
                await made.until_done(names[i])
            await made.ask("other", "talk", "cheap")
            await made.until_done("other/talk")
        # 2,500 tokens and 0.005 are left before the third call, and gone after it.
        assert await makers(made, "acme") == {"cheap": 3, "extractive": 3}
        assert await makers(made, "other") == {"cheap": 1}
        await made.close()
    assert made.samples("summaries_over_budget_total") == {("acme",): 3}
    assert made.samples("summary_fallbacks_total") == {("cheap", "budget"): 3}
    assert made.samples("summary_tokens_total") == {("acme",): 3_000, ("other",): 1_000}
    assert made.samples("compactions_total") == {
        ("made", "budget", "cheap"): 4,
        ("made", "budget", "extractive"): 3,
    }
    assert await spent_today(counts, "acme") == Spending(3_000, pytest.approx(0.006))
    assert await spent_today(counts, "other") == Spending(1_000, pytest.approx(0.002))
    lines = [record for record in caplog.records if "used up its quota summary_" in record.message]
    assert [record.__dict__["conversation"] for record in lines] == ["3", "4", "5"]
    assert {record.__dict__["tenant"] for record in lines} == {"acme"}


async def test_calls_under_way_count_so_many_at_once_exceed_the_budget_by_one(
    counts: Counts,
) -> None:
    async with model_server(takes(0.2, SUMMARY)) as server:
        quota = Quota(summary_tokens_per_day=1_000)
        made = world(server.url, counts, {"acme": quota}, max_concurrent=32)
        await asyncio.gather(*(made.ask("acme", str(i), "cheap") for i in range(20)))
        await made.until_done(*(f"acme/{i}" for i in range(20)))
        assert len(server.calls) < 10
        spent = await spent_today(counts, "acme")
        one = spent.tokens / len(server.calls)
        assert 1_000 - one < spent.tokens < 1_000 + 2 * one
        await made.close()


async def test_a_call_that_fails_is_not_charged_and_one_that_times_out_is(counts: Counts) -> None:
    async with model_server(gives("{}", status=400)) as server:
        made = world(server.url, counts, {})
        await made.ask("acme", "refused", "cheap")
        await made.until_done("acme/refused")
        await made.close()
    assert await spent_today(counts, "acme") == Spending(0, 0)
    async with model_server(stalls) as server:
        made = world(server.url, counts, {}, timeout=0.2)
        await made.ask("acme", "silent", "cheap")
        await made.until_done("acme/silent")
        await made.close()
        assert server.calls
    spent = await spent_today(counts, "acme")
    assert spent.tokens > 100 and spent.cost > 0
    assert await makers(made, "acme") == {"extractive": 1}


async def test_an_endpoint_without_usage_is_charged_by_our_own_count(counts: Counts) -> None:
    async with model_server(says(SUMMARY)) as server:
        made = world(server.url, counts, {})
        await made.ask("acme", "talk", "cheap")
        await made.until_done("acme/talk")
        await made.close()
    spent = await spent_today(counts, "acme")
    prompt = sum(len(one["content"]) for one in server.calls[0]["messages"])
    assert prompt / 8 < spent.tokens < prompt / 2 and spent.cost > 0


async def test_the_days_total_of_all_tenants_is_theirs_and_a_worker_that_begins_anew_goes_on(
    counts: Counts,
) -> None:
    first, second = Budgets(counts), Budgets(counts)
    reserved = await first.reserve("acme", Spending(500, 0.5))
    assert (await all_spent_today(counts, 9)).all == Spending(500, 0.5), "a call under way counts"
    await first.settle(reserved, Spending(300, 0.25))
    for tenant, tokens in (("acme", 100), ("nord", 700), ("idle", 0)):
        reserved = await second.reserve(tenant, Spending(5, 0.125))
        await second.settle(reserved, Spending(tokens, tokens / 800))
    assert await all_spent_today(counts, 9) == SpentByAll(
        Spending(1_100, 1.25), [("nord", Spending(700, 0.875)), ("acme", Spending(400, 0.375))]
    )
    for tenant, spent in (await all_spent_today(counts, 9)).most:
        assert await spent_today(counts, tenant) == spent
    assert (await all_spent_today(counts, 1)).most == [("nord", Spending(700, 0.875))]


class UnrankedCounts(MemoryDailyCounts):
    """Counts whose board was away when the first call began."""

    away = True

    async def rank(
        self, board: str, member: str, units: Mapping[str, float], day: int | None = None
    ) -> bool:
        if self.away:
            raise RedisUnavailable("it is away")
        return await super().rank(board, member, units, day)


async def test_a_call_that_began_uncounted_is_counted_whole_when_it_ends() -> None:
    counts = UnrankedCounts()
    budgets = Budgets(counts)
    reserved = await budgets.reserve("acme", Spending(500, 0.5))
    counts.away = False
    await budgets.settle(reserved, Spending(300, 0.25))
    assert (await all_spent_today(counts, 1)).all == Spending(300, 0.25)
    assert await spent_today(counts, "acme") == Spending(300, 0.25)


class AwayCounts(MemoryDailyCounts):
    """Counts of a Redis that is away."""

    async def add(
        self, owner: str, additions: Sequence[Addition], day: int | None = None
    ) -> Counted:
        raise RedisUnavailable("it is away")


async def test_while_counts_are_away_a_tenant_with_a_budget_makes_no_call() -> None:
    quota = Quota(summary_cost_per_day=1)
    budgets = Budgets(AwayCounts(), lambda tenant: quota if tenant == "acme" else Quota())
    reserved = await budgets.reserve("free", Spending(10, 1))
    await budgets.settle(reserved, Spending(5, 1))
    with pytest.raises(RedisUnavailable):
        await budgets.reserve("acme", Spending(10, 1))
    with pytest.raises(RedisUnavailable):
        await budgets.check("acme")
    await budgets.check("free")


async def test_a_raised_budget_holds_at_once(counts: Counts) -> None:
    quotas = {"acme": Quota(summary_tokens_per_day=10)}
    budgets = Budgets(counts, quotas.__getitem__)
    await budgets.reserve("acme", Spending(10, 0))
    with pytest.raises(BudgetUsedUp, match=r"summary_tokens_per_day \(10\) until 00:00 UTC"):
        await budgets.check("acme")
    quotas["acme"] = Quota(summary_tokens_per_day=20)
    await budgets.check("acme")
    await budgets.reserve("acme", Spending(10, 0))
    with pytest.raises(BudgetUsedUp):
        await budgets.reserve("acme", Spending(1, 0))
