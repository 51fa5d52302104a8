"""The limits of one endpoint that several workers call, by way of a real Redis."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from projections.redis.shared_buckets import SharedBuckets
from streams.compaction.summarizers.endpoint_limits import EndpointLimits
from streams.compaction.summarizers.failures import CallNotAllowed
from streams.settings.endpoints import EndpointSettings
from streams.settings.settings import Settings
from tests.support.worker import until

Make = Callable[..., Awaitable[list[EndpointLimits]]]


@pytest.fixture
async def workers(settings: Settings, request: pytest.FixtureRequest) -> AsyncIterator[Make]:
    opened: list[SharedBuckets] = []

    async def make(**options: Any) -> list[EndpointLimits]:
        endpoint = EndpointSettings(base_url="http://127.0.0.1:1", model="m", **options)
        opened.extend(
            SharedBuckets(settings.redis, settings.topic_prefix, timeout=5.0) for _ in range(2)
        )
        return [EndpointLimits(request.node.name, endpoint, shared) for shared in opened]

    yield make
    for shared in opened:
        await shared.close()


def later(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def test_requests_a_minute_hold_over_all_workers(workers: Make) -> None:
    limits = await workers(requests_per_minute=600)
    taken: list[float] = []

    async def one(i: int) -> None:
        await limits[i % 2].take(f"tenant{i % 3}", later(60))
        taken.append(time.monotonic())

    await asyncio.gather(*map(one, range(40)))
    # 19 at once after a pause of two seconds, then 600 in 62 s.
    assert max(taken) - min(taken) > (40 - 20 - 1) * 62 / 600


async def test_tokens_that_one_worker_used_are_missing_to_the_other(workers: Make) -> None:
    one, other = await workers(tokens_per_minute=6_200)
    await one.take("acme", later(5))
    await one.charge(400)  # 200 may be used at once, 100 come back in a second
    begin = time.monotonic()
    await other.take("acme", later(10))
    assert 1.8 < time.monotonic() - begin < 8
    await one.charge(10_000)
    with pytest.raises(CallNotAllowed):
        await other.take("acme", later(5))
    await one.charge(-10_000)
    await other.take("acme", later(10))


async def test_a_pause_holds_for_all_workers_and_is_never_shortened(workers: Make) -> None:
    one, other = await workers()
    await one.pause(1.5)
    await other.pause(0.2)
    begin = time.monotonic()
    for limits in (one, other):
        with pytest.raises(CallNotAllowed):
            await limits.take("acme", later(0.5))
        assert limits.waits == 0, "who has no time for it does not wait in vain"

    async def call(limits: EndpointLimits) -> float:
        async with limits.call(later(10)):
            return time.monotonic() - begin

    assert min(await asyncio.gather(call(one), call(other), call(other))) > 1.4
    assert other.waits


async def test_a_tenant_that_has_just_come_is_next_in_a_long_line(workers: Make) -> None:
    limits, _ = await workers(requests_per_minute=62 * 5)
    order: list[str] = []

    async def one(tenant: str) -> None:
        await limits.take(tenant, later(60))
        order.append(tenant)

    many = [asyncio.create_task(one("many")) for _ in range(100)]
    await until(lambda: asyncio.sleep(0, len(order) >= 12))
    await asyncio.gather(one("few"), one("few"))
    assert len(order) < 20
    for task in many:
        task.cancel()
