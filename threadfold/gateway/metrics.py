"""What the gateway counts of itself, for Prometheus: requests and their seconds by route, method
and status. Each gets its id where it is counted.

``GET /metrics`` shows it in the text format. No label names a tenant or a conversation, so the
number of series is bounded by the routes: what no route has is counted as the route `none`, a
method that a route does not take as `any`. A stream counts when it ends; its seconds are not
observed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streams.memory.topic_feed import TopicFeed
from streams.metrics.declared import (
    BEHIND,
    CACHE_BYTES,
    CACHE_READS,
    GATEWAY_CERTIFICATES,
    HALTED,
    MEMORY_BEHIND,
    MEMORY_FED,
    PREFIX,
    QUOTA_REFUSALS,
    REDIS_MAXIMUM,
    REDIS_REFUSES,
    REDIS_UP,
    REDIS_USED,
    REQUEST_SECONDS,
    REQUESTS,
    SET_ASIDE,
    UNDER_WAY,
)
from streams.metrics.metrics import Metrics
from streams.runtime.current_request import CURRENT, request_of
from streams.settings.certificates import known_ends
from streams.settings.settings import Settings
from threadfold.gateway.problems import cut_off, of_request, unforeseen
from threadfold.quotas import Quotas
from threadfold.service.window_cache import WindowCache

logger = logging.getLogger(__name__)


class GatewayMetrics(Metrics):
    """The metrics of one gateway."""

    def __init__(self) -> None:
        super().__init__("gateway")
        self.under_way = 0
        """Requests that are not answered yet."""
        self.requests = 0
        """Requests that were answered."""
        self.read(UNDER_WAY, lambda: {(): self.under_way})

    def follow(self, quotas: Quotas, cache: WindowCache, settings: Settings) -> None:
        """Show what the quotas refused, how the cache fares, and when certificates end, from now
        on.
        """
        self.read(GATEWAY_CERTIFICATES, lambda: known_ends(settings))
        self.read(QUOTA_REFUSALS, lambda: {(kind,): n for kind, n in quotas.refused.items()})
        self.read(CACHE_READS, lambda: {("hit",): cache.hits, ("miss",): cache.misses})
        self.read(CACHE_BYTES, lambda: {(): cache.size})
        self.read(
            PREFIX, lambda: {("kept",): cache.prefix_kept, ("changed",): cache.prefix_changed}
        )

    def follow_memory(self, feeds: Mapping[str, TopicFeed | None]) -> None:
        """Show how the indexes of the long-term memory are fed, by their names, from now on."""
        there = {(name,): feed for name, feed in feeds.items() if feed is not None}
        self.read(MEMORY_FED, lambda: {name: not feed.reason for name, feed in there.items()})
        self.read(MEMORY_BEHIND, lambda: {name: feed.behind for name, feed in there.items()})

    def answered(self, route: str, method: str, status: int | str, seconds: float | None) -> None:
        """Count one request; None for the seconds of a stream, which are not observed."""
        self.requests += 1
        self.add(REQUESTS, route, method, str(status))
        if seconds is not None:
            self.observe(REQUEST_SECONDS, seconds, route, method)

    def show(
        self,
        halted: Iterable[int],
        behind: Mapping[int, int],
        set_aside: Mapping[int, int],
        redis: Mapping[str, Any] | None = None,
    ) -> bytes:
        """The page, with the partitions that are halted now, how far each is behind, how many
        records of each are nobody's, and what Redis reports (None: it does not answer).
        """
        self.set(HALTED, {(str(number),): 1 for number in halted})
        self.set(BEHIND, {(str(number),): events for number, events in behind.items()})
        self.set(SET_ASIDE, {(str(number),): found for number, found in set_aside.items()})
        self.set(REDIS_UP, {(): redis is not None})
        if redis is not None:
            self.set(REDIS_USED, {(): redis["used_memory"]})
            self.set(REDIS_MAXIMUM, {(): redis["maxmemory"]})
            self.set(REDIS_REFUSES, {(): bool(redis["refuses"])})
        return self.page()


class Measured:
    """ASGI middleware that gives each request its id (``X-Request-Id`` of the answer), and counts
    it once it is answered, whatever answered it.
    """

    def __init__(
        self, app: ASGIApp, metrics: GatewayMetrics, ending: Callable[[], bool] = lambda: False
    ) -> None:
        """Args: ``ending`` returns whether the server stops, and so cancels requests."""
        self._app = app
        self._metrics = metrics
        self._ending = ending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request and count it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, began, metrics = 0, time.perf_counter(), self._metrics
        request = request_of(scope["headers"])
        before = CURRENT.set(request)

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                named = (b"x-request-id", request.id.encode())
                message["headers"] = [*message.get("headers", ()), named]
            await send(message)

        metrics.under_way += 1
        try:
            await self._app(scope, receive, noted)
        except asyncio.CancelledError:
            if not self._ending():
                raise
            if not status:  # else its client has not read all of the answer
                # What the server would answer by itself is 500.
                await cut_off()(scope, receive, noted)
        except Exception as error:
            if status:
                raise
            # From before the routes, which answer their own.
            logger.exception("an unexpected error%s", of_request())
            await unforeseen(error)(scope, receive, noted)
        finally:
            request.over = True
            CURRENT.reset(before)
            metrics.under_way -= 1
            route = scope.get("route")
            path, method = ("none", "any") if route is None else (route.path, route.method)
            seconds = None if route is not None and route.streams else time.perf_counter() - began
            metrics.answered(path, method, status or "none", seconds)
