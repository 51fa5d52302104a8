"""Makes an endpoint dependable: a few attempts within a time, a circuit, and the deterministic
summariser as the last resort.
"""

from __future__ import annotations

import logging

import msgspec

from projections.names import Key
from streams.compaction.summarizers.attempts import Attempts
from streams.compaction.summarizers.base import Summarizer, SummaryInput, SummaryText
from streams.compaction.summarizers.endpoint import EndpointSummarizer
from streams.compaction.summarizers.failures import (
    AttemptFailed,
    BudgetUsedUp,
    SummaryRejected,
)
from streams.compaction.summarizers.prompt import Prompt
from streams.compaction.summarizers.segments import grow
from streams.metrics.declared import CALLS, FALLBACKS, OVER_BUDGET, REFUSED, Metric
from streams.metrics.metrics import Metrics
from streams.runtime.log_fields import about

logger = logging.getLogger(__name__)


class GuardedSummarizer:
    """A :class:`Summarizer` that always answers what its ``fallback`` answers at worst, and says
    who made the answer and what it cost.

    All attempts at a request send the same prompt. Any number of requests may run at once.
    """

    def __init__(
        self,
        inner: EndpointSummarizer,
        fallback: Summarizer,
        attempts: Attempts,
        metrics: Metrics,
    ) -> None:
        self.name = inner.name
        self._metrics = metrics
        self._inner = inner
        self._fallback = fallback
        self._attempts = attempts

    async def summarize(self, request: SummaryInput) -> SummaryText:
        """The endpoint's summary, else the fallback's; raises only what the fallback raises."""
        run, whose = _Run(), about(Key(request.tenant, request.conversation))
        if any(message.text for message in request.messages):
            try:
                answer = await self._try(request, run)
                return msgspec.structs.replace(answer, cost=run.cost, refused=tuple(run.refused))
            except AttemptFailed as error:
                logger.warning("%s; %s makes the summary", error, self._fallback.name, extra=whose)
                count_fallback(self._metrics, FALLBACKS, self.name, request.tenant, error)
            except Exception as error:
                count_fallback(self._metrics, FALLBACKS, self.name, request.tenant, error)
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
        self._attempts.check(request.tenant)
        prompt = await self._inner.prepare(request)

        async def call(until: float) -> SummaryText:
            return await self._call(request, prompt, run, until)

        # The first call was allowed before the request was begun.
        return await self._attempts.run(request.tenant, call, taken=True)

    async def _call(
        self, request: SummaryInput, prompt: Prompt, run: _Run, until: float
    ) -> SummaryText:
        try:
            answer = await self._inner.attempt(request, prompt, until)
        except AttemptFailed as error:
            run.pay(error.cost)
            if isinstance(error, SummaryRejected):
                run.refused.append(f"{self.name}: {error.reason}")
                self._metrics.add(REFUSED, self.name, error.reason)
            self._metrics.add(CALLS, self.name, error.kind)
            raise
        self._metrics.add(CALLS, self.name, "ok")
        run.pay(answer.cost)
        return answer


def count_fallback(
    metrics: Metrics, fallbacks: Metric, endpoint: str, tenant: str, error: Exception
) -> None:
    """Count what is not made by its endpoint, and why, in the metric of its kind."""
    reason = error.kind if isinstance(error, AttemptFailed) else "error"
    metrics.add(fallbacks, endpoint, reason)
    if isinstance(error, BudgetUsedUp):
        metrics.add_of_tenant(tenant, {OVER_BUDGET: 1})


class _Run:
    """What one request has cost so far, and which answers were refused."""

    def __init__(self) -> None:
        self.cost: float | None = None
        self.refused: list[str] = []

    def pay(self, cost: float | None) -> None:
        if cost is not None:
            self.cost = round((self.cost or 0.0) + cost, 9)
