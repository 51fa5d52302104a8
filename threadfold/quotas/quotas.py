"""What each tenant may still use in this gateway: answered from leases held here, which are renewed
in the background.

A request costs no trip to Redis: a loop of its own settles all leases that run low in one pipeline,
some 40 times a second at most. Only where a burst has used up a lease faster than it was renewed,
and the shared bucket was not dry, does a request wait for the next one.

While Redis is away each gateway goes on with a bucket of its own at the quota's full rate: N
gateways may then admit N times the quota. A gateway that starts, and a Redis that lost its buckets,
begin with a full burst.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec

from projections.errors import Overloaded, QuotaExceeded, RedisUnavailable
from projections.redis.daily_counts import DailyCounts
from projections.redis.shared_buckets import Settling, SharedBuckets
from streams.compaction.summarizers.budgets import (
    Spending,
    SpentByAll,
    all_spent_today,
    spent_today,
)
from streams.runtime.keyed_limit import KeyedLimit
from streams.runtime.tasks import end_tasks
from streams.settings.quotas import Quota
from threadfold.quotas.bucket import Lease

logger = logging.getLogger(__name__)
KINDS = {
    "requests_per_second": ("requests_burst", 1.0),
    "events_per_second": ("events_burst", 1.0),
    "tokens_per_minute": ("tokens_burst", 60.0),
    "rollbacks_per_minute": ("rollbacks_burst", 60.0),
}
"""Each rate's burst, and the seconds that its number is for."""
REQUESTS, EVENTS, TOKENS, ROLLBACKS = KINDS
_REQUEST = (1, 0, 0, 0)
PAUSE = 0.025
"""Seconds between two pipelines to Redis."""
AWAY = 1.0
"""Seconds between two attempts while Redis is away."""
PATIENCE = 0.25
"""Seconds that a request waits for a lease in all."""
COUNTS = 2.0
"""Seconds that a tenant's question for its counts of the day waits for its others."""
FORGET = 600.0
"""Seconds without use after which a tenant's leases are dropped; they are worth a portion each."""


class _Tenant:
    def __init__(self, quota: Quota) -> None:
        self.quota = quota
        self.leases: dict[str, Lease] = {}
        self.seen = 0.0
        self.set(quota)

    def set(self, quota: Quota) -> None:
        self.quota = quota
        for kind, (burst, seconds) in KINDS.items():
            rate = (getattr(quota, kind) or 0.0) / seconds
            capacity = max(1.0, rate * (getattr(quota, burst) or 1.0))
            if rate <= 0:
                self.leases.pop(kind, None)
            elif kind in self.leases:
                self.leases[kind].change(rate, capacity)
            else:
                self.leases[kind] = Lease(rate, capacity)


MOST_WAIT = 86_400
"""The longest ``Retry-After``, in seconds: a large list may owe any time to a tiny rate."""


class Quotas:
    """The quotas of all tenants, as far as they use this gateway. Start it before use, stop it
    after.
    """

    def __init__(
        self,
        buckets: SharedBuckets,
        quota_of: Callable[[str], Quota],
        clock: Callable[[], float] = time.monotonic,
        counts: DailyCounts | None = None,
    ) -> None:
        """Args: ``quota_of`` returns a tenant's quota in force, with the deployment's defaults.
        ``counts`` are what workers charge summaries to.
        """
        self._buckets = buckets
        self._counts = counts
        self._turns = KeyedLimit(1, COUNTS)
        """There are few connections to the counts: a tenant has one at a time."""
        self._quota_of = quota_of
        self._clock = clock
        self._tenants: dict[str, _Tenant] = {}
        self._wanted = asyncio.Event()
        self._settled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._waking: asyncio.TimerHandle | None = None
        self.refused = Counter[str]()
        """How often each quota was used up when a request came."""
        self._used: dict[str, list[float]] = {}
        self._away = False
        self._forgot = clock()

    async def start(self) -> Quotas:
        """Begin to lease; returns itself."""
        self._task = asyncio.create_task(self._lease(), name="quota-leases")
        return self

    async def stop(self) -> None:
        """Lease no more, and close the connections."""
        await end_tasks([self._task])
        self._task = None
        if self._waking is not None:
            self._waking.cancel()
        await self._buckets.close()
        if self._counts is not None:
            await self._counts.close()

    def refresh(self) -> None:
        """Take in changed quotas, of the tenants that use this gateway."""
        for name, tenant in self._tenants.items():
            quota = self._quota_of(name)
            if quota != tenant.quota:
                tenant.set(quota)

    def of(self, name: str) -> Quota:
        """A tenant's quota in force."""
        return self._tenant(name).quota

    def leases(self) -> Iterator[tuple[str, str, Lease]]:
        """Tenants that use this gateway, their limited kinds, and what is leased of each."""
        for name, tenant in self._tenants.items():
            for kind, lease in tenant.leases.items():
                yield name, kind, lease

    def take_used(self) -> dict[str, list[float]]:
        """What tenants used in this gateway since the last call, whether limited or not: units of
        each kind, in the order of :data:`KINDS`.
        """
        used, self._used = self._used, {}
        return used

    async def spent_today(self, name: str) -> Spending | None:
        """What a tenant's summaries have used of its daily budgets; None where that is unknown."""
        if self._counts is None:
            return None
        try:
            async with self._turns.of(name):
                return await spent_today(self._counts, name)
        except (RedisUnavailable, Overloaded):
            return None

    async def all_spent_today(self, most: int) -> SpentByAll | None:
        """What the summaries of all tenants have used today, and of the ``most`` that used most;
        None where that is unknown.
        """
        if self._counts is None:
            return None
        try:
            return await all_spent_today(self._counts, most)
        except RedisUnavailable:
            return None

    async def admit(self, name: str, *, appends: bool) -> None:
        """Let one request in, and charge it; one that ``appends`` only while there are events and
        tokens left, too.

        Raises:
            QuotaExceeded: the quota that is used up, and for how long.
        """
        tenant = self._tenant(name)
        if not tenant.leases:
            self._count(name, _REQUEST)
            return
        tenant.seen = now = self._clock()
        kinds = (REQUESTS, EVENTS, TOKENS) if appends else (REQUESTS,)
        for kind in kinds:
            lease = tenant.leases.get(kind)
            if lease is not None and not lease.open(now) and not await self._leased(lease):
                raise self._exceeded(name, tenant, kind, lease)
        lease = tenant.leases.get(REQUESTS)
        if lease is not None:
            self._charge(lease, 1.0, now)
        self._count(name, _REQUEST)

    async def admit_rollbacks(self, name: str, rollbacks: int) -> None:
        """Let the rollbacks of one request in, and charge them: each may cost more than many
        events.

        Raises:
            QuotaExceeded: the quota is used up, or these are more than its burst allows at once.
        """
        tenant, now = self._tenant(name), self._clock()
        lease = tenant.leases.get(ROLLBACKS)
        if lease is None:
            self._count(name, (0, 0, 0, rollbacks))
            return
        if rollbacks > lease.capacity:
            raise QuotaExceeded(
                f"{rollbacks} rollbacks at once: the quota {ROLLBACKS} of tenant {name} allows"
                f" {lease.capacity:.0f}; send fewer in one request"
            )
        if not lease.open(now) and not await self._leased(lease):
            raise self._exceeded(name, tenant, ROLLBACKS, lease)
        self._charge(lease, rollbacks, now)
        self._count(name, (0, 0, 0, rollbacks))

    def charge(self, name: str, events: int, tokens: int) -> None:
        """Charge events that were accepted, and their tokens."""
        self._count(name, (0, events, tokens, 0))
        self.hold(name, events, tokens)

    def hold(self, name: str, events: int, tokens: int) -> None:
        """Charge what is under way, until :meth:`give_back`."""
        leases, now = self._tenant(name).leases, self._clock()
        if EVENTS in leases:
            self._charge(leases[EVENTS], events, now)
        if TOKENS in leases:
            self._charge(leases[TOKENS], tokens, now)

    def give_back(self, name: str, events: int, tokens: int) -> None:
        """Take back what was held for something under way."""
        leases = self._tenant(name).leases
        for kind, units in ((EVENTS, events), (TOKENS, tokens)):
            if kind in leases:
                leases[kind].give_back(units)
                self._wanted.set()

    # -- parts
    # ------------------------------------------------------------------------------------------

    def _tenant(self, name: str) -> _Tenant:
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = _Tenant(self._quota_of(name))
            tenant.seen = self._clock()
        return tenant

    def _count(self, name: str, units: Sequence[int]) -> None:
        used = self._used.get(name)
        if used is None:
            used = self._used[name] = [0.0] * len(KINDS)
        for i, number in enumerate(units):
            used[i] += number

    def _charge(self, lease: Lease, units: float, now: float) -> None:
        lease.charge(units, now)
        if lease.wants(now):
            self._wanted.set()

    async def _leased(self, lease: Lease) -> bool:
        """Whether a lease that ran out may be used again at once, waiting for it where the bucket
        was not dry.
        """
        end = self._clock() + PATIENCE
        while True:
            self._wanted.set()
            now = self._clock()
            if lease.dry or now >= end:
                return lease.open(now)
            lease.waiting += 1
            try:
                async with asyncio.timeout(end - now):
                    await self._settled.wait()
            except TimeoutError:
                lease.leave(self._clock())  # until Redis answers
                return lease.open(self._clock())
            finally:
                lease.waiting -= 1
            if lease.open(self._clock()):
                return True

    def _exceeded(self, name: str, tenant: _Tenant, kind: str, lease: Lease) -> QuotaExceeded:
        self.refused[kind] += 1
        seconds = max(1, math.ceil(min(lease.wait(self._clock()), MOST_WAIT)))
        return QuotaExceeded(
            f"tenant {name} has used up its quota {kind} ({getattr(tenant.quota, kind):g}): try"
            f" again in {seconds} s",
            seconds,
        )

    async def _lease(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._settle()
                self._forget()
                self._wake_for_the_dry()
            except Exception:  # a loop that ended would leave every tenant without a lease
                logger.exception("leases could not be renewed")
            await asyncio.sleep(AWAY if self._away else PAUSE)

    async def _settle(self) -> None:
        now = self._clock()
        low = [
            (name, kind, lease)
            for name, tenant in self._tenants.items()
            for kind, lease in tenant.leases.items()
            if lease.wants(now)
        ]
        if low:
            asked = [(lease, *lease.ask(now)) for _, _, lease in low]
            settlings = [
                Settling(f"quota:{name}", kind, lease.rate, lease.capacity, owed, wanted)
                for (name, kind, lease), (_, owed, wanted) in zip(low, asked, strict=True)
            ]
            try:
                answers = await self._buckets.settle(settlings)
            except RedisUnavailable as error:
                self._left(error, [lease for lease, _, _ in asked])
            else:
                self._away = False
                now = self._clock()
                for (lease, owed, wanted), settled in zip(asked, answers, strict=True):
                    if settled is None:  # one server of several is away
                        lease.fail(now)
                    else:
                        lease.take(owed, wanted, settled, now)
        self._settled.set()
        self._settled = asyncio.Event()

    def _wake_for_the_dry(self) -> None:
        """Ask dry buckets again when they have something: who waits as long as it was told is not
        to be refused once more because nobody has asked.
        """
        if self._waking is not None:
            self._waking.cancel()
        at = min((lease.asks_again() for _, _, lease in self.leases()), default=math.inf)
        wait = min(max(0.0, at - self._clock()), MOST_WAIT)
        self._waking = (
            asyncio.get_running_loop().call_later(wait, self._wanted.set) if at < math.inf else None
        )

    def _left(self, error: RedisUnavailable, leases: list[Lease]) -> None:
        if not self._away:
            logger.warning(
                "%s; meanwhile this gateway admits the quotas' full rates by itself",
                error,
            )
        self._away = True
        now = self._clock()
        for lease in leases:
            lease.fail(now)

    def _forget(self) -> None:
        before = self._clock() - FORGET
        if self._forgot > before:
            return
        self._forgot = self._clock()
        for name in [name for name, tenant in self._tenants.items() if tenant.seen < before]:
            del self._tenants[name]


def shown_quota(quota: Quota) -> dict[str, float | int | None]:
    """A quota as answers show it: null where there is no limit."""
    return {name: value or None for name, value in msgspec.structs.asdict(quota).items()}
