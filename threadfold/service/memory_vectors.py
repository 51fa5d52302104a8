"""The vectors of a process' memory store, within limits and budgets that all processes share."""

from __future__ import annotations

from collections.abc import Callable

from projections.redis.daily_counts import DailyCounts
from projections.redis.shared_buckets import SharedBuckets
from streams.compaction.summarizers.budgets import Budgets
from streams.embeddings.registry import Embeddings
from streams.memory.sqlite_vectors import SqliteVectors
from streams.memory.vectors import MemoryVectors
from streams.settings.quotas import Quota
from threadfold.service.conversations import ConversationService


class ServedVectors(MemoryVectors):
    """The vectors of one store; ``count`` is told each call of an endpoint and its outcome."""

    def __init__(
        self,
        backend: ConversationService,
        store: SqliteVectors,
        count: Callable[[str, str], None],
    ) -> None:
        settings = backend.settings
        default = settings.quota()

        def quota_of(tenant: str) -> Quota:
            return backend.control.state.quota_of(tenant, default)

        self._shared = SharedBuckets(settings.redis, settings.topic_prefix, timeout=5.0)
        self._counts = DailyCounts(settings.redis, settings.topic_prefix)
        budgets = Budgets(self._counts, quota_of)
        super().__init__(
            store, Embeddings(settings, shared=self._shared, budgets=budgets, count=count)
        )

    async def stop(self) -> None:
        await super().stop()
        await self._shared.close()
        await self._counts.close()
