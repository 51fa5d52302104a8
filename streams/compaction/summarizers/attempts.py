"""Attempts at one thing by an endpoint: a few within a time, while its circuit lets them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    wait_random_exponential,
)
from tenacity.stop import stop_base

from projections.errors import RedisUnavailable
from streams.compaction.summarizers.circuit import Circuit
from streams.compaction.summarizers.endpoint_limits import EndpointLimits
from streams.compaction.summarizers.failures import (
    AttemptFailed,
    CallNotAllowed,
    EndpointResting,
    EndpointTimedOut,
)

logger = logging.getLogger(__name__)

PAUSE = 0.5
LONGEST_PAUSE = 8.0
"""Seconds of the first and the longest pause at most: each is random between 0 and a bound that
doubles.
"""
LEAST_SECONDS = 0.5
"""An attempt with less time than this is not made."""
Answer = TypeVar("Answer")


class Attempts:
    """How often an endpoint is asked for one thing: ``most`` calls, within ``seconds`` from the
    first on. Its circuit learns how each ended. Any number of runs may be under way at once.
    """

    def __init__(self, limits: EndpointLimits, circuit: Circuit, most: int, seconds: float) -> None:
        self.title = limits.title
        self._limits = limits
        self._circuit = circuit
        self._most = most
        self._seconds = seconds

    def check(self, tenant: str) -> None:
        """Raise EndpointResting while the circuit is open for a tenant."""
        if (why := self._circuit.refusal(tenant)) is not None:
            raise EndpointResting(f"the circuit of {self.title} {why}")

    async def run(
        self, tenant: str, call: Callable[[float], Awaitable[Answer]], *, taken: bool = False
    ) -> Answer:
        """What ``call`` answers in the end; it is given the loop's time at which it must have
        ended. ``taken``: the limits allowed the first one already.

        Raises:
            AttemptFailed: the last failure.
        """
        now = asyncio.get_running_loop().time
        deadline = now() + self._seconds
        retrying = AsyncRetrying(
            stop=stop_after_attempt(self._most) | _NoTime(now, deadline),
            wait=_pause,
            retry=retry_if_exception(
                lambda error: isinstance(error, AttemptFailed) and error.again
            ),
            reraise=True,
        )

        async def once() -> Answer:
            nonlocal taken
            allowed, taken = taken, False
            return await self._once(tenant, call, allowed, deadline)

        return await retrying(once)

    async def _once(
        self,
        tenant: str,
        call: Callable[[float], Awaitable[Answer]],
        taken: bool,
        deadline: float,
    ) -> Answer:
        if deadline - asyncio.get_running_loop().time() < LEAST_SECONDS:
            raise EndpointTimedOut(f"{self.title} was not called: no time is left")
        if not taken:
            await self._take(tenant, deadline)
        self.check(tenant)
        admitted = self._circuit.admit(tenant)
        assert admitted is not None
        answered = False
        failure: AttemptFailed | None = None
        try:
            answer = await call(deadline)
            answered = True
            return answer
        except AttemptFailed as error:
            failure = error
            logger.info("an attempt failed: %s", error)
            raise
        finally:
            if self._circuit.settle(admitted, failure, answered=answered):
                why = self._circuit.refusal(tenant)
                logger.warning("the circuit of %s %s", self.title, why, extra={"tenant": tenant})
                if failure is not None:
                    # A pause and another attempt would only meet the open circuit.
                    failure.again = False

    async def _take(self, tenant: str, deadline: float) -> None:
        try:
            await self._limits.take(tenant, deadline)
        except RedisUnavailable as error:
            raise CallNotAllowed(str(error)) from None


def _pause(state: RetryCallState) -> float:
    """Exponential with full jitter, and no less than the endpoint asked for."""
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, AttemptFailed) else None
    back_off = wait_random_exponential(multiplier=PAUSE, max=LONGEST_PAUSE)
    return max(back_off(state), asked or 0.0)


class _NoTime(stop_base):
    """Stops before a pause after which no attempt would have the time."""

    def __init__(self, now: Callable[[], float], deadline: float) -> None:
        self._now = now
        self._deadline = deadline

    def __call__(self, retry_state: RetryCallState) -> bool:
        return self._now() + retry_state.upcoming_sleep + LEAST_SECONDS > self._deadline
