"""Vectors made by an OpenAI-compatible endpoint, called as a summariser's is: within its limits and
the tenant's budget, a few attempts, behind a circuit breaker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from projections.errors import EmbeddingsUnavailable, RedisUnavailable
from streams.compaction.summarizers.attempts import Attempts
from streams.compaction.summarizers.budgets import NOTHING, Budgets, Spending
from streams.compaction.summarizers.endpoint_call import (
    CHARACTERS,
    ModelEndpoint,
    cost_of,
    reserve_call,
    tokens_used,
)
from streams.compaction.summarizers.endpoint_limits import EndpointLimits
from streams.compaction.summarizers.failures import (
    AnswerUnreadable,
    AttemptFailed,
    BudgetUsedUp,
    EndpointTimedOut,
    InputRefused,
)
from streams.embeddings.embedder import Vectors, unit_vectors
from streams.settings.endpoints import EmbeddingsSettings

MAX_CHARACTERS = 8_000
"""Of a text that are sent: what a memory may hold is longer than what most models read."""


class EndpointEmbedder:
    """Calls ``POST {base_url}/embeddings``."""

    def __init__(
        self,
        endpoint: ModelEndpoint[EmbeddingsSettings],
        limits: EndpointLimits,
        attempts: Attempts,
        budgets: Budgets,
        count: Callable[[str, str], None],
    ) -> None:
        options = endpoint.options
        self.batch = options.batch
        self.model = f"{endpoint.name}/{options.model}"
        if options.dimensions:
            self.model += f"/{options.dimensions}"
        self._endpoint = endpoint
        self._limits = limits
        self._attempts = attempts
        self._budgets = budgets
        self._count = count
        self._dimension = options.dimensions

    async def embed(self, texts: Sequence[str], tenant: str) -> Vectors:
        sent = [text[:MAX_CHARACTERS].encode("utf-8", "replace").decode() or " " for text in texts]

        async def call(until: float) -> Vectors:
            return await self._call(sent, tenant, until)

        try:
            await self._budgets.check(tenant)
            return await self._attempts.run(tenant, call)
        except (AttemptFailed, RedisUnavailable) as error:
            raise _away(error) from None

    async def _call(self, texts: list[str], tenant: str, until: float) -> Vectors:
        """One call. What it used is charged, whatever its answer is worth."""
        options = self._endpoint.options
        members: dict[str, Any] = {"input": texts, "encoding_format": "float"}
        if options.dimensions:
            members["dimensions"] = options.dimensions
        guessed = sum(map(len, texts)) // CHARACTERS + len(texts)
        reserved = await reserve_call(self._budgets, options, tenant, guessed)

        async def call(seconds: float) -> tuple[Any, int | None]:
            answer = await self._endpoint.post(members, seconds)
            return answer, tokens_used(answer, "prompt_tokens")

        outcome = "ok"
        try:
            answer = await self._limits.run(call, guessed, until)
            used = tokens_used(answer, "prompt_tokens")
            tokens = guessed if used is None else used
            await self._budgets.settle(reserved, Spending(tokens, cost_of(options, tokens) or 0.0))
            return self._read(answer, len(texts))
        except AttemptFailed as error:
            outcome = error.kind
            # One that timed out may be billed, one that was answered is.
            if not isinstance(error, EndpointTimedOut | AnswerUnreadable):
                await self._budgets.settle(reserved, NOTHING)
            raise
        finally:
            self._count(self._endpoint.name, outcome)

    def _read(self, answer: Any, count: int) -> Vectors:
        """The vectors of an answer, in the order of the texts."""
        title = self._endpoint.title
        data = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(data, list) or not all(isinstance(one, dict) for one in data):
            raise AnswerUnreadable(f"{title} answered JSON that holds no list of vectors")
        if sorted(str(one.get("index")) for one in data) != sorted(map(str, range(count))):
            raise AnswerUnreadable(f"{title} answered {len(data)} vectors for {count} texts")
        rows = [one.get("embedding") for one in sorted(data, key=lambda one: int(one["index"]))]
        try:
            vectors = unit_vectors(rows, count, title)
        except EmbeddingsUnavailable as error:
            raise AnswerUnreadable(str(error)) from None
        self._dimension = self._dimension or vectors.shape[1]
        if vectors.shape[1] != self._dimension:
            raise AnswerUnreadable(
                f"{title} answered vectors of {vectors.shape[1]} numbers, where it is"
                f" {self._dimension}"
            )
        return vectors


def _away(error: AttemptFailed | RedisUnavailable) -> EmbeddingsUnavailable:
    away = EmbeddingsUnavailable(str(error))
    away.own = isinstance(error, BudgetUsedUp)
    away.refused = isinstance(error, InputRefused)
    return away
