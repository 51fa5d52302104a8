"""What a figure is, how its sides are run in turn, and how their rounds become one result.

A module of this folder that has a ``FIGURE`` is a figure. Its ``run`` measures our side and its
peers' one after another in every round, so that what the machine does meanwhile meets all of them;
the result is the median of the rounds, and a ratio is the median of the ratios that the rounds have
by themselves.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import pkgutil
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import benchmarks
from benchmarks.support.machine import conditions_of_now

Better = Literal["higher", "lower"]


@dataclass(frozen=True, slots=True)
class Args:
    """The options of a run: rounds (None: the figure's own number), whether small sizes do, and a
    file of dialogues for figure `recall`.
    """

    runs: int | None = None
    quick: bool = False
    dialogues: Path | None = None

    def rounds(self, usual: int = 3) -> int:
        """How many rounds to run; a quick run has one by default."""
        return self.runs if self.runs is not None else 1 if self.quick else usual


@dataclass(frozen=True, slots=True)
class Result:
    """A figure's line. ``ratios`` are ours/peer; ``conditions`` hold everything it was measured
    under.
    """

    figure: str
    ours: float
    unit: str
    peers: dict[str, float]
    ratios: dict[str, float]
    conditions: dict[str, Any]

    def line(self) -> str:
        """The result as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)


class Figure(Protocol):
    """One figure: its name (that of its module), the goal it is held to, and how it is measured."""

    name: str
    goal: str

    def run(self, args: Args) -> Result | Awaitable[Result]:
        """Measure all sides and return the result."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement of one side: its value, what it used (see ``support.meters``), and whatever
    else is worth a table.
    """

    value: float
    usage: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)


Side = Callable[[], Measured | Awaitable[Measured]]


class Rounds:
    """The measurements of all sides, round by round."""

    def __init__(self, names: Sequence[str]) -> None:
        self.taken: dict[str, list[Measured]] = {name: [] for name in names}

    def values(self, name: str) -> list[float]:
        """A side's values, in the order of the rounds."""
        return [measured.value for measured in self.taken[name]]

    def median(self, name: str) -> float:
        """The median of a side's values."""
        return statistics.median(self.values(name))

    def ratios(self, peer: str) -> list[float]:
        """Ours over the peer's, round by round."""
        return [a / b for a, b in zip(self.values("ours"), self.values(peer), strict=True)]

    def result(
        self,
        figure: str,
        unit: str,
        parameters: Mapping[str, Any],
        *,
        better: Better = "higher",
        more: Mapping[str, Any] | None = None,
    ) -> Result:
        """The medians and ratios, with the machine's and this run's conditions.

        Args:
            parameters: what decides the figure; only results of equal parameters are compared.
            better: whether a greater value of ours is the better one.
            more: further fields of ``conditions``.
        """
        peers = [name for name in self.taken if name != "ours"]
        ratios = {name: self.ratios(name) for name in peers}
        conditions = {
            **conditions_of_now(),
            "runs": len(self.taken["ours"]),
            "better": better,
            "parameters": dict(parameters),
            "spread": {name: span_of(self.values(name)) for name in self.taken},
            "ratio_spread": {name: span_of(values) for name, values in ratios.items()},
            "usage": {
                name: dict(taken[-1].usage) for name, taken in self.taken.items() if taken[-1].usage
            },
            **(more or {}),
        }
        return Result(
            figure,
            rounded(self.median("ours")),
            unit,
            {name: rounded(self.median(name)) for name in peers},
            {name: rounded(statistics.median(values)) for name, values in ratios.items()},
            conditions,
        )


async def interleave(sides: Mapping[str, Side], rounds: int) -> Rounds:
    """Run every side once a round; each round begins with another side, so that none always runs on
    a warm machine.
    """
    names = list(sides)
    found = Rounds(names)
    for i in range(rounds):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            begin = time.perf_counter()
            measured = sides[name]()
            if inspect.isawaitable(measured):
                measured = await measured
            found.taken[name].append(measured)
            say(
                f"round {i + 1}/{rounds} {name}: {rounded(measured.value)}"
                f" ({time.perf_counter() - begin:.1f} s in all)"
            )
    return found


def measure(figure: Figure, args: Args) -> Result:
    """Run a figure, whichever way it is written."""
    result = figure.run(args)
    return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result


async def _awaited(result: Awaitable[Result]) -> Result:
    return await result


def figures() -> dict[str, Figure]:
    """All figures of this folder by name."""
    found: dict[str, Figure] = {}
    for info in sorted(pkgutil.iter_modules(benchmarks.__path__), key=lambda info: info.name):
        if info.ispkg or info.name == "__main__":
            continue
        figure = getattr(importlib.import_module(f"benchmarks.{info.name}"), "FIGURE", None)
        if figure is not None:
            found[figure.name] = figure
    return found


def span_of(values: Sequence[float]) -> list[float]:
    """The least and the greatest value."""
    return [rounded(min(values)), rounded(max(values))]


def rounded(value: float) -> float:
    """Four significant digits: no figure here is better than that."""
    return float(f"{value:.4g}")


def percentile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` (0 to 1) of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def say(text: str) -> None:
    """Print progress on stderr; stdout is for results."""
    print(text, file=sys.stderr, flush=True)
