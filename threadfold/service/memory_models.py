"""The models that a gateway's long-term memory asks: for vectors, plans and imagined skills, within
limits and budgets that all processes share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from projections.redis.daily_counts import DailyCounts
from projections.redis.shared_buckets import SharedBuckets
from streams.compaction.summarizers.budgets import Budgets
from streams.embeddings.registry import Embeddings
from streams.memory.search_models import SearchModels
from streams.memory.store import Hit, TextVectors
from streams.memory.turns import TurnHit
from streams.memory.vectors import MemoryVectors
from streams.settings.quotas import Quota
from threadfold.service.conversations import ConversationService


class ModelCounts(NamedTuple):
    """What is called for each question that a model was asked: with the endpoint and outcome, and
    for other questions than embeddings with the kind first.
    """

    embedded: Callable[[str, str], None] = lambda endpoint, outcome: None
    asked: Callable[[str, str, str], None] = lambda kind, endpoint, outcome: None


class MemoryModels:
    """What is configured of them, for one gateway. Nothing connects before the first call."""

    def __init__(
        self,
        backend: ConversationService,
        records: TextVectors[Hit],
        turns: TextVectors[TurnHit] | None,
        counts: ModelCounts,
    ) -> None:
        """Args: ``records`` and ``turns`` keep the vectors; turns None: they have none."""
        settings = backend.settings
        default = settings.quota()

        def quota_of(tenant: str) -> Quota:
            return backend.control.state.quota_of(tenant, default)

        self._shared = SharedBuckets(settings.redis, settings.topic_prefix, timeout=5.0)
        self._counts = DailyCounts(settings.redis, settings.topic_prefix)
        budgets = Budgets(self._counts, quota_of)
        self.vectors: MemoryVectors[Hit] | None = None
        self.turn_vectors: MemoryVectors[TurnHit] | None = None
        self.searches: SearchModels | None = None
        if settings.memory_embeddings:
            embeddings = Embeddings(
                settings, shared=self._shared, budgets=budgets, count=counts.embedded
            )
            self.vectors = MemoryVectors(records, embeddings)
            self.turn_vectors = None if turns is None else MemoryVectors(turns, embeddings)
        if settings.memory_planner or settings.memory_hyde:
            self.searches = SearchModels(
                settings, shared=self._shared, budgets=budgets, count=counts.asked
            )

    def start(self) -> None:
        """Begin to make vectors, once."""
        for one in (self.vectors, self.turn_vectors):
            if one is not None:
                one.start()

    async def stop(self) -> None:
        """Stop making vectors, and end the connections."""
        for one in (self.turn_vectors, self.vectors):
            if one is not None:
                await one.stop()
        if self.searches is not None:
            await self.searches.close()
        await self._shared.close()
        await self._counts.close()
