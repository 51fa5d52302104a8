"""``top``: what is shown of what workers report."""

from __future__ import annotations

import msgspec

from streams.metrics.declared import (
    BREAKER_OPEN,
    DEAD_LETTERS,
    FOLDED,
    HEALING,
    LAG,
    QUOTA_USED,
    SECONDS_BEHIND,
    Metric,
)
from streams.metrics.metrics import Metrics
from streams.metrics.reports import read_reports
from threadfold.cli.top import REPEATED, Look, figures, later, partitions, rate


def look(at: float, **workers: dict[Metric, dict[tuple[str, ...], float]]) -> Look:
    """A look at workers with these values, as they report them."""
    found = {}
    for name, values in workers.items():
        metrics = Metrics()
        for metric, samples in values.items():
            for labels, value in samples.items():
                metrics.add(metric, *labels, by=value)
        samples_of = {metric.name: made for metric, made in metrics.samples()}
        found[name] = msgspec.json.encode(samples_of)
    return Look(at, read_reports(found))


def folded(applied: float) -> dict[Metric, dict[tuple[str, ...], float]]:
    return {FOLDED: {("0", "applied"): applied, ("1", "duplicate"): 3}}


def test_a_rate_is_what_all_workers_counted_between_two_reports() -> None:
    before = look(10.0, a=folded(100), b=folded(50))
    now = look(20.0, a=folded(180), b=folded(90))
    assert rate(before, now, FOLDED, outcome="applied") == 12.0
    assert rate(None, now, FOLDED, outcome="applied") is None
    gone = look(30.0, a=folded(200))
    assert rate(now, gone, FOLDED, outcome="applied") is None


def test_a_rate_ends_when_reports_repeat_themselves() -> None:
    before, now = look(10.0, a=folded(100)), look(20.0, a=folded(180))
    shown = later(before, now, look(22.0, a=folded(180)))
    assert shown == (before, now), "the same report is seen again"
    assert rate(*shown, FOLDED, outcome="applied") == 8.0
    quiet = later(before, now, look(20.5 + REPEATED, a=folded(180)))
    assert rate(*quiet, FOLDED, outcome="applied") == 0.0
    busy = later(before, now, look(25.0, a=folded(230)))
    assert rate(*busy, FOLDED, outcome="applied") == 10.0


def test_the_figures_name_open_breakers_dead_letters_and_a_redis_that_is_full() -> None:
    values = {
        DEAD_LETTERS: {("poison",): 2.0},
        BREAKER_OPEN: {("cheap",): 1.0, ("dear",): 0.0},
        LAG: {("0",): 5.0, ("1",): 7.0},
    }
    redis = {"used_memory": 90 << 20, "maxmemory": 100 << 20, "refuses": "it is full"}
    shown = dict(map(tuple, figures(None, look(1.0, a=values), redis)))
    assert shown["breakers open"] == "cheap"
    assert shown["dead letters"] == "2"
    assert shown["events behind"] == "12 in 2 partitions"
    assert shown["redis"] == "90 of 100 MiB, refuses writes"
    assert shown["events applied"] == "-"
    assert dict(map(tuple, figures(None, look(1.0), None)))["redis"] == "does not answer"


def test_the_partition_farthest_behind_comes_first() -> None:
    values = {
        LAG: {("2",): 1.0, ("10",): 40.0, ("3",): 0.0},
        SECONDS_BEHIND: {("10",): 2.5},
        HEALING: {("3",): 1.0},
    }
    assert partitions(look(1.0, a=values)) == [
        ["10", "40", "2.5", ""],
        ["2", "1", "0.0", ""],
        ["3", "0", "0.0", "healing"],
    ]


def test_the_quotas_that_are_used_most_are_named_over_all_gateways() -> None:
    tenants = {}
    for gateway, used in (("g:1", 0.5), ("g:2", 0.25)):
        metrics = Metrics("tenants")
        metrics.set(
            QUOTA_USED,
            {
                ("requests_per_second", "acme"): used,
                ("events_per_second", "acme"): 0.1,
                ("requests_per_second", "nord"): 0.3,
                ("tokens_per_minute", "other"): 0.01,
            },
        )
        tenants[gateway] = msgspec.json.encode({m.name: made for m, made in metrics.samples()})
    now = Look(1.0, {}, read_reports(tenants))
    shown = dict(map(tuple, figures(None, now, None)))["quotas used"]
    assert shown == (
        "acme requests_per_second 75%, nord requests_per_second 60%, acme events_per_second 20%"
    )


def test_what_nobody_reports_is_unknown_and_not_zero() -> None:
    nobody = dict(map(tuple, figures(None, look(1.0), None)))
    assert nobody["workers"].startswith("none reports: start one")
    assert nobody["quotas used"] == "no gateway reports"
    of_workers = nobody.keys() - {"workers", "quotas used", "redis"}
    assert {nobody[name] for name in of_workers} == {"unknown", "-"}
    assert nobody["events behind"] == nobody["dead letters"] == "unknown"
    idle = look(1.0, a={LAG: {("0",): 0.0}})
    one = dict(map(tuple, figures(None, Look(1.0, idle.found, {"g:1": {}}), None)))
    assert (one["workers"], one["events behind"]) == ("1", "0 in 1 partitions")
    assert (one["dead letters"], one["breakers open"], one["quotas used"]) == ("0", "none", "none")


def test_what_models_cost_today_is_shown_also_while_no_worker_reports() -> None:
    def cost(look: Look) -> str:
        return dict(map(tuple, figures(None, look, None)))["model cost today"]

    assert cost(Look(1.0, {}, cost=12.5)) == "12.5000"
    assert cost(look(1.0, a=folded(1))) == "unknown", "Redis did not say"
