"""Prometheus expressions: which metrics and labels they name that do not exist."""

from __future__ import annotations

import re

from streams.metrics.declared import METRICS


def unknown_metrics(expression: str) -> set[str]:
    """The metrics of ours that the expression names and nobody declares."""
    known = {metric.name for metric in METRICS if metric.kind != "histogram"} | {
        f"{metric.name}{part}"
        for metric in METRICS
        if metric.kind == "histogram"
        for part in ("_bucket", "_count", "_sum")
    }
    return set(re.findall(r"threadfold_\w+", expression)) - known


def unknown_labels(expression: str) -> set[str]:
    """Labels by which the expression groups or selects and that none of its metrics has; those that
    Prometheus adds are known.
    """
    named = set(re.findall(r"threadfold_\w+", expression))
    labels = {"le", "job", "instance", "namespace", "pod"}.union(
        *(
            metric.labels
            for metric in METRICS
            if any(name.startswith(metric.name) for name in named)
        )
    )
    grouped = ",".join(re.findall(r"\b(?:by|on) \(([^)]*)\)", expression))
    selected = re.findall(r"(\w+)(?:=~|=|!=)\"", expression)
    return {label.strip() for label in [*grouped.split(","), *selected]} - labels - {""}
