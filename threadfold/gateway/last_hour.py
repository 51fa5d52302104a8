"""Figures of the last hour, for the plots of the console: the platform's every 10 s, and of each
tenant what it used every minute.

They are rings in Redis (``projections.redis.hour_rings``), which all gateways of a deployment fill
and read: it does not matter which of them a page is opened at. Every 10 s each gateway adds what it
counted. One of them, whoever claims the slot first, adds what workers report, and the lag.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from projections.errors import RedisUnavailable, ThreadfoldError
from projections.events.untrusted import Undecodable, json_decoder
from projections.redis.hour_rings import Hour, HourRings
from projections.redis.process_reports import ProcessReports
from streams.metrics.declared import DEAD_LETTERS, DUE, FOLDED, SECONDS_BEHIND, Metric
from streams.metrics.reports import WORKERS, Report, read_reports
from streams.runtime.keyed_limit import KeyedLimit
from streams.runtime.tasks import end_tasks
from threadfold.quotas import KINDS, Quotas
from threadfold.service.conversations import ConversationService

logger = logging.getLogger(__name__)
EVERY, MINUTE = 10, 60
"""Seconds of a slot: of the platform's figures, and of a tenant's."""
PATIENCE = 2.0
"""Seconds in which the log has to say where it ends, and a tenant's turn has to come."""
PLATFORM, REQUESTS = "platform", "requests"
"""Owners of rings. Those of tenants have a prefix."""
PLATFORMS = ("events", "behind", "seconds_behind", "due", "dead_letters")
"""The figures of the platform's ring, in their order."""
Counts = dict[str, tuple[float, float, int]]
"""Of each worker: records it had applied and dead letters it had published, and in which slot."""


class PlatformHour(NamedTuple):
    """The platform's last hour: when its first slot begins (a Unix time), and each figure by slot;
    None: unknown.
    """

    begins: float
    figures: dict[str, list[float | None]]


class TenantHour(NamedTuple):
    """A tenant's last hour, as :class:`PlatformHour`; and what it used in the last minute. Both are
    in the units of its quotas.
    """

    begins: float
    figures: dict[str, list[float]]
    last_minute: dict[str, float]


class LastHour:
    """Fills the rings from :meth:`start` to :meth:`stop`, and reads them."""

    def __init__(
        self, backend: ConversationService, quotas: Quotas, answered: Callable[[], int]
    ) -> None:
        """Args: ``answered`` returns how many requests this gateway has answered."""
        settings = backend.settings
        self._backend = backend
        self._quotas = quotas
        self._answered = answered
        self._requests = answered()
        self._platform = HourRings(settings.redis, settings.topic_prefix, EVERY)
        self._tenants = HourRings(settings.redis, settings.topic_prefix, MINUTE)
        self._reports = ProcessReports(settings.redis, settings.topic_prefix, WORKERS)
        self._task: asyncio.Task[None] | None = None
        self._turns = KeyedLimit(1, PATIENCE)
        """There are few connections: a tenant has one at a time."""

    def start(self) -> LastHour:
        """Begin to fill; returns itself."""
        self._task = asyncio.create_task(self._fill(), name="last-hour")
        return self

    async def stop(self) -> None:
        """Fill no more, and close the connections."""
        await end_tasks([self._task])
        for one in (self._platform, self._tenants, self._reports):
            await one.close()

    async def platform(self) -> PlatformHour:
        """The platform's last hour, without the slot of this moment; raises RedisUnavailable."""
        found, requests = await asyncio.gather(
            self._platform.read(PLATFORM), self._platform.read(REQUESTS)
        )
        # The slot of this moment is not whole.
        slots = range(found.first, found.last)
        figures = {
            name: [_at(found, slot, i) for slot in slots] for i, name in enumerate(PLATFORMS)
        }
        figures["events"] = smoothed(figures["events"])
        answered = [_at(requests, slot, 0) for slot in slots]
        figures["requests"] = [None if one is None else one / EVERY for one in answered]
        return PlatformHour(float(found.first * EVERY), figures)

    async def of_tenant(self, tenant: str) -> TenantHour:
        """A tenant's last hour, without the minute of this moment; raises RedisUnavailable, and
        Overloaded where the tenant asks too often.
        """
        async with self._turns.of(tenant):
            found = await self._tenants.read(ring_of(tenant))
        share = found.now % MINUTE / MINUTE
        figures: dict[str, list[float]] = {}
        last: dict[str, float] = {}
        for i, (name, (_, seconds)) in enumerate(KINDS.items()):
            *whole, now = (
                (_at(found, slot, i) or 0.0) * seconds / MINUTE
                for slot in range(found.first, found.last + 1)
            )
            figures[name] = whole
            # Of the minute before, what is less than a minute ago.
            last[name] = now + whole[-1] * (1 - share)
        return TenantHour(float(found.first * MINUTE), figures, last)

    # -- parts
    # ------------------------------------------------------------------------------------------

    async def _fill(self) -> None:
        while True:
            # In the middle of a slot: so each one gets what was counted in as many seconds.
            await asyncio.sleep(EVERY - (time.time() - EVERY / 2) % EVERY)
            try:
                await self._add()
                await self._claim()
            except RedisUnavailable as error:
                logger.debug("the last hour lacks figures: %s", error)
            except Exception:
                logger.exception("figures of the last hour cannot be kept; it is tried again")

    async def _add(self) -> None:
        # Taken whether Redis answers or not: what was counted long ago is not of this slot.
        used = self._quotas.take_used()
        before, self._requests = self._requests, self._answered()
        await self._tenants.add({ring_of(tenant): units for tenant, units in used.items()})
        await self._platform.add({REQUESTS: [self._requests - before]})

    async def _claim(self) -> None:
        claim = await self._platform.claim(PLATFORM)
        if claim is None:
            return
        reports = read_reports(await self._reports.all())
        behind: float | None = None
        try:
            async with asyncio.timeout(PATIENCE):
                behind = sum((await self._backend.behind()).values())
        except (ThreadfoldError, TimeoutError) as error:
            logger.debug("how far windows are behind is unknown: %s", error)
        figures, state = platform_figures(reports, behind, claim.slot, claim.state)
        await self._platform.put(PLATFORM, claim.slot, state, figures)


def platform_figures(
    reports: Mapping[str, Report], behind: float | None, slot: int, state: bytes
) -> tuple[list[float | None], bytes]:
    """The platform's figures of a slot, and the state for the next one. What only workers know is
    unknown while none reports.

    A worker that did not report for a while is remembered for an hour: what it counts then is not
    counted twice. One that was never seen began lately, but for the first slot of all.
    """
    before = _counts_of(state)
    now: Counts = {
        name: (_sum(report, FOLDED, outcome="applied"), _sum(report, DEAD_LETTERS), slot)
        for name, report in reports.items()
    }
    kept = {name: one for name, one in (before or {}).items() if one[2] > slot - 3600 // EVERY}
    state = msgspec.json.encode({**kept, **now})
    if not reports:
        return [None, behind, None, None, None], state
    seconds = EVERY * max(1, slot - max((one[2] for one in kept.values()), default=slot - 1))
    events, letters = (
        0.0 if before is None else sum(_grown(kept.get(name), one, i) for name, one in now.items())
        for i in (0, 1)
    )
    late = max(max(_values(one, SECONDS_BEHIND), default=0.0) for one in reports.values())
    due = sum(_sum(one, DUE) for one in reports.values())
    return [events / seconds, behind, late, due, letters], state


def _grown(was: tuple[float, ...] | None, now: tuple[float, ...], i: int) -> float:
    if was is None or now[i] < was[i]:  # a process that began anew counts from 0
        return now[i]
    return now[i] - was[i]


_counts = json_decoder(Counts)


def _counts_of(state: bytes) -> Counts | None:
    try:
        return _counts(state)
    except Undecodable:
        return None  # the first slot of all, or another release's


def _sum(report: Report, metric: Metric, **labels: str) -> float:
    return sum(_values(report, metric, **labels))


def _values(report: Report, metric: Metric, **labels: str) -> Iterator[float]:
    for _, has, value in report.get(metric.name, ()):
        if labels.items() <= has.items():
            yield value


def smoothed(values: list[float | None], over: int = 3) -> list[float | None]:
    """Each value as the mean of itself and those right before it. Workers report at their own
    times: some slots see no report, though nothing paused.
    """
    found: list[float | None] = []
    for i, value in enumerate(values):
        near = [one for one in values[max(0, i - over + 1) : i + 1] if one is not None]
        found.append(None if value is None else sum(near) / len(near))
    return found


def _at(hour: Hour, slot: int, i: int) -> float | None:
    figures = hour.slots.get(slot, ())
    return figures[i] if i < len(figures) else None


def ring_of(tenant: str) -> str:
    """Whose ring a tenant's is."""
    return f"hour:{tenant}"
