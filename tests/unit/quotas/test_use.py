"""How much of their quotas tenants use, as a gateway reports it."""

from __future__ import annotations

import pytest

from projections.redis.shared_buckets import SharedBuckets
from streams.metrics.top_labels import MOST, OTHER
from streams.settings.quotas import Quota
from tests.support.clock import Clock
from threadfold.quotas import Quotas, QuotaUse

QUOTA = Quota(requests_per_second=100, tokens_per_minute=6_000)


@pytest.fixture
def clock() -> Clock:
    return Clock(50.0)


@pytest.fixture
def quotas(clock: Clock) -> Quotas:
    """Quotas whose Redis is never asked."""
    buckets = SharedBuckets("redis://127.0.0.1:1", "threadfold")
    return Quotas(buckets, lambda name: Quota() if name == "free" else QUOTA, clock)


async def test_what_was_used_since_the_last_look_is_a_share_of_the_rate(
    clock: Clock, quotas: Quotas
) -> None:
    use = QuotaUse(quotas, clock)
    quotas.charge("acme", 3, 500)
    quotas.charge("free", 3, 500)
    clock.now += 10
    assert use.look() == {("tokens_per_minute", "acme"): pytest.approx(0.5)}
    clock.now += 10
    assert use.look() == {}, "nothing since then"
    quotas.hold("acme", 1, 400)
    quotas.give_back("acme", 1, 400)
    clock.now += 10
    assert use.look() == {}, "what was given back is not used"


async def test_tenants_beyond_the_top_share_a_label_with_the_most_of_them(
    clock: Clock, quotas: Quotas
) -> None:
    use = QuotaUse(quotas, clock)
    for i in range(3 * MOST):
        quotas.charge(f"t{i:02}", 0, 10 * (i + 1))
    clock.now += 10
    found = use.look()
    assert len(found) == MOST + 1
    assert found["tokens_per_minute", f"t{3 * MOST - 1}"] == max(found.values())
    assert found["tokens_per_minute", OTHER] == pytest.approx(10 * 2 * MOST / 1_000)


async def test_what_tenants_used_is_taken_once_whether_it_is_limited_or_not(
    quotas: Quotas,
) -> None:
    for tenant in ("acme", "free"):
        await quotas.admit(tenant, appends=True)
        await quotas.admit(tenant, appends=False)
        quotas.hold(tenant, 1, 900)
        quotas.give_back(tenant, 1, 900)
        quotas.charge(tenant, 3, 500)
        await quotas.admit_rollbacks(tenant, 2)
    assert quotas.take_used() == {"acme": [2, 3, 500, 2], "free": [2, 3, 500, 2]}
    assert quotas.take_used() == {}
