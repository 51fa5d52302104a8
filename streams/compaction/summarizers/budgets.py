"""Budgets: what tenants may spend in a day on summaries by models, over all workers together.

A call is charged with an estimate before it is made, and with what it used when it has ended. It
may begin while anything is left, so a day's use exceeds the budget by one call at most, beside what
estimates were too low. All tenants are counted, so that each one's use of the day is known.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from projections.errors import RedisUnavailable
from projections.redis.daily_counts import Addition, Counted, Ranked
from streams.compaction.summarizers.failures import BudgetUsedUp
from streams.settings.quotas import DAILY, NO_QUOTA, Quota

logger = logging.getLogger(__name__)
BOARD = "spent"
"""Under which the totals of all tenants are counted."""


class Counts(Protocol):
    """Counts of a day that processes share."""

    async def add(
        self, owner: str, additions: Sequence[Addition], day: int | None = None
    ) -> Counted:
        """:meth:`projections.redis.daily_counts.DailyCounts.add`."""

    async def rank(
        self, board: str, member: str, units: Mapping[str, float], day: int | None = None
    ) -> bool:
        """:meth:`projections.redis.daily_counts.DailyCounts.rank`."""

    async def ranked(self, board: str, kinds: Sequence[str], most: int) -> Ranked:
        """:meth:`projections.redis.daily_counts.DailyCounts.ranked`."""


class Spending(NamedTuple):
    """What calls use: tokens of prompts and answers, and money."""

    tokens: float
    cost: float


NOTHING = Spending(0.0, 0.0)


class Reserved(NamedTuple):
    """An estimate that was charged; ``day`` None: it is counted nowhere. ``ranked`` is what of it
    is in the platform's totals.
    """

    tenant: str
    estimate: Spending
    day: int | None
    ranked: Spending = NOTHING


class Budgets:
    """The budgets of all tenants, as far as this process spends them. For one event loop."""

    def __init__(
        self, counts: Counts | None = None, quota_of: Callable[[str], Quota] = lambda _: NO_QUOTA
    ) -> None:
        """Args: ``quota_of`` returns a tenant's quota in force; without ``counts`` there are no
        budgets.
        """
        self._counts = counts
        self._quota_of = quota_of

    async def check(self, tenant: str) -> None:
        """Raise BudgetUsedUp where no call may begin; RedisUnavailable where that is unknown."""
        if any(self._limits(tenant)):
            await self._add(tenant, NOTHING)

    async def reserve(self, tenant: str, estimate: Spending) -> Reserved:
        """Charge a call that is about to be made.

        Raises:
            BudgetUsedUp: it may not begin.
            RedisUnavailable: unknown what is left of the tenant's budget.
        """
        try:
            counted = await self._add(tenant, estimate)
        except RedisUnavailable as error:
            if any(self._limits(tenant)):
                raise
            logger.debug("what summaries of tenant %s use is not counted: %s", tenant, error)
            counted = None
        if counted is None:
            return Reserved(tenant, estimate, None)
        ranked = await self._rank(tenant, estimate, counted.day)
        return Reserved(tenant, estimate, counted.day, estimate if ranked else NOTHING)

    async def settle(self, reserved: Reserved, used: Spending) -> None:
        """Charge what a call used in place of its estimate."""
        tenant, estimate, day, ranked = reserved
        if day is None or self._counts is None:
            return
        units = zip(DAILY, _less(used, estimate), strict=True)
        try:
            await self._counts.add(_owner(tenant), [Addition(*one) for one in units], day)
        except RedisUnavailable as error:
            logger.debug("a call of tenant %s stays charged as estimated: %s", tenant, error)
        await self._rank(tenant, _less(used, ranked), day)

    # -- parts
    # ------------------------------------------------------------------------------------------

    def _limits(self, tenant: str) -> list[float]:
        quota = self._quota_of(tenant)
        return [getattr(quota, name) or 0.0 for name in DAILY]

    async def _rank(self, tenant: str, spending: Spending, day: int) -> bool:
        """Add to the platform's totals, which admit nothing: they are for people to see."""
        if self._counts is None:
            return False
        try:
            units = dict(zip(DAILY, spending, strict=True))
            return await self._counts.rank(BOARD, tenant, units, day)
        except RedisUnavailable as error:
            logger.debug("the totals lack a call of tenant %s: %s", tenant, error)
            return False

    async def _add(self, tenant: str, spending: Spending) -> Counted | None:
        if self._counts is None:
            return None
        limits = self._limits(tenant)
        counted = await self._counts.add(
            _owner(tenant),
            [Addition(*one) for one in zip(DAILY, spending, limits, strict=True)],
        )
        if counted.added:
            return counted
        name, limit = next(
            (name, limit)
            for name, limit in zip(DAILY, limits, strict=True)
            if 0 < limit <= counted.used[name]
        )
        raise BudgetUsedUp(
            f"tenant {tenant} has used up its quota {name} ({limit:g}) until 00:00 UTC"
        )


async def spent_today(counts: Counts, tenant: str) -> Spending:
    """What a tenant's summaries have used since 00:00 UTC, calls under way included; raises
    RedisUnavailable.
    """
    counted = await counts.add(_owner(tenant), [Addition(name, 0.0) for name in DAILY])
    return Spending(*(counted.used[name] for name in DAILY))


class SpentByAll(NamedTuple):
    """What the summaries of all tenants have used, and of those that used most tokens."""

    all: Spending
    most: list[tuple[str, Spending]]


async def all_spent_today(counts: Counts, most: int) -> SpentByAll:
    """What the summaries of all tenants have used since 00:00 UTC, calls under way included, and of
    the ``most`` tenants that used most; raises RedisUnavailable.
    """
    found = await counts.ranked(BOARD, DAILY, most)
    return SpentByAll(
        Spending(*(found.totals[name] for name in DAILY)),
        # A call that failed leaves its tenant with nothing.
        [
            (tenant, Spending(*(used[name] for name in DAILY)))
            for tenant, used in found.most
            if any(used.values())
        ],
    )


def _less(one: Spending, other: Spending) -> Spending:
    return Spending(one.tokens - other.tokens, one.cost - other.cost)


def _owner(tenant: str) -> str:
    return f"budget:{tenant}"
