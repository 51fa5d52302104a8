"""Alert rules and dashboard: each rule fires under its fault and not without it, and nothing asks
for a metric that does not exist.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.support.expressions import unknown_labels, unknown_metrics

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "deploy" / "helm" / "files" / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "helm" / "files" / "dashboard.json"
PAGE = ROOT / "docs" / "alerts.md"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="no promtool: install Debian's package prometheus"
)


@dataclass(frozen=True)
class Case:
    """Series of a stack with a fault and of one without: each a name and values, a minute each."""

    fault: dict[str, str]
    well: dict[str, str]
    labels: dict[str, str]
    """The labels that the alert has then, beside its severity."""
    at: str = "30m"


def one(series: str, fault: str, well: str, **labels: str) -> Case:
    return Case({series: fault}, {series: well}, labels)


PARTITION = {"partition": "3"}
CASES = {
    "ThreadfoldBehind": one(
        'threadfold_partition_seconds_behind{partition="3"}', "45x40", "0 45 2x40", **PARTITION
    ),
    "ThreadfoldPartitionStuck": Case(
        {
            'threadfold_partition_behind{partition="3"}': "812x40",
            'threadfold_events_total{partition="3",outcome="applied"}': "500x40",
        },
        {
            'threadfold_partition_behind{partition="3"}': "812x40",
            'threadfold_events_total{partition="3",outcome="applied"}': "500+60x40",
        },
        PARTITION,
    ),
    "ThreadfoldPartitionHalted": one(
        'threadfold_partition_halted{partition="3"}', "1x40", "_x40", **PARTITION
    ),
    "ThreadfoldPoison": one(
        'threadfold_dead_letters_total{kind="poison"}', "0x20 1x20", "7x40", kind="poison"
    ),
    "ThreadfoldHealing": one(
        'threadfold_partition_healing{partition="3"}', "1x40", "0x26 1x2 0x10", **PARTITION
    ),
    "ThreadfoldLogReplaced": one("threadfold_logs_replaced_total", "0x10 2x30", "0x40"),
    "ThreadfoldHealedOften": one("threadfold_healings_total", "0+4x40", "0x15 16x30"),
    "ThreadfoldFencedOften": one("threadfold_fenced_total", "0+3x40", "0x15 4x30"),
    "ThreadfoldDueForLong": Case(
        {
            'threadfold_conversations_due{partition="3"}': "4x60",
            'threadfold_summaries_total{outcome="accepted"}': "9x60",
        },
        {
            'threadfold_conversations_due{partition="3"}': "4x60",
            'threadfold_summaries_total{outcome="accepted"}': "9+1x60",
        },
        {},
        at="50m",
    ),
    "ThreadfoldSummariesFail": Case(
        {
            'threadfold_compactions_total{summarizer="a",outcome="failed",reason="budget"}': "0+1x40",
            'threadfold_compactions_total{summarizer="a",outcome="made",reason="budget"}': "0+2x40",
        },
        {
            'threadfold_compactions_total{summarizer="a",outcome="failed",reason="budget"}': "1x40",
            'threadfold_compactions_total{summarizer="a",outcome="made",reason="budget"}': "0+2x40",
        },
        {"summarizer": "a"},
    ),
    "ThreadfoldBreakerOpen": one(
        'threadfold_model_breaker_open{endpoint="a"}', "1x40", "0x29 1x20", endpoint="a"
    ),
    "ThreadfoldOverBudget": one(
        'threadfold_summaries_over_budget_total{tenant="acme"}', "0+1x40", "5x40", tenant="acme"
    ),
    "ThreadfoldRedisDown": one("threadfold_redis_up", "0x40", "1x40"),
    "ThreadfoldRedisRefusesWrites": one("threadfold_redis_refuses_writes", "1x40", "0x40"),
    "ThreadfoldRedisMemory": Case(
        {"threadfold_redis_used_bytes": "90x40", "threadfold_redis_maxmemory_bytes": "100x40"},
        {"threadfold_redis_used_bytes": "90x40", "threadfold_redis_maxmemory_bytes": "0x40"},
        {},
    ),
    "ThreadfoldErrors": Case(
        {
            'threadfold_http_requests_total{status="503"}': "0+3x40",
            'threadfold_http_requests_total{status="200"}': "0+50x40",
        },
        {
            'threadfold_http_requests_total{status="503"}': "9x40",
            'threadfold_http_requests_total{status="200"}': "0+50x40",
        },
        {},
    ),
    "ThreadfoldSlow": Case(
        {
            'threadfold_http_seconds_bucket{route="r",le="2.5"}': "0+90x40",
            'threadfold_http_seconds_bucket{route="r",le="5.0"}': "0+100x40",
            'threadfold_http_seconds_bucket{route="r",le="+Inf"}': "0+100x40",
        },
        {
            'threadfold_http_seconds_bucket{route="r",le="1.0"}': "0+100x40",
            'threadfold_http_seconds_bucket{route="r",le="+Inf"}': "0+100x40",
        },
        {"route": "r"},
    ),
    "ThreadfoldQuotaRefusals": one(
        'threadfold_quota_refusals_total{quota="events_per_second"}',
        "0+60x40",
        "60x40",
        quota="events_per_second",
    ),
    "ThreadfoldQuotaNearlyUsed": Case(
        {
            'threadfold_quota_used_ratio{gateway="a",tenant="acme",quota="tokens_per_minute"}': (
                "0.5x40"
            ),
            'threadfold_quota_used_ratio{gateway="b",tenant="acme",quota="tokens_per_minute"}': (
                "0.4x40"
            ),
        },
        {
            'threadfold_quota_used_ratio{gateway="a",tenant="acme",quota="tokens_per_minute"}': (
                "0.5x40"
            ),
            'threadfold_quota_used_ratio{gateway="b",tenant="other",quota="tokens_per_minute"}': (
                "0.9x40"
            ),
        },
        {"tenant": "acme", "quota": "tokens_per_minute"},
    ),
    "ThreadfoldMemoryNotFed": one(
        'threadfold_memory_fed{index="turns"}', "0x40", "1x26 0x2 1x20", index="turns"
    ),
    "ThreadfoldCertificateEnds": one(
        'threadfold_certificate_expiry_timestamp_seconds{certificate="kafka_ca"}',
        f"{13 * 86_400}x40",
        f"{16 * 86_400}x40",
        certificate="kafka_ca",
    ),
    "ThreadfoldDown": one(
        'up{job="threadfold-workers",instance="worker:9464"}',
        "0x40",
        "1x40",
        job="threadfold-workers",
        instance="worker:9464",
    ),
    "ThreadfoldNoMetrics": Case(
        {"threadfold_http_under_way": "2x40"},
        {"threadfold_http_under_way": "2x40", "threadfold_healings_total": "0x40"},
        {},
    ),
}

MORE = {
    # The gateways are gone, and what was known of them with them.
    "ThreadfoldNoMetrics": Case(
        {"threadfold_http_under_way": "2x20", "threadfold_healings_total": "0x40"},
        {"threadfold_http_under_way": "2x20 _x1 2x20", "threadfold_healings_total": "0x40"},
        {},
    ),
    # It stands for 6 minutes, after it was folded: and for 4.
    "ThreadfoldPartitionStuck": Case(
        {
            'threadfold_partition_behind{partition="3"}': "0x20 9x20",
            'threadfold_events_total{partition="3",outcome="applied"}': "0+60x20 1200x20",
        },
        {
            'threadfold_partition_behind{partition="3"}': "0x22 9x20",
            'threadfold_events_total{partition="3",outcome="applied"}': "0+60x22 1320x20",
        },
        PARTITION,
        at="26m",
    ),
    # The last summary was accepted 17 minutes ago: and 13.
    "ThreadfoldDueForLong": Case(
        {
            'threadfold_conversations_due{partition="3"}': "0x20 4x40",
            'threadfold_summaries_total{outcome="accepted"}': "0+1x20 20x40",
        },
        {
            'threadfold_conversations_due{partition="3"}': "0x24 4x40",
            'threadfold_summaries_total{outcome="accepted"}': "0+1x24 24x40",
        },
        {},
        at="37m",
    ),
    # Few summaries are due: the gauge is 0 from the end of a pause to the next trial.
    "ThreadfoldBreakerOpen": Case(
        {
            'threadfold_model_breaker_open{endpoint="a"}': " ".join(["1 0 0 0 0"] * 8),
            'threadfold_model_calls_total{endpoint="a",outcome="ok"}': "7x40",
        },
        {
            'threadfold_model_breaker_open{endpoint="a"}': "0x25 1 0x15",
            'threadfold_model_calls_total{endpoint="a",outcome="ok"}': "0+2x40",
        },
        {"endpoint": "a"},
    ),
}


def rules() -> dict[str, dict[str, Any]]:
    groups = YAML(typ="safe", pure=True).load(RULES)["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules().values())
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def test_every_expression_asks_for_metrics_and_labels_that_exist() -> None:
    found = list(expressions())
    assert len(found) > 40
    for expression in found:
        assert unknown_metrics(expression) == set(), expression
        assert unknown_labels(expression) == set(), expression


def test_a_metric_or_label_that_does_not_exist_is_noticed() -> None:
    assert unknown_metrics("rate(threadfold_event_total[5m])") == {"threadfold_event_total"}
    assert unknown_metrics("threadfold_batch_seconds") == {"threadfold_batch_seconds"}
    assert unknown_labels('sum by (part) (threadfold_partition_lag{tenant="a"})') == {
        "part",
        "tenant",
    }


def test_every_alert_has_a_severity_and_a_section_that_says_what_to_do() -> None:
    sections = dict(re.findall(r"^## (\w+)\n+(.+?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S))
    assert set(sections) == set(rules())
    for name, rule in rules().items():
        assert rule["labels"]["severity"] in ("info", "warning", "critical"), name
        assert f"`{rule['labels']['severity']}`" in sections[name], name
        assert "**Do:**" in sections[name], name


def test_there_is_a_case_for_every_alert() -> None:
    assert set(CASES) == set(rules())


def alerts_of(name: str, case: Case) -> list[dict[str, Any]]:
    """What promtool is to find: the alert with its labels under the fault, nothing without it."""
    rule = rules()[name]
    return [
        {
            "interval": "1m",
            "input_series": [{"series": s, "values": v} for s, v in series.items()],
            "alert_rule_test": [
                {
                    "eval_time": case.at,
                    "alertname": name,
                    "exp_alerts": [{"exp_labels": {**rule["labels"], **case.labels}}]
                    if fires
                    else [],
                }
            ],
        }
        for series, fires in ((case.fault, True), (case.well, False))
    ]


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None
    return subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, check=False)


def without_annotations(folder: Path) -> Path:
    """The rules without their annotations, whose texts a case would have to repeat."""
    yaml = YAML(typ="safe", pure=True)
    loaded = yaml.load(RULES)
    for group in loaded["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]
    path = folder / "rules.yml"
    path.write_text(json.dumps(loaded))
    return path


@needs_promtool
def test_prometheus_accepts_the_rules_and_the_texts_of_their_annotations() -> None:
    result = promtool("check", "rules", str(RULES))
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.long
@needs_promtool
def test_every_alert_fires_under_its_fault_and_not_without_it(tmp_path: Path) -> None:
    without_annotations(tmp_path)
    each = [*CASES.items(), *MORE.items()]
    cases = [test for name, case in each for test in alerts_of(name, case)]
    path = tmp_path / "cases.yml"
    path.write_text(json.dumps({"rule_files": ["rules.yml"], "tests": cases}))
    result = promtool("test", "rules", str(path))
    assert result.returncode == 0, result.stdout + result.stderr


@needs_promtool
def test_prometheus_can_read_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    named = [
        {"record": f"expression:{number}", "expr": expression}
        for number, expression in enumerate(expressions())
    ]
    path = tmp_path / "expressions.yml"
    path.write_text(json.dumps({"groups": [{"name": "all", "rules": named}]}))
    result = promtool("check", "rules", str(path))
    assert result.returncode == 0, result.stdout + result.stderr


@needs_promtool
def test_prometheus_accepts_the_configuration_of_the_compose_file(tmp_path: Path) -> None:
    text = (ROOT / "deploy" / "monitoring" / "prometheus.yml").read_text()
    path = tmp_path / "prometheus.yml"
    path.write_text(text.replace("/etc/prometheus/alerts.yml", str(RULES)))
    result = promtool("check", "config", str(path))
    assert result.returncode == 0, result.stdout + result.stderr
