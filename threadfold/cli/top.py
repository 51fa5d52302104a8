"""``top``: what the workers report, live in a terminal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from projections.errors import RedisUnavailable
from projections.redis.daily_counts import DailyCounts
from projections.redis.store import RedisStore
from streams.compaction.summarizers.budgets import all_spent_today
from streams.metrics import declared, reports
from streams.metrics.declared import Metric
from streams.settings.settings import Settings
from threadfold.cli.common import Finite, data_option, load_settings, run

if TYPE_CHECKING:
    from rich.table import Table

Figures = Mapping[str, reports.Report]
"""What each worker reported."""
MOST = 3
"""Tenants that are shown: those that append most, and those that use most of a quota."""
NO_WORKER = "none reports: start one, or see why it hangs (`threadfold doctor`)"
NO_GATEWAY = "no gateway reports"
UNKNOWN = "unknown"
REPEATED = 1.5 * reports.EVERY
"""Seconds after which a report that is the same as before is another one."""
ROWS = 20
"""Partitions that are shown: those farthest behind."""


@click.command()
@click.option(
    "--every", type=Finite(min=0.2), default=2.0, show_default=True, help="Seconds between looks."
)
@click.option("--once", is_flag=True, help="Print once, without rates, and end.")
@data_option
def top(every: float, once: bool, data: Path | None) -> None:
    """Show events a second, lag by partition, waiting summaries, dead letters, the tenants that
    append most, the quotas that are used most, and Redis' memory.

    Workers and gateways report every 10 s; rates are computed from two reports. Ctrl-C ends it.
    """
    run(_show(load_settings(data), every, once))


@dataclass(frozen=True, slots=True)
class Reported:
    """A process's last report, when it was first seen, and the one before it with the seconds
    between the two (none: it is the first that was seen).
    """

    at: float
    report: reports.Report
    before: reports.Report | None = None
    seconds: float = reports.EVERY


def later(before: Mapping[str, Reported], found: Figures, at: float) -> dict[str, Reported]:
    """What each process has reported by now. Each has its own times: a rate over two looks would
    count what one process did in ten seconds as done in those between the looks.
    """

    def latest(process: str, report: reports.Report) -> Reported:
        last = before.get(process)
        if last is None:
            return Reported(at, report)
        if report == last.report and at - last.at <= REPEATED:
            return last
        # Nobody knows when the first one came that was seen, but how often they come.
        return Reported(at, report, last.report, max(reports.EVERY, at - last.at))

    return {process: latest(process, report) for process, report in found.items()}


def _sum(report: reports.Report, metric: Metric, labels: Mapping[str, str]) -> float:
    return sum(
        value
        for name, has, value in report.get(metric.name, ())
        if name == metric.name and labels.items() <= has.items()
    )


def rate(of: Mapping[str, Reported], metric: Metric, **labels: str) -> float | None:
    """How much a counter grew in a second, in all processes between two reports of each; None: none
    has two yet. A process that began anew counts from 0.
    """
    grown = [
        ((now - was) if now >= was else now) / one.seconds
        for one in of.values()
        if one.before is not None
        for was, now in [(_sum(one.before, metric, labels), _sum(one.report, metric, labels))]
    ]
    return sum(grown) if grown else None


@dataclass(frozen=True, slots=True)
class Look:
    """What workers have reported, and gateways of tenants; ``cost`` is what models cost today
    (None: unknown).
    """

    found: Mapping[str, Reported] = field(default_factory=dict)
    tenants: Mapping[str, Reported] = field(default_factory=dict)
    cost: float | None = None

    def total(self, metric: Metric, **labels: str) -> float:
        """The sum over all workers of the samples that have these labels."""
        return sum(_sum(one.report, metric, labels) for one in self.found.values())

    def most(self, metric: Metric, label: str) -> dict[str, float]:
        """The largest value of all workers, by one label."""
        values: dict[str, float] = {}
        for one in self.found.values():
            for _, has, value in one.report.get(metric.name, ()):
                values[has[label]] = max(values.get(has[label], 0.0), value)
        return values

    def quotas(self) -> list[str]:
        """The quotas that are used most, over all gateways, each with its tenant and share."""
        used: dict[tuple[str, str], float] = {}
        for one in self.tenants.values():
            for _, has, value in one.report.get(declared.QUOTA_USED.name, ()):
                place = has["tenant"], has["quota"]
                used[place] = used.get(place, 0.0) + value
        most = sorted(used.items(), key=lambda one: -one[1])[:MOST]
        return [f"{tenant} {quota} {share:.0%}" for (tenant, quota), share in most]

    def busiest(self) -> list[str]:
        """The tenants that append most, over all gateways, each with its events a second."""
        named = {
            has["tenant"]
            for one in self.tenants.values()
            for _, has, _ in one.report.get(declared.APPENDED.name, ())
        }
        rates = {
            tenant: rate(self.tenants, declared.APPENDED, tenant=tenant) or 0.0 for tenant in named
        }
        most = sorted(rates.items(), key=lambda one: (-one[1], one[0]))[:MOST]
        return [f"{tenant} {events:,.1f}/s" for tenant, events in most if events]

    def answered(self) -> list[str]:
        """How many requests for summaries were answered, by outcome and reason."""
        counts: dict[tuple[str, str], float] = {}
        for one in self.found.values():
            for _, has, value in one.report.get(declared.COMPACTIONS.name, ()):
                place = has["outcome"], has["reason"]
                counts[place] = counts.get(place, 0.0) + value
        return [
            f"{outcome.replace('_', ' ')} ({reason}) {count:,.0f}"
            for (outcome, reason), count in sorted(counts.items())
        ]


def figures(now: Look, redis: Mapping[str, Any] | None) -> list[list[str]]:
    """The rows of the upper table: a name and a value. What only workers know is unknown while none
    reports: a worker that hangs is no idle one.
    """

    def per_second(metric: Metric, **labels: str) -> str:
        value = rate(now.found, metric, **labels)
        return "-" if value is None else f"{value:,.1f}/s"

    def total(metric: Metric, **labels: str) -> str:
        return format(now.total(metric, **labels), ",.0f") if now.found else UNKNOWN

    open_ = [
        name for name, is_open in now.most(declared.BREAKER_OPEN, "endpoint").items() if is_open
    ]
    breakers = ", ".join(open_) or "none"
    owned = len(now.most(declared.LAG, "partition"))
    nobody = "none" if now.tenants else NO_GATEWAY
    memory = "does not answer"
    if redis is not None:
        used, most = redis["used_memory"] >> 20, redis["maxmemory"] >> 20
        memory = f"{used:,} of {most:,} MiB" if most else f"{used:,} MiB"
        memory += ", refuses writes" if redis["refuses"] else ""
    return [
        ["workers", f"{len(now.found)}" if now.found else NO_WORKER],
        ["events applied", per_second(declared.FOLDED, outcome="applied")],
        ["duplicates", per_second(declared.FOLDED, outcome="duplicate")],
        ["events behind", f"{total(declared.LAG)} in {owned} partitions" if owned else UNKNOWN],
        ["conversations due", total(declared.DUE)],
        ["summaries waiting", total(declared.WAITING)],
        ["summaries accepted", per_second(declared.SUMMARIES, outcome="accepted")],
        ["requests answered", ", ".join(now.answered()) or ("none" if now.found else UNKNOWN)],
        ["breakers open", breakers if now.found else UNKNOWN],
        ["model cost today", UNKNOWN if now.cost is None else f"{now.cost:,.4f}"],
        ["dead letters", total(declared.DEAD_LETTERS)],
        ["fenced writes", total(declared.FENCED)],
        ["tenants, appends", ", ".join(now.busiest()) or nobody],
        ["quotas used", ", ".join(now.quotas()) or nobody],
        ["redis", memory],
    ]


def partitions(now: Look) -> list[list[str]]:
    """The rows of the lower table: a partition, its lag, its seconds behind, what it does."""
    lag = now.most(declared.LAG, "partition")
    behind = now.most(declared.SECONDS_BEHIND, "partition")
    healing = now.most(declared.HEALING, "partition")
    names = sorted(lag.keys() | healing.keys(), key=lambda name: (-lag.get(name, 0), int(name)))
    return [
        [
            name,
            f"{lag.get(name, 0):,.0f}",
            f"{behind.get(name, 0):,.1f}",
            "healing" if healing.get(name) else "",
        ]
        for name in names[:ROWS]
    ]


async def _show(settings: Settings, every: float, once: bool) -> None:
    store = RedisStore(settings.redis, settings.topic_prefix)
    try:
        now = await _look(settings, Look())
        if once:
            from rich.console import Console

            Console().print(*_tables(now, await _memory(store)), sep="\n")
            return
        await _follow(settings, store, now, every)
    finally:
        await store.close()


async def _follow(settings: Settings, store: RedisStore, now: Look, every: float) -> None:
    from rich.console import Group
    from rich.live import Live

    with Live(screen=True, auto_refresh=False) as live:
        while True:
            live.update(Group(*_tables(now, await _memory(store))), refresh=True)
            await asyncio.sleep(every)
            with suppress(RedisUnavailable):  # its row says so
                now = await _look(settings, now)


async def _look(settings: Settings, before: Look) -> Look:
    workers, gateways = [
        reports.read_reports(await reports.reports_of(settings, kind))
        for kind in (reports.WORKERS, reports.GATEWAYS)
    ]
    counts = DailyCounts(settings.redis, settings.topic_prefix)
    try:
        spent = await all_spent_today(counts, most=0)
    finally:
        await counts.close()
    at = time.monotonic()
    return Look(
        later(before.found, workers, at), later(before.tenants, gateways, at), spent.all.cost
    )


async def _memory(store: RedisStore) -> Mapping[str, Any] | None:
    try:
        return await store.ping()
    except RedisUnavailable:
        return None


def _tables(now: Look, redis: Mapping[str, Any] | None) -> list[Table]:
    from rich.box import SIMPLE
    from rich.table import Table

    upper = Table(box=None, show_header=False)
    for row in figures(now, redis):
        upper.add_row(*row)
    lower = Table(box=SIMPLE)
    for name in ("partition", "events behind", "seconds behind"):
        lower.add_column(name, justify="right")
    lower.add_column("")
    for row in partitions(now):
        lower.add_row(*row)
    return [upper, lower]
