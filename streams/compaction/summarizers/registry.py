"""Summarisers by the name that policies use."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial

from projections.errors import InvalidPolicy
from projections.events.tokenizer import count, count_all
from projections.policy.policy import Policy
from projections.redis.shared_buckets import SharedBuckets
from streams.compaction.summarizers.attempts import Attempts
from streams.compaction.summarizers.base import Summarizer
from streams.compaction.summarizers.budgets import Budgets, Spending
from streams.compaction.summarizers.chat_model import ChatModel
from streams.compaction.summarizers.circuit import Circuit
from streams.compaction.summarizers.endpoint import (
    ChargedChat,
    ChatEndpoint,
    EndpointSummarizer,
)
from streams.compaction.summarizers.endpoint_call import HttpSession, ModelEndpoint
from streams.compaction.summarizers.endpoint_limits import EndpointLimits
from streams.compaction.summarizers.extractive import ExtractiveSummarizer
from streams.compaction.summarizers.guarded import GuardedSummarizer
from streams.metrics.declared import (
    BREAKER_OPEN,
    CALLS,
    COST,
    IN_FLIGHT,
    LIMIT_WAITS,
    TOKENS,
)
from streams.metrics.metrics import Metrics
from streams.runtime.processor import Processor, Threads
from streams.settings.endpoints import CHEAP, EXTRACTIVE
from streams.settings.settings import Settings

ENDPOINT_SHARE = 0.8
"""Of ``summary_time_cap``, what endpoints get; the rest is for the extractive summariser (about a
second at most) and the append.
"""


def prepare() -> None:
    """Load what summaries need, in a process that is to make them: importing this has done most."""
    count("prepare", Policy().encoding)
    count_all(["prepare"], Policy().encoding)  # has a library of its own


class Summarizers:
    """The summarisers of one process: they share one HTTP session, and each endpoint's circuit is
    shared by all its calls.

    Nothing connects before the first call. Belongs to one event loop; ``close`` ends the session.
    """

    def __init__(
        self,
        settings: Settings,
        env: Mapping[str, str] | None = None,
        *,
        processor: Processor | None = None,
        shared: SharedBuckets | None = None,
        weight: Callable[[str], float] = lambda tenant: 1.0,
        budgets: Budgets | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """Args:
            processor: where what takes long is worked out; None: in threads.
            shared: the limits that all workers share; None: there is but this one.
            weight: a tenant's share of what several want.
            budgets: the tenants' budgets; None: there are none.
            metrics: where all is counted; None: nobody looks.

        Raises:
            InvalidSettings: an endpoint's key is not in the environment variable that should hold
                it.
        """
        env = os.environ if env is None else env
        processor, budgets = processor or Threads(), budgets or Budgets()
        metrics = metrics or Metrics()
        self._http = HttpSession()
        self.limits: dict[str, EndpointLimits] = {}
        """The limits of each endpoint, by its name."""
        self._circuits: dict[str, Circuit] = {}
        extractive: Summarizer = ExtractiveSummarizer(processor)
        self._by_name: dict[str, Summarizer] = {EXTRACTIVE: extractive, CHEAP: extractive}
        self.models: dict[str, ChatModel] = {}
        """The model of each endpoint, for questions other than summaries."""

        def spent(tenant: str, spending: Spending) -> None:
            metrics.add_of_tenant(tenant, {TOKENS: spending.tokens, COST: spending.cost})

        for name, options in settings.summarizers.items():
            endpoint = ChatEndpoint(
                ModelEndpoint(name, options, options.find_key(name, env), self._http.get)
            )
            self.limits[name] = limits = EndpointLimits(name, options, shared, weight, budgets)
            self._circuits[name] = circuit = Circuit(
                settings.summary_breaker_failures, settings.summary_breaker_seconds
            )
            attempts = Attempts(
                limits,
                circuit,
                settings.summary_attempts,
                settings.summary_time_cap * ENDPOINT_SHARE,
            )
            chat = ChargedChat(endpoint, limits, budgets, spent)
            self.models[name] = ChatModel(chat, attempts, partial(metrics.add, CALLS))
            self._by_name[name] = GuardedSummarizer(
                EndpointSummarizer(
                    chat,
                    processor,
                    settings.summary_input_tokens,
                    settings.summary_output_tokens,
                ),
                extractive,
                attempts,
                metrics,
            )
        self._show(metrics)

    def _show(self, metrics: Metrics) -> None:
        limits, circuits = self.limits, self._circuits
        metrics.read(IN_FLIGHT, lambda: {(name,): one.calls for name, one in limits.items()})
        metrics.read(LIMIT_WAITS, lambda: {(name,): one.waits for name, one in limits.items()})
        metrics.read(BREAKER_OPEN, lambda: {(name,): one.open for name, one in circuits.items()})

    def get(self, name: str) -> Summarizer:
        """The summariser of that name; raises ``InvalidPolicy`` that names the known ones for any
        other.
        """
        found = self._by_name.get(name)
        if found is None:
            raise InvalidPolicy(
                f"Unknown summarizer {name!r}: choose one of {', '.join(sorted(self._by_name))}."
            )
        return found

    async def close(self) -> None:
        """End the connections to endpoints; a call made later opens new ones."""
        await self._http.close()
