"""Prometheus' text format, read."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


def read(page: bytes) -> dict[str, dict[tuple[str, ...], float]]:
    """The samples of a page by their names and the values of their labels."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found
