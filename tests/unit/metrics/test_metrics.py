"""What a process counts of itself, as Prometheus reads it."""

from __future__ import annotations

import math
import re
import shutil
import subprocess

import msgspec
import pytest

from streams.metrics.declared import (
    BATCH_SECONDS,
    COMPACTIONS,
    COST,
    DEAD_LETTERS,
    DUE,
    FENCED,
    IN_FLIGHT,
    METRICS,
    QUOTA_REFUSALS,
    QUOTA_USED,
    TOKENS,
    Service,
)
from streams.metrics.metrics import Metrics
from streams.metrics.reports import reported_page
from streams.metrics.top_labels import MOST, OTHER, TopLabels
from tests.support.metrics import read
from threadfold.quotas.quotas import KINDS


def test_counters_add_up_by_their_labels() -> None:
    metrics = Metrics()
    for _ in range(3):
        metrics.add(COMPACTIONS, "budget", "cheap", "made")
    metrics.add(COMPACTIONS, "idle", "cheap", "made", by=2)
    samples = read(metrics.page())["threadfold_compactions_total"]
    assert samples == {("made", "budget", "cheap"): 3, ("made", "idle", "cheap"): 2}


def test_what_was_never_counted_is_nothing_and_not_missing() -> None:
    samples = read(Metrics().page())
    assert samples["threadfold_fenced_total"] == {(): 0}
    assert "threadfold_compactions_total" not in samples


def test_gauges_are_read_when_a_page_is_made() -> None:
    metrics, calls = Metrics(), [0]
    metrics.read(IN_FLIGHT, lambda: {("cheap",): calls[0]})
    calls[0] = 7
    metrics.set(DUE, {("3",): 4})
    samples = read(metrics.page())
    assert samples["threadfold_model_calls_in_flight"] == {("cheap",): 7}
    metrics.set(DUE, {("4",): 1})
    assert read(metrics.page())["threadfold_conversations_due"] == {("4",): 1}


def test_a_histograms_buckets_grow_to_its_count() -> None:
    metrics = Metrics()
    for seconds in (0.0005, 0.001, 0.02, 0.3, 99):
        metrics.observe(BATCH_SECONDS, seconds, "fold")
    samples = read(metrics.page())
    buckets = samples["threadfold_batch_seconds_bucket"]
    by_bound = {float(labels[0]): count for labels, count in buckets.items()}
    assert by_bound[0.001] == 2 and by_bound[0.25] == 3 and by_bound[10] == 4
    assert by_bound[math.inf] == samples["threadfold_batch_seconds_count"]["fold",] == 5
    assert samples["threadfold_batch_seconds_sum"]["fold",] == pytest.approx(99.3215)


async def test_what_a_page_needs_from_elsewhere_is_asked_before() -> None:
    metrics = Metrics()

    async def ask() -> None:
        metrics.set(DUE, {("0",): 12})

    metrics.before(ask)
    await metrics.prepare()
    assert read(metrics.page())["threadfold_conversations_due"] == {("0",): 12}


def test_of_many_tenants_few_have_a_series_of_their_own() -> None:
    metrics = Metrics()
    for i in range(1_000):
        metrics.add_of_tenant(f"t{i}", {TOKENS: 10, COST: 0.5})
    samples = read(metrics.page())
    tokens, cost = (
        samples["threadfold_summary_tokens_total"],
        samples["threadfold_summary_cost_total"],
    )
    assert len(tokens) == len(cost) == MOST + 1
    assert sum(tokens.values()) == 10_000 and sum(cost.values()) == 500
    assert tokens[OTHER,] == (1_000 - MOST) * 10


def test_who_uses_much_more_than_the_least_takes_its_label_over() -> None:
    labels = TopLabels(2)
    assert [labels.of(name, units) for name, units in (("a", 10), ("b", 5), ("c", 9))] == [
        "a",
        "b",
        OTHER,
    ]
    assert labels.rotate() == [], "not for a little more"
    assert (labels.of("a", 10), labels.of("b", 2), labels.of("c", 9)) == ("a", "b", OTHER)
    assert labels.rotate() == ["b"]
    assert (labels.of("c"), labels.of("b")) == ("c", OTHER)


def test_labels_of_ever_more_names_take_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.metrics.top_labels.KNOWN", 5)
    labels = TopLabels(1)
    for i in range(100):
        labels.of(f"t{i}", i)
    assert labels.rotate() == ["t0"], "of the few that are remembered"


def test_names_and_help_follow_the_conventions() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"threadfold_[a-z]+(_[a-z]+)*", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.help.endswith(".") and bool(metric.bounds) == (metric.kind == "histogram")
    assert len({(metric.name, metric.service) for metric in METRICS}) == len(METRICS)


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool: install Debian's package prometheus"
)
@pytest.mark.parametrize("service", ["worker", "gateway", "tenants"])
def test_prometheus_own_tool_finds_nothing_wrong_with_a_page_that_has_every_metric(
    service: Service,
) -> None:
    metrics = Metrics(service)
    for metric in METRICS:
        if metric.service == service:
            labels = tuple("x" for _ in metric.labels)
            if metric.kind == "histogram":
                metrics.observe(metric, 1.0, *labels)
            else:
                metrics.set(metric, {labels: 1})
    page = metrics.page()
    assert len(read(page)) >= sum(metric.service == service for metric in METRICS)
    found = subprocess.run(
        ["promtool", "check", "metrics"], input=page, capture_output=True, check=False
    )
    # What the product makes are summaries; the tool means the kind of metric by that word.
    said = [line for line in (found.stdout + found.stderr).decode().splitlines() if line]
    assert [line for line in said if not line.endswith("not include type 'summary'")] == []
    assert found.returncode == (3 if said else 0)


def test_a_page_of_several_workers_says_whose_each_sample_is() -> None:
    reports = {}
    for name, made in (("a:1", 3), ("b:2", 4)):
        metrics = Metrics()
        metrics.add(COMPACTIONS, "budget", "cheap", "made", by=made)
        metrics.observe(BATCH_SECONDS, 0.01, "fold")
        reports[name] = msgspec.json.encode({m.name: found for m, found in metrics.samples()})
    reports["of another release"] = b'{"threadfold_new": "?"}'
    page = reported_page(reports, {})
    samples = read(page)
    assert samples["threadfold_compactions_total"] == {
        ("made", "budget", "cheap", "a:1"): 3,
        ("made", "budget", "cheap", "b:2"): 4,
    }
    assert samples["threadfold_fenced_total"] == {("a:1",): 0, ("b:2",): 0}
    assert page.count(b"# TYPE threadfold_batch_seconds histogram") == 1
    assert FENCED.help.encode() in page


def test_what_gateways_report_of_tenants_has_their_names_for_a_label() -> None:
    metrics = Metrics("tenants")
    metrics.set(QUOTA_USED, {("requests_per_second", "acme"): 0.5})
    report = msgspec.json.encode({m.name: found for m, found in metrics.samples()})
    page = reported_page({}, {"g:1": report, "g:2": report})
    assert read(page) == {
        "threadfold_quota_used_ratio": {
            ("g:1", "requests_per_second", "acme"): 0.5,
            ("g:2", "requests_per_second", "acme"): 0.5,
        }
    }


def test_a_counter_of_known_values_begins_at_zero_for_each() -> None:
    metrics = Metrics()
    kinds = {("record",): 0, ("poison",): 0, ("waiting",): 0}
    assert read(metrics.page())["threadfold_dead_letters_total"] == kinds
    metrics.add(DEAD_LETTERS, "poison", by=2)
    assert read(metrics.page())["threadfold_dead_letters_total"] == kinds | {("poison",): 2}


def test_the_known_quotas_are_those_that_are_leased() -> None:
    assert QUOTA_REFUSALS.known == tuple(KINDS)
