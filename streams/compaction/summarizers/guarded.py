"""Makes an endpoint dependable: a few attempts within a time, a breaker, and the deterministic
summariser as the last resort.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    wait_random_exponential,
)
from tenacity.stop import stop_base

from projections.errors import RedisUnavailable
from projections.names import Key
from streams.compaction.summarizers.base import Summarizer, SummaryInput, SummaryText
from streams.compaction.summarizers.breaker import Breaker
from streams.compaction.summarizers.endpoint import EndpointSummarizer
from streams.compaction.summarizers.failures import (
    BudgetUsedUp,
    CallNotAllowed,
    EndpointTimedOut,
    SummaryAttemptFailed,
    SummaryRejected,
)
from streams.compaction.summarizers.prompt import Prompt
from streams.compaction.summarizers.segments import grow
from streams.metrics.declared import CALLS, FALLBACKS, OVER_BUDGET, REFUSED
from streams.metrics.metrics import Metrics
from streams.runtime.log_fields import about

logger = logging.getLogger(__name__)

PAUSE = 0.5
LONGEST_PAUSE = 8.0
"""Seconds of the first and the longest pause at most: each is random between 0 and a bound that
doubles.
"""

LEAST_SECONDS = 0.5
"""An attempt with less time than this is not made."""


class EndpointResting(SummaryAttemptFailed):
    """The breaker is open: the endpoint is left alone after failures in a row."""

    kind = "breaker_open"
    again = False


class GuardedSummarizer:
    """A :class:`Summarizer` that always answers what its ``fallback`` answers at worst, and says
    who made the answer and what it cost.

    ``attempts`` calls at most a request, all of the same prompt, within ``seconds`` from the first
    on. A failure of the endpoint counts for the breaker each
    time, an answer that is no summary once a request. Any number of requests may run at once.
    """

    def __init__(
        self,
        inner: EndpointSummarizer,
        fallback: Summarizer,
        breaker: Breaker,
        attempts: int,
        seconds: float,
        metrics: Metrics,
    ) -> None:
        self.name = inner.name
        self._metrics = metrics
        self._inner = inner
        self._fallback = fallback
        self._breaker = breaker
        self._attempts = attempts
        self._seconds = seconds

    async def summarize(self, request: SummaryInput) -> SummaryText:
        """The endpoint's summary, else the fallback's; raises only what the fallback raises."""
        run, whose = _Run(), about(Key(request.tenant, request.conversation))
        if any(message.text for message in request.messages):
            try:
                answer = await self._try(request, run)
                return msgspec.structs.replace(answer, cost=run.cost, refused=tuple(run.refused))
            except SummaryAttemptFailed as error:
                logger.warning("%s; %s makes the summary", error, self._fallback.name, extra=whose)
                count_fallback(self._metrics, self.name, request.tenant, error)
            except Exception as error:
                count_fallback(self._metrics, self.name, request.tenant, error)
                logger.exception(
                    "summarizer %r failed; %s makes the summary",
                    self.name,
                    self._fallback.name,
                    extra=whose,
                )
        answer = await self._fallback.summarize(request)
        return msgspec.structs.replace(
            answer,
            summarizer=answer.summarizer or self._fallback.name,
            cost=run.cost,
            refused=tuple(run.refused),
        )

    async def grow(self, request: SummaryInput) -> SummaryText:
        """As :func:`streams.compaction.summarizers.segments.summarize`."""
        return await grow(self, request, self._inner.processor)

    async def _try(self, request: SummaryInput, run: _Run) -> SummaryText:
        if self._breaker.open:
            raise EndpointResting(
                f"summarizer {self.name!r} is left alone for a while after failures in a row"
            )
        prompt = await self._inner.prepare(request)
        now = asyncio.get_running_loop().time
        deadline = now() + self._seconds
        retrying = AsyncRetrying(
            stop=stop_after_attempt(self._attempts) | _NoTime(now, deadline),
            wait=_pause,
            retry=retry_if_exception(
                lambda error: isinstance(error, SummaryAttemptFailed) and error.again
            ),
            reraise=True,
        )
        answer: SummaryText = await retrying(self._attempt, request, prompt, run, deadline)
        return answer

    async def _attempt(
        self, request: SummaryInput, prompt: Prompt, run: _Run, deadline: float
    ) -> SummaryText:
        if deadline - asyncio.get_running_loop().time() < LEAST_SECONDS:
            raise EndpointTimedOut(
                f"summarizer {self.name!r} was not asked: the time for this summary is up"
            )
        if run.attempted:
            await self._wait(request, deadline)
        run.attempted = True
        ticket = self._breaker.admit()
        if ticket is None:
            raise EndpointResting(
                f"summarizer {self.name!r} is left alone for a while after failures in a row"
            )
        good: bool | None = None
        failure: SummaryAttemptFailed | None = None
        try:
            answer = await self._inner.attempt(request, prompt, deadline)
            good = True
            self._metrics.add(CALLS, self.name, "ok")
            run.pay(answer.cost)
            return answer
        except SummaryAttemptFailed as error:
            good, failure = run.counts(error), error
            run.pay(error.cost)
            if isinstance(error, SummaryRejected):
                run.refused.append(f"{self.name}: {error.reason}")
                self._metrics.add(REFUSED, self.name, error.reason)
            self._metrics.add(CALLS, self.name, error.kind)
            logger.info("an attempt failed: %s", error)
            raise
        finally:
            if self._breaker.settle(ticket, good):
                logger.warning(
                    "summarizer %r failed too often in a row: it is left alone for a while",
                    self.name,
                )
                if failure is not None:
                    # A pause and another attempt would only meet the open breaker.
                    failure.again = False

    async def _wait(self, request: SummaryInput, deadline: float) -> None:
        """Wait until another call may be made; the first one was allowed before the request was
        begun.
        """
        try:
            await self._inner.limits.take(request.tenant, deadline)
        except RedisUnavailable as error:
            raise CallNotAllowed(str(error)) from None


def count_fallback(metrics: Metrics, endpoint: str, tenant: str, error: Exception) -> None:
    """Count a summary that is not made by its endpoint, and why."""
    reason = error.kind if isinstance(error, SummaryAttemptFailed) else "error"
    metrics.add(FALLBACKS, endpoint, reason)
    if isinstance(error, BudgetUsedUp):
        metrics.add_of_tenant(tenant, {OVER_BUDGET: 1})


class _Run:
    """What one request has cost so far, whether there was an attempt, and whether its input has
    counted against the endpoint already.
    """

    def __init__(self) -> None:
        self.cost: float | None = None
        self.attempted = False
        self._counted = False
        self.refused: list[str] = []

    def pay(self, cost: float | None) -> None:
        if cost is not None:
            self.cost = round((self.cost or 0.0) + cost, 9)

    def counts(self, error: SummaryAttemptFailed) -> bool | None:
        """What is reported to the breaker of a failure: False, or None for a further one that the
        input may be to blame for.
        """
        if isinstance(error, CallNotAllowed):
            return None
        if error.faulty:
            return False
        first, self._counted = not self._counted, True
        return False if first else None


def _pause(state: RetryCallState) -> float:
    """Exponential with full jitter, and no less than the endpoint asked for."""
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, SummaryAttemptFailed) else None
    back_off = wait_random_exponential(multiplier=PAUSE, max=LONGEST_PAUSE)
    return max(back_off(state), asked or 0.0)


class _NoTime(stop_base):
    """Stops before a pause after which no attempt would have the time."""

    def __init__(self, now: Callable[[], float], deadline: float) -> None:
        self._now = now
        self._deadline = deadline

    def __call__(self, retry_state: RetryCallState) -> bool:
        return self._now() + retry_state.upcoming_sleep + LEAST_SECONDS > self._deadline
