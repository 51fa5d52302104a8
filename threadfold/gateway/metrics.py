"""What the gateway counts of itself, for Prometheus: requests and their seconds by route, method
and status, and events appended.

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

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from threadfold.gateway.problems import cut_off, unforeseen

logger = logging.getLogger(__name__)
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Bounds of the histogram's buckets: an append takes some milliseconds, a wait up to ten seconds.
"""

REDIS = {
    "up": "1 if Redis answers.",
    "used_bytes": "Memory that Redis uses, of all its servers.",
    "maxmemory_bytes": "What Redis may use; 0: no limit.",
    "refuses_writes": "1 if Redis is full or cannot write its file: windows stand still.",
}
"""What ``/metrics`` shows of Redis, by the names of the gauges."""


class Metrics:
    """The counters of one gateway, in a registry of their own: two gateways in a process do not mix
    theirs.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("route", "method", "status")
        self.requests = Counter(
            "threadfold_http_requests", "Requests answered.", labels, registry=self.registry
        )
        self.seconds = Histogram(
            "threadfold_http_seconds",
            "Seconds from a request's begin to its answer's end.",
            ("route", "method"),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.under_way = 0
        """Requests that are not answered yet."""
        Gauge(
            "threadfold_http_under_way",
            "Requests that are not answered yet.",
            registry=self.registry,
        ).set_function(lambda: self.under_way)
        self.halted = Gauge(
            "threadfold_partition_halted",
            "1 for each partition that is halted: `threadfold doctor` says why.",
            ("partition",),
            registry=self.registry,
        )
        self.set_aside = Gauge(
            "threadfold_records_set_aside",
            "Records of each partition that are nobody's events, since Redis began.",
            ("partition",),
            registry=self.registry,
        )
        self.behind = Gauge(
            "threadfold_partition_behind",
            "Events of each partition that are in the log and not in the windows yet.",
            ("partition",),
            registry=self.registry,
        )
        self._redis = {
            name: Gauge(f"threadfold_redis_{name}", text, registry=self.registry)
            for name, text in REDIS.items()
        }
        self._series: dict[tuple[str, str, int | str], tuple[Counter, Histogram | None]] = {}

    def answered(self, route: str, method: str, status: int | str, seconds: float | None) -> None:
        """Count one request; None for the seconds of a stream, which are not observed."""
        series = self._series.get((route, method, status))
        if series is None:
            # Kept, because looking them up by their labels costs more than counting.
            observed = None if seconds is None else self.seconds.labels(route, method)
            series = self._series[route, method, status] = (
                self.requests.labels(route, method, status),
                observed,
            )
        series[0].inc()
        if series[1] is not None and seconds is not None:
            series[1].observe(seconds)

    def page(
        self,
        halted: Iterable[int],
        behind: Mapping[int, int],
        set_aside: Mapping[int, int],
        redis: Mapping[str, Any] | None = None,
    ) -> bytes:
        """All of it in Prometheus' text format, with the partitions that are halted now, how far
        each is behind, how many records of each are nobody's, and what Redis reports (None: it does
        not answer).
        """
        self.set_aside.clear()
        for number, records in set_aside.items():
            self.set_aside.labels(str(number)).set(records)
        self.behind.clear()
        for number, events in behind.items():
            self.behind.labels(str(number)).set(events)
        self._redis["up"].set(redis is not None)
        if redis is not None:
            self._redis["used_bytes"].set(redis["used_memory"])
            self._redis["maxmemory_bytes"].set(redis["maxmemory"])
            self._redis["refuses_writes"].set(bool(redis["refuses"]))
        self.halted.clear()
        for number in halted:
            self.halted.labels(str(number)).set(1)
        return generate_latest(self.registry)


class Measured:
    """ASGI middleware that counts each request once it is answered, whatever answered it."""

    def __init__(
        self, app: ASGIApp, metrics: Metrics, ending: Callable[[], bool] = lambda: False
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

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        metrics.under_way += 1
        try:
            await self._app(scope, receive, noted)
        except asyncio.CancelledError:
            if status or not self._ending():
                raise
            # What the server would answer by itself is 500.
            await cut_off()(scope, receive, noted)
        except Exception as error:
            if status:
                raise
            # From before the routes, which answer their own.
            logger.exception("an error that was not foreseen")
            await unforeseen(error)(scope, receive, noted)
        finally:
            metrics.under_way -= 1
            route = scope.get("route")
            path, method = ("none", "any") if route is None else (route.path, route.method)
            seconds = None if route is not None and route.streams else time.perf_counter() - began
            metrics.answered(path, method, status or "none", seconds)
