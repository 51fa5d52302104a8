"""Progress on stderr: a bar on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from threadfold.cli.common import say

EVERY = 5.0
"""Seconds between two plain lines."""


class Meter:
    """Shows progress each time it is called; the subclass says how."""

    def __init__(self, label: str, unit: str = "events") -> None:
        self.label = label
        self.unit = unit
        self.started = time.monotonic()

    def rate(self, done: int) -> float:
        """Units a second since the start."""
        return done / max(1e-3, time.monotonic() - self.started)

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Show that ``done`` of ``total`` units are done."""


class _Lines(Meter):
    def __init__(self, label: str, unit: str = "events") -> None:
        super().__init__(label, unit)
        self._printed = self.started

    def __call__(self, done: int, total: int, note: str = "") -> None:
        now = time.monotonic()
        if now - self._printed >= EVERY:
            self._printed = now
            say(
                f"{self.label}: {done} of {total} {self.unit},"
                f" {self.rate(done):.0f}/s{', ' + note if note else ''}"
            )


@contextmanager
def metered(label: str, unit: str = "events") -> Iterator[Meter]:
    """A meter for as long as the block runs."""
    if not sys.stderr.isatty():
        yield _Lines(label, unit)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None, note="")

        class _Bar(Meter):
            def __call__(self, done: int, total: int, note: str = "") -> None:
                shown = f"{self.rate(done):.0f} {self.unit}/s{', ' + note if note else ''}"
                bar.update(task, completed=done, total=total, note=shown)

        yield _Bar(label, unit)
