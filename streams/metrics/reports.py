"""Metrics of many processes by way of one: each reports its own to Redis now and then, and whoever
is asked shows them all, with a label that says whose they are.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from projections.errors import RedisUnavailable
from projections.events.untrusted import Undecodable, json_decoder
from projections.redis.process_reports import ProcessReports
from streams.metrics.declared import METRICS
from streams.metrics.metrics import Metrics, Sample, family, page
from streams.runtime.tasks import end_tasks
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)

EVERY = 10.0
"""Seconds between two reports."""
LEAVE = 1.0
"""Seconds in which a process that stops deletes its report: all of it is to end soon."""
WORKERS, GATEWAYS = "metrics", "tenant-metrics"
"""Under which they are in Redis: what workers count, and what gateways count by tenant."""
Report = dict[str, list[Sample]]
"""The samples of one process, by metric."""


class Reporter:
    """Reports the metrics of this process from :meth:`start` to :meth:`stop`; while Redis is away
    nobody sees them.
    """

    def __init__(self, metrics: Metrics, settings: Settings, kind: str) -> None:
        self._metrics = metrics
        self._reports = ProcessReports(settings.redis, settings.topic_prefix, kind)
        self._process = f"{socket.gethostname()}:{os.getpid()}"
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to report."""
        self._task = asyncio.create_task(self._report(), name="metrics-report")

    async def stop(self) -> None:
        """Delete the report (one that cannot be deleted ends by itself), and disconnect."""
        if self._task is not None:
            await end_tasks([self._task])
            with suppress(RedisUnavailable, TimeoutError):
                async with asyncio.timeout(LEAVE):
                    await self._reports.remove(self._process)
        await self._reports.close()

    async def _report(self) -> None:
        while True:
            try:
                await self._metrics.prepare()
                samples = {metric.name: found for metric, found in self._metrics.samples()}
                await self._reports.put(self._process, msgspec.json.encode(samples))
            except RedisUnavailable as error:
                logger.debug("metrics are not reported: %s", error)
            except Exception:
                logger.exception("metrics cannot be reported; trying again")
            await asyncio.sleep(EVERY)


class _Reported(Collector):
    def __init__(self, workers: Mapping[str, Report], gateways: Mapping[str, Report]) -> None:
        self._of = {"worker": ("worker", workers), "tenants": ("gateway", gateways)}

    def collect(self) -> Iterable[Family]:
        for metric in METRICS:
            label, reports = self._of.get(metric.service, ("", {}))
            samples = [
                (name, {**labels, label: process}, value)
                for process, found in sorted(reports.items())
                for name, labels, value in found.get(metric.name, ())
            ]
            if samples:
                yield family(metric, samples)


async def reports_of(settings: Settings, kind: str) -> dict[str, bytes]:
    """What processes of a kind reported lately, by their names; raises RedisUnavailable."""
    found = ProcessReports(settings.redis, settings.topic_prefix, kind)
    try:
        return await found.all()
    finally:
        await found.close()


_report = json_decoder(Report)


def read_reports(reports: Mapping[str, bytes]) -> dict[str, Report]:
    """What processes reported, by their names and by metrics. A report of another release that
    cannot be read is passed over.
    """
    read: dict[str, Report] = {}
    for process, value in reports.items():
        try:
            read[process] = _report(value)
        except Undecodable as error:
            logger.warning("the metrics of process %s cannot be read: %s", process, error)
    return read


def reported_page(workers: Mapping[str, bytes], gateways: Mapping[str, bytes]) -> bytes:
    """What processes reported, by their names, in Prometheus' text format: with a label `worker`
    or `gateway` that says whose a sample is.
    """
    return page(_Reported(read_reports(workers), read_reports(gateways)))
