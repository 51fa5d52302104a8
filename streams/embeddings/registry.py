"""The embeddings that the settings name."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from projections.errors import EmbeddingsUnavailable
from projections.redis.shared_buckets import SharedBuckets
from streams.compaction.summarizers.attempts import Attempts
from streams.compaction.summarizers.budgets import Budgets
from streams.compaction.summarizers.circuit import Circuit
from streams.compaction.summarizers.endpoint_call import HttpSession, ModelEndpoint
from streams.compaction.summarizers.endpoint_limits import EndpointLimits
from streams.embeddings.embedder import CachedEmbedder, Embedder
from streams.embeddings.endpoint_embedder import EndpointEmbedder
from streams.embeddings.local_model import LocalEmbedder
from streams.runtime.cache_folder import cache_folder
from streams.settings.endpoints import MINILM
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)


def embeddings_folder(settings: Settings) -> Path:
    """Where the local model's files lie."""
    if settings.embeddings_folder:
        return Path(settings.embeddings_folder).expanduser()
    return cache_folder() / "embeddings"


class Embeddings:
    """The embedders of one process. Nothing connects, and no model is loaded, before the first
    call. Belongs to one event loop; ``close`` ends the connections.
    """

    def __init__(
        self,
        settings: Settings,
        env: Mapping[str, str] | None = None,
        *,
        shared: SharedBuckets | None = None,
        budgets: Budgets | None = None,
        count: Callable[[str, str], None] = lambda endpoint, outcome: None,
    ) -> None:
        """Args: as ``Summarizers`` has them; ``count`` is called with each call's endpoint and
        outcome.

        Raises:
            InvalidSettings: an endpoint's key is not in the environment variable that should hold
                it.
        """
        env = os.environ if env is None else env
        budgets = budgets or Budgets()
        self.current: CachedEmbedder | None = None
        """What makes the vectors of stored texts; None: there are none."""
        self.reason = "" if settings.memory_embeddings else "none are configured"
        """Why there are none."""
        self._http = HttpSession()
        self._by_model: dict[str, CachedEmbedder] = {}
        breaker = settings.summary_breaker_failures, settings.summary_breaker_seconds
        for name, options in settings.embeddings.items():
            limits = EndpointLimits(name, options, shared, budgets=budgets)
            key = options.find_key(name, env)
            endpoint = ModelEndpoint(name, options, key, self._http.get)
            # An endpoint that is too slow for searches may be good enough for stored texts: both
            # have a circuit of their own.
            patient, quick = (
                EndpointEmbedder(
                    endpoint,
                    limits,
                    Attempts(limits, Circuit(*breaker), most, seconds),
                    budgets,
                    count,
                )
                for most, seconds in (
                    (settings.summary_attempts, settings.summary_time_cap),
                    (1, settings.memory_model_seconds),
                )
            )
            self._add(name, settings, patient, quick)
        try:
            local = LocalEmbedder(embeddings_folder(settings))
            self._add(MINILM, settings, local, local)
        except EmbeddingsUnavailable as error:
            if settings.memory_embeddings == MINILM:
                logger.warning("the long-term memory has no vectors: %s", error)
                self.reason = str(error)

    def _add(self, name: str, settings: Settings, patient: Embedder, quick: Embedder) -> None:
        self._by_model[quick.model] = CachedEmbedder(quick)
        if name == settings.memory_embeddings:
            self.current = CachedEmbedder(patient)

    def of_model(self, model: str) -> CachedEmbedder | None:
        """What makes a search's vectors, to be compared with a model's, within
        ``memory_model_seconds`` if it is an endpoint; None if nothing here does.
        """
        return self._by_model.get(model)

    def forget(self) -> None:
        """Drop all cached vectors: a text was erased."""
        for embedder in (*self._by_model.values(), self.current):
            if embedder is not None:
                embedder.forget()

    async def close(self) -> None:
        """End the connections to endpoints."""
        await self._http.close()
