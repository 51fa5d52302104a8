"""The regression guard: what of a result moved against the committed one by more than the noise of
both runs.

Ratios against peers carry from one machine to another and are compared where there are any; else
our own value is, which says something only on the same kind of machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.harness import Result

RESULTS = Path(__file__).parent / "results"
LEAST_NOISE = 0.10
"""Two runs of the same code differ by this much on a shared machine without meaning anything."""


def path_of(figure: str) -> Path:
    """Where a figure's committed result is."""
    return RESULTS / f"{figure}.json"


def load(figure: str) -> dict[str, Any] | None:
    """The committed result of a figure, None without one."""
    path = path_of(figure)
    return json.loads(path.read_text()) if path.exists() else None


def save(result: Result) -> Path:
    """Write a result to be committed; returns where."""
    RESULTS.mkdir(exist_ok=True)
    path = path_of(result.figure)
    path.write_text(json.dumps(asdict(result), indent=2, ensure_ascii=False) + "\n")
    return path


def moved(result: Result, before: Mapping[str, Any] | None) -> list[str]:
    """What moved, one line each; the first line tells when nothing could be compared."""
    if before is None:
        return [f"{result.figure}: no committed result to compare with"]
    if before["conditions"]["parameters"] != result.conditions["parameters"]:
        return [
            f"{result.figure}: not compared, the committed result was measured with other"
            " parameters"
        ]
    lines = []
    for name in result.ratios:
        if name in before["ratios"]:
            spreads = (
                before["conditions"]["ratio_spread"].get(name),
                result.conditions["ratio_spread"].get(name),
            )
            lines += _line(
                f"{result.figure}: ours/{name}",
                before["ratios"][name],
                result.ratios[name],
                spreads,
                result,
            )
    if not result.ratios:
        spreads = (
            before["conditions"]["spread"].get("ours"),
            result.conditions["spread"].get("ours"),
        )
        where = "" if _same_machine(before, result) else " (measured on another kind of machine)"
        lines += _line(
            f"{result.figure}: ours, {result.unit}{where}",
            before["ours"],
            result.ours,
            spreads,
            result,
        )
    return lines or [f"{result.figure}: nothing moved by more than the noise"]


def _line(
    what: str, old: float, new: float, spreads: Sequence[Sequence[float] | None], result: Result
) -> list[str]:
    noise = max([LEAST_NOISE, *(relative(spread) for spread in spreads if spread)])
    change = new / old - 1 if old else 0.0
    if abs(change) <= noise:
        return []
    good = (change > 0) == (result.conditions["better"] == "higher")
    return [
        f"{what}: {old:g} → {new:g} ({change:+.0%}, noise {noise:.0%}):"
        f" {'better' if good else 'WORSE'}"
    ]


def relative(spread: Sequence[float]) -> float:
    """A spread's width as a share of its middle."""
    low, high = spread
    return (high - low) / ((high + low) / 2) if high + low else 0.0


def _same_machine(before: Mapping[str, Any], result: Result) -> bool:
    return all(
        before["conditions"].get(name) == result.conditions.get(name) for name in ("cores", "cpu")
    )
