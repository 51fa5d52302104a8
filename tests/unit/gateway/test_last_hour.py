"""What is made of the reports of workers for the plots of the last hour."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from projections.redis.hour_rings import Hour, HourRings
from streams.metrics.declared import DEAD_LETTERS, DUE, FOLDED, SECONDS_BEHIND
from streams.metrics.metrics import Metrics
from streams.metrics.reports import Report
from streams.settings.settings import Settings
from threadfold.gateway.last_hour import LastHour, platform_figures, ring_of, smoothed

SLOT = 176_000_000


def report(applied: int, letters: int = 0, late: float = 0.0, due: int = 0) -> Report:
    """What a worker reports that has applied so many events."""
    metrics = Metrics()
    metrics.add(FOLDED, "0", "applied", by=applied - applied // 2)
    metrics.add(FOLDED, "1", "applied", by=applied // 2)
    metrics.add(FOLDED, "1", "duplicate", by=1_000_000)
    metrics.add(DEAD_LETTERS, "poison", by=letters)
    metrics.set(SECONDS_BEHIND, {("0",): late, ("1",): late / 2})
    metrics.set(DUE, {("0",): due, ("1",): due})
    return {metric.name: found for metric, found in metrics.samples()}


def test_a_slot_has_what_workers_counted_since_the_one_before() -> None:
    first, state = platform_figures({"a": report(5_000, 9)}, 3, SLOT, b"")
    assert first == [0, 3, 0, 0, 0], "what was counted before is of no slot"
    later = {"a": report(5_100, 10, 4.0, 2), "b": report(50, 1, 6.0, 1)}
    found, state = platform_figures(later, 8, SLOT + 1, state)
    assert found == [15, 8, 6.0, 6, 2], "a worker that was never seen began in this slot"
    found, _ = platform_figures(later, 0, SLOT + 2, state)
    assert found == [0, 0, 6.0, 6, 0]


def test_a_worker_that_began_anew_counts_from_nothing() -> None:
    _, state = platform_figures({"a": report(5_000, 5)}, 0, SLOT, b"")
    found, _ = platform_figures({"a": report(30, 1)}, 0, SLOT + 1, state)
    assert (found[0], found[4]) == (3, 1)


def test_reports_that_were_missing_for_a_while_are_counted_over_that_time() -> None:
    """As after a Redis that was away for a minute: no peak of all that was ever counted."""
    _, state = platform_figures({"a": report(5_000, 5)}, 0, SLOT, b"")
    for i in (1, 2, 3):
        missing, state = platform_figures({}, None, SLOT + i, state)
        assert missing == [None, None, None, None, None]
    found, _ = platform_figures({"a": report(5_600, 7)}, 0, SLOT + 6, state)
    assert (found[0], found[4]) == (10, 2)


def test_a_state_keeps_the_workers_of_one_hour_alone() -> None:
    _, state = platform_figures({"gone": report(1)}, 0, SLOT, b"")
    _, state = platform_figures({"a": report(1)}, 0, SLOT + 359, state)
    assert b"gone" in state
    _, state = platform_figures({"a": report(1)}, 0, SLOT + 360, state)
    assert b"gone" not in state


def test_slots_that_saw_no_report_are_smoothed_and_unknown_ones_stay_unknown() -> None:
    assert smoothed([3, 0, 6, None, 9]) == [3, 1.5, 3, None, 7.5]


def test_a_state_that_nobody_can_read_is_as_none() -> None:
    for state in (b"\xff", b'{"\xff": 1}', b"[]"):
        found, left = platform_figures({"a": report(5_000, 9)}, 3, SLOT, state)
        assert found == [0, 3, 0, 0, 0]
        assert b'"a"' in left


async def test_of_few_connections_a_tenant_that_asks_much_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, most = Counter[str](), Counter[str]()

    async def read(_: HourRings, owner: str) -> Hour:
        asked[owner] += 1
        most[owner] = max(most[owner], asked[owner])
        await asyncio.sleep(0)
        asked[owner] -= 1
        return Hour(SLOT * 10.0, SLOT, SLOT + 2, {})

    monkeypatch.setattr(HourRings, "read", read)
    backend: Any = SimpleNamespace(settings=Settings(redis="redis://127.0.0.1:1"))
    hour = LastHour(backend, cast(Any, None), lambda: 0)
    await asyncio.gather(*(hour.of_tenant("noisy") for _ in range(50)), hour.of_tenant("quiet"))
    assert most == {ring_of("noisy"): 1, ring_of("quiet"): 1}
    await hour.stop()
