"""Metrics of many processes by way of one: each reports its own to Redis now and then, and whoever
is asked shows them all, with a label that says whose they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from projections.errors import RedisUnavailable
from projections.redis.process_reports import ProcessReports
from streams.metrics.declared import METRICS
from streams.metrics.metrics import Metrics, Sample, family, page

logger = logging.getLogger(__name__)

EVERY = 10.0
"""Seconds between two reports."""
KIND = "metrics"
"""Under which they are in Redis."""
PROCESS = "worker"
"""The label that says whose a sample is."""
Report = dict[str, list[Sample]]
"""The samples of one process, by metric."""


async def report(metrics: Metrics, reports: ProcessReports, process: str) -> None:
    """Report a process's metrics until cancelled; while Redis is away nobody sees them."""
    while True:
        try:
            await metrics.prepare()
            samples = {metric.name: found for metric, found in metrics.samples()}
            await reports.put(process, msgspec.json.encode(samples))
        except RedisUnavailable as error:
            logger.debug("metrics are not reported: %s", error)
        except Exception:
            logger.exception("metrics cannot be reported; it is tried again")
        await asyncio.sleep(EVERY)


async def end_report(reports: ProcessReports, process: str) -> None:
    """Delete the report of a process that ends; one that cannot be deleted ends by itself."""
    with suppress(RedisUnavailable):
        await reports.remove(process)


class _Reported(Collector):
    def __init__(self, reports: Mapping[str, Report]) -> None:
        self._reports = reports

    def collect(self) -> Iterable[Family]:
        for metric in METRICS:
            if metric.service != "worker":
                continue
            samples = [
                (name, {**labels, PROCESS: process}, value)
                for process, found in sorted(self._reports.items())
                for name, labels, value in found.get(metric.name, ())
            ]
            if samples:
                yield family(metric, samples)


def read_reports(reports: Mapping[str, bytes]) -> dict[str, Report]:
    """What processes reported, by their names and by metrics. A report of another release that
    cannot be read is passed over.
    """
    read: dict[str, Report] = {}
    for process, value in reports.items():
        try:
            read[process] = msgspec.json.decode(value, type=Report)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            logger.warning("the metrics of worker %s cannot be read: %s", process, error)
    return read


def reported_page(reports: Mapping[str, bytes]) -> bytes:
    """What processes reported, by their names, in Prometheus' text format."""
    return page(_Reported(read_reports(reports)))
