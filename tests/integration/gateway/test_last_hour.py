"""The last hour and the money of today, as the gateways tell them to operators and tenants."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from projections.redis.daily_counts import DailyCounts
from projections.redis.hour_rings import HourRings
from streams.compaction.summarizers.budgets import Budgets, Spending
from streams.control.control_topic import Control
from streams.metrics.declared import FOLDED
from streams.metrics.metrics import Metrics
from streams.metrics.reports import WORKERS, Reporter
from streams.settings.quotas import DEFAULT_SCOPES
from streams.settings.settings import Settings
from tests.support.platform import running_platform
from tests.support.serving import serving
from tests.support.worker import until
from threadfold.gateway import create_gateway
from threadfold.gateway.last_hour import MINUTE, ring_of

pytestmark = pytest.mark.long
LIMIT = 120.0
"""Seconds until figures that come every 10 s must be there, on a slow machine."""
SAID = [{"type": "message", "role": "user", "content": f"line {i}"} for i in range(40)]


async def keys(settings: Settings) -> dict[str, str]:
    """Keys of an operator and of the tenants nord and quiet."""
    control = await Control(settings).start()
    for tenant in ("nord", "quiet"):
        await control.ensure_tenant(tenant)
    made = {
        "operator": await control.add_key("acme", ["admin", "read"]),
        "nord": await control.add_key("nord", list(DEFAULT_SCOPES)),
        "quiet": await control.add_key("quiet", list(DEFAULT_SCOPES)),
    }
    await control.stop()
    return {name: f"Bearer {key}" for name, key in made.items()}


async def test_every_gateway_tells_operators_what_all_of_them_and_the_workers_did(
    settings: Settings,
) -> None:
    async with (
        running_platform(settings) as platform,
        serving(create_gateway(settings)) as other,
        httpx.AsyncClient(timeout=60) as http,
    ):
        made = await keys(settings)
        worker = Metrics()
        reporter = Reporter(worker, settings, WORKERS)
        reporter.start()

        async def seen() -> dict[str, Any] | None:
            worker.add(FOLDED, "0", "applied", by=10)
            await http.get(f"{platform.url}/healthz")
            await asyncio.sleep(0.2)
            answer = await http.get(
                f"{other}/v1/platform", headers={"Authorization": made["operator"]}
            )
            if answer.status_code == 503:  # the other gateway is not connected yet
                return None
            figures: dict[str, Any] = answer.raise_for_status().json()["hour"]["figures"]
            known = {
                name: [one for one in all_ if one is not None] for name, all_ in figures.items()
            }
            there = all(known.values()) and max(known["events"]) > 0 and max(known["requests"]) > 2
            return answer.json() if there else None

        found = await until(seen, LIMIT, "the hour has what was done")
        await reporter.stop()
        assert found["hour"]["every"] == 10
        lengths = {len(values) for values in found["hour"]["figures"].values()}
        assert lengths == {359}, "an hour, but for what is not over"
        assert found["used_today"] == {"summary_tokens": 0, "summary_cost": 0, "tenants": []}
        refused = await http.get(f"{other}/v1/platform", headers={"Authorization": made["nord"]})
        assert refused.status_code == 403


async def test_money_of_today_is_that_of_all_workers_that_ran(settings: Settings) -> None:
    async with running_platform(settings) as platform, httpx.AsyncClient(timeout=60) as http:
        made = await keys(settings)
        for tenant, cost in (("acme", 0.5), ("nord", 0.25), ("acme", 1.0)):
            # Each time a worker that begins, calls a model, and ends.
            counts = DailyCounts(settings.redis, settings.topic_prefix)
            budgets = Budgets(counts)
            reserved = await budgets.reserve(tenant, Spending(1, 0.125))
            await budgets.settle(reserved, Spending(1_000 * cost, cost))
            await counts.close()
        answer = await http.get(
            f"{platform.url}/v1/platform", headers={"Authorization": made["operator"]}
        )
        own = await http.get(f"{platform.url}/v1/me", headers={"Authorization": made["nord"]})
    assert answer.json()["used_today"] == {
        "summary_tokens": 1_750,
        "summary_cost": 1.75,
        "tenants": [
            {"tenant": "acme", "summary_tokens": 1_500, "summary_cost": 1.5},
            {"tenant": "nord", "summary_tokens": 250, "summary_cost": 0.25},
        ],
    }
    assert own.json()["used_today"] == {"summary_tokens": 250, "summary_cost": 0.25}


async def test_a_tenant_is_told_its_own_hour_and_what_it_uses_of_its_rates(
    settings: Settings,
) -> None:
    rings = HourRings(settings.redis, settings.topic_prefix, MINUTE)
    async with running_platform(settings) as platform, httpx.AsyncClient(timeout=60) as http:
        made = await keys(settings)
        own, other = ({"Authorization": made[tenant]} for tenant in ("nord", "quiet"))
        last = (await rings.read(ring_of("nord"))).last
        await rings.put(ring_of("nord"), last - 30, b"", [600, 1_200, 9_000, 3])
        figures = (await http.get(f"{platform.url}/v1/me/hour", headers=own)).json()["hour"][
            "figures"
        ]
        assert {name: max(values) for name, values in figures.items()} == {
            "requests_per_second": 10,
            "events_per_second": 20,
            "tokens_per_minute": 9_000,
            "rollbacks_per_minute": 3,
        }
        await http.post(f"{platform.url}/v1/conversations/c/events", json=SAID, headers=own)

        async def used(headers: dict[str, str]) -> dict[str, float]:
            answer = await http.get(f"{platform.url}/v1/me", headers=headers)
            found: dict[str, float] = answer.json()["used_last_minute"]
            return found

        async def counted() -> bool:
            return (await used(own))["events_per_second"] > 0

        await until(counted, LIMIT, "what was appended is counted")
        found = await used(own)
        assert 0 < found["events_per_second"] <= len(SAID) / 60
        assert found["tokens_per_minute"] > found["events_per_second"]
        others = await used(other)
        assert others["events_per_second"] == 0, "another tenant's is not shown"
        hour = (await http.get(f"{platform.url}/v1/me/hour", headers=other)).json()["hour"]
        assert max(hour["figures"]["tokens_per_minute"]) == 0
    await rings.close()
