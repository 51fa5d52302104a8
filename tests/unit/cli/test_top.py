"""``top``: what is shown of what workers report."""

from __future__ import annotations

import msgspec

from streams.metrics.declared import (
    APPENDED,
    BREAKER_OPEN,
    COMPACTIONS,
    DEAD_LETTERS,
    FOLDED,
    HEALING,
    LAG,
    QUOTA_USED,
    SECONDS_BEHIND,
    Metric,
)
from streams.metrics.metrics import Metrics
from streams.metrics.reports import EVERY, Report, read_reports
from threadfold.cli.top import REPEATED, Look, figures, later, partitions, rate

Values = dict[Metric, dict[tuple[str, ...], float]]


def reported(**processes: Values) -> dict[str, Report]:
    """What processes with these values report."""
    found = {}
    for name, values in processes.items():
        metrics = Metrics("tenants" if APPENDED in values else "worker")
        for metric, samples in values.items():
            for labels, value in samples.items():
                metrics.add(metric, *labels, by=value)
        samples_of = {metric.name: made for metric, made in metrics.samples()}
        found[name] = msgspec.json.encode(samples_of)
    return read_reports(found)


def look(**workers: Values) -> Look:
    """A first look at workers with these values."""
    return Look(later({}, reported(**workers), 1.0))


def shown(now: Look) -> dict[str, str]:
    """The figures by their names, of a Redis that does not answer."""
    return dict(map(tuple, figures(now, None)))


def folded(applied: float) -> Values:
    return {FOLDED: {("0", "applied"): applied, ("1", "duplicate"): 3}}


def test_a_rate_is_what_each_worker_counted_between_two_reports_of_its_own() -> None:
    first = later({}, reported(a=folded(100), b=folded(50)), 10.0)
    assert rate(first, FOLDED, outcome="applied") is None, "nobody knows since when"
    one = later(first, reported(a=folded(180), b=folded(50)), 12.0)
    assert rate(one, FOLDED, outcome="applied") == 8.0
    both = later(one, reported(a=folded(180), b=folded(90)), 14.0)
    assert rate(both, FOLDED, outcome="applied") == 12.0
    again = later(both, reported(a=folded(280), b=folded(90)), 22.0)
    assert rate(again, FOLDED, outcome="applied") == 14.0, "not 100 in the 8 s since b reported"
    late = later(again, reported(a=folded(280), b=folded(170)), 34.0)
    assert rate(late, FOLDED, outcome="applied") == 14.0, "80 in 20 s, and a as before"


def test_a_worker_that_ends_or_begins_anew_is_no_rate_below_zero_nor_of_all_it_ever_did() -> None:
    first = later({}, reported(a=folded(900), b=folded(50)), 0.0)
    both = later(first, reported(a=folded(1_000), b=folded(150)), EVERY)
    gone = later(both, reported(b=folded(250)), 2 * EVERY)
    assert rate(gone, FOLDED, outcome="applied") == 10.0
    new = later(gone, reported(b=folded(350), c=folded(10_000)), 3 * EVERY)
    assert rate(new, FOLDED, outcome="applied") == 10.0
    anew = later(new, reported(b=folded(20), c=folded(10_000)), 4 * EVERY)
    assert rate(anew, FOLDED, outcome="applied") == 2.0


def test_a_rate_ends_when_reports_repeat_themselves() -> None:
    before = later(later({}, reported(a=folded(100)), 10.0), reported(a=folded(180)), 20.0)
    same = later(before, reported(a=folded(180)), 22.0)
    assert rate(same, FOLDED, outcome="applied") == 8.0, "the same report is seen again"
    quiet = later(before, reported(a=folded(180)), 20.5 + REPEATED)
    assert rate(quiet, FOLDED, outcome="applied") == 0.0
    busy = later(before, reported(a=folded(280)), 30.0)
    assert rate(busy, FOLDED, outcome="applied") == 10.0


def test_the_figures_name_open_breakers_dead_letters_and_a_redis_that_is_full() -> None:
    values = {
        DEAD_LETTERS: {("poison",): 2.0},
        BREAKER_OPEN: {("cheap",): 1.0, ("dear",): 0.0},
        LAG: {("0",): 5.0, ("1",): 7.0},
    }
    redis = {"used_memory": 90 << 20, "maxmemory": 100 << 20, "refuses": "it is full"}
    found = dict(map(tuple, figures(look(a=values), redis)))
    assert found["breakers open"] == "cheap"
    assert found["dead letters"] == "2"
    assert found["events behind"] == "12 in 2 partitions"
    assert found["redis"] == "90 of 100 MiB, refuses writes"
    assert found["events applied"] == "-"
    assert shown(look())["redis"] == "does not answer"


def test_the_partition_farthest_behind_comes_first() -> None:
    values = {
        LAG: {("2",): 1.0, ("10",): 40.0, ("3",): 0.0},
        SECONDS_BEHIND: {("10",): 2.5},
        HEALING: {("3",): 1.0},
    }
    assert partitions(look(a=values)) == [
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
    now = Look({}, later({}, read_reports(tenants), 1.0))
    assert shown(now)["quotas used"] == (
        "acme requests_per_second 75%, nord requests_per_second 60%, acme events_per_second 20%"
    )


def test_what_nobody_reports_is_unknown_and_not_zero() -> None:
    nobody = shown(look())
    assert nobody["workers"].startswith("none reports: start one")
    assert nobody["quotas used"] == nobody["tenants, appends"] == "no gateway reports"
    of_workers = nobody.keys() - {"workers", "quotas used", "tenants, appends", "redis"}
    assert {nobody[name] for name in of_workers} == {"unknown", "-"}
    assert nobody["events behind"] == nobody["dead letters"] == "unknown"
    idle = look(a={LAG: {("0",): 0.0}})
    one = shown(Look(idle.found, later({}, {"g:1": {}}, 1.0)))
    assert (one["workers"], one["events behind"]) == ("1", "0 in 1 partitions")
    assert (one["dead letters"], one["breakers open"], one["quotas used"]) == ("0", "none", "none")
    assert one["requests answered"] == one["tenants, appends"] == "none"


def test_what_models_cost_today_is_shown_also_while_no_worker_reports() -> None:
    assert shown(Look(cost=12.5))["model cost today"] == "12.5000"
    assert shown(look(a=folded(1)))["model cost today"] == "unknown", "Redis did not say"


def test_the_tenants_that_append_most_are_named_over_all_gateways() -> None:
    def appended(acme: float, nord: float, quiet: float) -> Values:
        return {APPENDED: {("acme",): acme, ("nord",): nord, ("quiet",): quiet}}

    first = later({}, reported(g=appended(5, 7, 9), h=appended(100, 0, 0)), 0.0)
    assert shown(Look({}, first))["tenants, appends"] == "none"
    now = later(first, reported(g=appended(25, 57, 9), h=appended(170, 0, 0)), EVERY)
    assert shown(Look({}, now))["tenants, appends"] == "acme 9.0/s, nord 5.0/s"


def test_requests_for_summaries_are_counted_by_outcome_and_reason() -> None:
    answered = {
        COMPACTIONS: {
            ("budget", "extractive", "made"): 11.0,
            ("budget", "cheap", "made"): 1.0,
            ("idle", "cheap", "not_due"): 2.0,
        }
    }
    failed = {COMPACTIONS: {("budget", "cheap", "failed"): 3.0}}
    assert shown(look(a=answered, b=failed))["requests answered"] == (
        "failed (budget) 3, made (budget) 12, not due (idle) 2"
    )
