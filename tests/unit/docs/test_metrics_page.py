"""The page of metrics lists those that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streams.metrics.declared import METRICS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"


def row(name: str, kind: str, labels: tuple[str, ...], about: str) -> str:
    shown = ", ".join(f"`{label}`" for label in labels)
    return f"| `{name}` | {kind} | {shown} | {about} |"


@pytest.mark.parametrize("service", ["worker", "gateway", "tenants"])
def test_the_tables_of_the_page_are_the_declared_metrics(service: str) -> None:
    wanted = [
        row(metric.name, metric.kind, metric.labels, metric.help)
        for metric in METRICS
        if metric.service == service
    ]
    text = PAGE.read_text()
    table = "\n".join(wanted)
    assert f"\n{table}\n" in text, f"the table of the {service} is to be:\n{table}"


def test_the_page_has_no_other_metrics() -> None:
    found = re.findall(
        r"^\| `threadfold_\w+` \| (?:counter|gauge|histogram) \|", PAGE.read_text(), re.M
    )
    assert len(found) == len(METRICS)
