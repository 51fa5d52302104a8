"""What one process counts of itself, and its page in Prometheus' text format.

Counting is an addition to a number in a dictionary; whatever is known elsewhere is read when a page
is made. So what the hot path counts costs nothing. For one event loop.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from math import inf

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from streams.metrics.declared import METRICS, Metric, Service
from streams.metrics.top_labels import TopLabels

Labels = tuple[str, ...]
Sample = tuple[str, dict[str, str], float]
"""A name, labels and a value."""
ROTATE = 60.0
"""Seconds between two looks at which tenants use most."""
_TENANT = ("tenant",)


class _Observed:
    """A histogram's buckets, each counting what is in no smaller one, and the sum."""

    __slots__ = ("counts", "total")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * buckets
        self.total = 0.0


class Metrics(Collector):
    """The metrics of one process, which is a service of one kind."""

    def __init__(self, service: Service = "worker") -> None:
        self._declared = [metric for metric in METRICS if metric.service == service]
        self._values: dict[Metric, dict[Labels, float]] = {one: {} for one in self._declared}
        self._observed: dict[Metric, dict[Labels, _Observed]] = {}
        self._readers: dict[Metric, Callable[[], Mapping[Labels, float]]] = {}
        self._before: list[Callable[[], Awaitable[None]]] = []
        self._tenants = TopLabels()
        self._rotated = time.monotonic()

    def add(self, metric: Metric, *labels: str, by: float = 1) -> None:
        """Count; the labels are in the order in which they are declared."""
        values = self._values[metric]
        values[labels] = values.get(labels, 0) + by

    def add_of_tenant(self, tenant: str, by: Mapping[Metric, float]) -> None:
        """Count what has a tenant for its label: the tenant's name, if it uses much."""
        label = self._tenants.of(tenant, max(by.values()))
        for metric, units in by.items():
            self.add(metric, label, by=units)

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Count a value in a histogram."""
        histogram = self._observed.setdefault(metric, {})
        observed = histogram.get(labels)
        if observed is None:
            observed = histogram[labels] = _Observed(len(metric.bounds) + 1)
        observed.counts[bisect_left(metric.bounds, value)] += 1
        observed.total += value

    def set(self, metric: Metric, values: Mapping[Labels, float]) -> None:
        """Replace all values of a gauge."""
        self._values[metric] = dict(values)

    def read(self, metric: Metric, reader: Callable[[], Mapping[Labels, float]]) -> None:
        """Take a metric's values from where they are known, whenever a page is made."""
        self._readers[metric] = reader

    def before(self, work: Callable[[], Awaitable[None]]) -> None:
        """Await this before each page; it must not raise."""
        self._before.append(work)

    async def prepare(self) -> None:
        """Bring what is read from elsewhere up to date."""
        for work in self._before:
            await work()

    def samples(self) -> Iterator[tuple[Metric, list[Sample]]]:
        """All metrics with their samples."""
        self._rotate()
        for metric in self._declared:
            if metric.kind == "histogram":
                yield metric, list(self._buckets(metric))
                continue
            reader = self._readers.get(metric)
            values = self._values[metric] if reader is None else reader()
            if not values and not metric.labels:
                values = {(): 0}
            elif metric.known:
                values = {(value,): 0.0 for value in metric.known} | dict(values)
            yield (
                metric,
                [
                    (metric.name, dict(zip(metric.labels, labels, strict=True)), float(value))
                    for labels, value in values.items()
                ],
            )

    def collect(self) -> Iterable[Family]:
        """All metrics, as the client library has them."""
        for metric, samples in self.samples():
            yield family(metric, samples)

    def page(self) -> bytes:
        """All of it in Prometheus' text format; await :meth:`prepare` before."""
        return page(self)

    # -- parts
    # ------------------------------------------------------------------------------------------

    def _buckets(self, metric: Metric) -> Iterator[Sample]:
        for values, observed in self._observed.get(metric, {}).items():
            labels, so_far = dict(zip(metric.labels, values, strict=True)), 0
            for bound, count in zip((*metric.bounds, inf), observed.counts, strict=True):
                so_far += count
                le = str(float(bound)) if bound < inf else "+Inf"
                yield f"{metric.name}_bucket", {**labels, "le": le}, so_far
            yield f"{metric.name}_count", labels, so_far
            yield f"{metric.name}_sum", labels, observed.total

    def _rotate(self) -> None:
        now = time.monotonic()
        if now - self._rotated < ROTATE:
            return
        self._rotated = now
        for tenant in self._tenants.rotate():
            for metric in self._declared:
                if metric.labels == _TENANT:
                    self._values[metric].pop((tenant,), None)


def family(metric: Metric, samples: Iterable[Sample]) -> Family:
    """A metric and its samples, as the client library has them."""
    made = Family(metric.name.removesuffix("_total"), metric.help, metric.kind)
    for name, labels, value in samples:
        made.add_sample(name, labels, value)
    return made


def page(collector: Collector) -> bytes:
    """What a collector has, in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)
