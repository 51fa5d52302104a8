"""When an endpoint may be called: its limits, kept by all workers together.

How many calls are under way is each worker's own. Requests and tokens a minute are buckets in Redis
that all workers draw from, and a pause that the endpoint asked for (Retry-After) holds for all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

from projections.errors import RedisUnavailable
from projections.redis.shared_buckets import Settling, SharedBuckets
from streams.compaction.summarizers.budgets import Budgets
from streams.compaction.summarizers.failures import CallNotAllowed, EndpointBusy
from streams.runtime.fair_limit import FairLimit
from streams.settings.endpoints import ModelSettings

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")

AHEAD = 8
"""For so many calls at once one more summary is begun: its span is read, or its answer is checked,
while the endpoint works. Few, because the wait for a call is part of a summary's time.
"""
LOOK = 5.0
"""Seconds between two looks at the shared limits at most while one waits for them."""
MINUTE = 60.0
BURST = 2.0
"""Seconds of a rate that may be used at once after a pause; it fills so much slower that no minute
sees more than the endpoint allows.
"""


class EndpointLimits:
    """The limits of one endpoint in one worker. For one event loop."""

    def __init__(
        self,
        name: str,
        options: ModelSettings,
        shared: SharedBuckets | None = None,
        weight: Callable[[str], float] = lambda tenant: 1.0,
        budgets: Budgets | None = None,
    ) -> None:
        """Args: ``shared`` is what all workers share; None: this worker's limits hold alone,
        without rates. ``budgets`` are the tenants'; None: there are none.
        """
        self.name = name
        self.title = options.title(name)
        self.options = options
        self.places = FairLimit(options.max_concurrent + options.max_concurrent // AHEAD, weight)
        """For the summaries that are begun, whatever they wait for."""
        self.calls = 0
        """Calls under way."""
        self.waits = 0
        """How often a summary had to wait for the endpoint's limits so far."""
        self._shared = shared
        self._budgets = budgets or Budgets()
        self._owner = f"endpoint:{options.owner}{name}"
        self._line = FairLimit(1, weight)
        self._call = asyncio.Semaphore(options.max_concurrent)
        self._paused_until = 0.0
        self._rates = {
            kind: rate / (MINUTE + BURST)
            for kind, rate in (
                ("requests", options.requests_per_minute),
                ("tokens", options.tokens_per_minute),
            )
            if rate is not None
        }

    @asynccontextmanager
    async def place(self, tenant: str, until: float) -> AsyncIterator[None]:
        """Hold one of the places, while the tenant's budget is not used up. ``until``: the loop's
        time at which the wait ends.

        Raises:
            CallNotAllowed: none was free in time, or the budget is used up.
            RedisUnavailable: unknown what is left of the budget.
        """
        await self._budgets.check(tenant)
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout_at(until):
                    await stack.enter_async_context(self.places.of(tenant))
            except TimeoutError:
                raise self._missed() from None
            await self._budgets.check(tenant)  # others of the tenant's may have used up the rest
            yield

    async def take(self, tenant: str, until: float) -> None:
        """Wait until one more call may be made, and count it. ``until``: the loop's time at which
        the wait ends.

        Raises:
            CallNotAllowed: none may be made in time.
            RedisUnavailable: unknown what others have used.
        """
        try:
            async with asyncio.timeout_at(until):
                async with self._line.of(tenant):
                    while (wait := await self._wait()) > 0:
                        self._check(wait, until)
                        self.waits += 1
                        await asyncio.sleep(min(wait, LOOK))
        except TimeoutError:
            raise self._missed() from None

    @asynccontextmanager
    async def call(self, until: float) -> AsyncIterator[None]:
        """Hold one of the calls at once, as soon as no pause holds.

        Raises:
            CallNotAllowed, RedisUnavailable: as :meth:`take`.
        """
        try:
            async with asyncio.timeout_at(until):
                await self._call.acquire()
        except TimeoutError:
            raise self._missed() from None
        try:
            while (wait := await self._pause()) > 0:
                self._check(wait, until)
                self.waits += 1
                await asyncio.sleep(min(wait, LOOK))
            self.calls += 1
            try:
                yield
            finally:
                self.calls -= 1
        finally:
            self._call.release()

    async def run(
        self,
        call: Callable[[float], Awaitable[tuple[Answer, int | None]]],
        guessed: int,
        until: float,
    ) -> Answer:
        """One call, within all limits but those that :meth:`take` counts.

        ``call`` is given its seconds and returns its answer with the tokens it used, None where the
        endpoint did not say; ``guessed`` are charged until then.

        Raises:
            CallNotAllowed: it may not be made in time, or that is unknown.
            AttemptFailed: what ``call`` raises.
        """
        try:
            async with self.call(until):
                await self.charge(guessed)
                seconds = min(until - self._now(), self.options.timeout)
                answer, used = await call(seconds)
        except RedisUnavailable as error:
            raise CallNotAllowed(f"{self.title} may not be called: {error}") from None
        except EndpointBusy as error:
            if error.retry_after:
                await self.pause(error.retry_after)
            raise
        if used is not None:
            await self.charge(used - guessed)
        return answer

    async def charge(self, tokens: int) -> None:
        """Charge tokens of a call to what all workers may use (below zero: given back)."""
        rate = self._rates.get("tokens")
        if rate is None or self._shared is None or not tokens:
            return
        try:
            await self._shared.settle([self._settling("tokens", rate, owed=tokens)])
        except RedisUnavailable as error:
            logger.debug("tokens of %s are not charged: %s", self.title, error)

    async def pause(self, seconds: float) -> None:
        """Have all workers leave the endpoint alone for that long, as it asked for."""
        self._paused_until = max(self._paused_until, self._now() + seconds)
        if self._shared is not None:
            try:
                await self._shared.pause(self._owner, seconds)
            except RedisUnavailable as error:
                logger.warning("other processes do not know that %s pauses: %s", self.title, error)

    # -- parts
    # ------------------------------------------------------------------------------------------

    async def _pause(self) -> float:
        """Seconds that the endpoint still asked for."""
        shared = 0.0 if self._shared is None else await self._shared.paused(self._owner)
        return max(shared, self._paused_until - self._now())

    async def _wait(self) -> float:
        """Seconds until a call may be made; 0: it may, and one request is taken."""
        wait = await self._pause()
        if wait > 0 or self._shared is None or not self._rates:
            return wait
        asked = [
            self._settling(kind, rate, owed=float(kind == "requests"))
            for kind, rate in self._rates.items()
        ]
        answers = await self._shared.settle(asked)
        waits = []
        for one, settled in zip(asked, answers, strict=True):
            if settled is None:
                raise RedisUnavailable(f"what {self.title} has left is unknown now")
            # A request needs a whole one to be left; tokens are charged when they are known.
            least = 0.0 if one.owed else 1.0
            waits.append(max(0.0, (least - settled.left) / one.rate))
        if (wait := max(waits)) > 0:
            back = [one._replace(owed=-one.owed) for one in asked if one.owed]
            if back:
                await self._shared.settle(back)
        return wait

    def _settling(self, kind: str, rate: float, *, owed: float) -> Settling:
        return Settling(self._owner, kind, rate, max(1.0, rate * BURST), owed, 0.0)

    def _check(self, wait: float, until: float) -> None:
        if self._now() + wait > until:
            raise self._missed()

    def _missed(self) -> CallNotAllowed:
        return CallNotAllowed(
            f"{self.title} cannot be called in time: its limits are used up, or it requested a"
            " pause"
        )

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
