"""The output of the demo: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Self

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from threadfold.demo.watch import Gauge

PLAIN_EVERY = 2.0
SAMPLE_EVERY, SAMPLE_ON_TERMINAL = 10.0, 2.5
"""Seconds that one summary is shown, at least."""


@dataclass
class Progress:
    """The measured state of a run; tokens and events as named, ``rate`` in events applied a second
    over the last seconds. ``sustained`` are events a second since the begin, at the last time when
    no summary was awaited.
    """

    total: int = 0
    appended: int = 0
    applied: int = 0
    rate: float = 0.0
    sustained: float = 0.0
    windows: int = 0
    within: int = 0
    fullest_name: str = ""
    fullest: Gauge | None = None
    biggest: Gauge | None = None
    renders: int = 0
    due: int = 0
    accepted: int = 0
    received: int = 0
    sample: str = ""
    sample_of: str = ""
    began: float = field(default_factory=time.monotonic)


class Display:
    """Shows a run on a console: a live table on a terminal, a line every two seconds elsewhere. Use
    it as a context manager.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._updated = self._changed = 0.0
        self._sample = self._sample_of = ""

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def table(self, title: str, rows: list[tuple[str, str]]) -> None:
        """Print a table that stays."""
        self.say(title)
        wide = max(len(name) for name, _ in rows)
        for name, value in rows:
            self.say(f"  {name:<{wide}}  {value}")

    def update(self, progress: Progress) -> None:
        """Show progress. It is called several times a second."""
        now, on_terminal = time.monotonic(), self._console.is_terminal
        sample_is_new = progress.sample != self._sample and now - self._changed >= (
            SAMPLE_ON_TERMINAL if on_terminal else SAMPLE_EVERY
        )
        if sample_is_new:
            self._sample, self._sample_of = progress.sample, progress.sample_of
            self._changed = now
        if on_terminal:
            self._draw(progress)
            return
        if now - self._updated >= PLAIN_EVERY:
            self._updated = now
            values = [f"{name} {value}" for name, value in rows_of(progress)]
            self.say("  ".join([f"{now - progress.began:5.1f} s", *values]))
        if sample_is_new:
            self.say(f"         the subscriber got {self._sample_of}: {self._sample}")

    def _draw(self, progress: Progress) -> None:
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        table = Table.grid(padding=(0, 2))
        for name, value in rows_of(progress):
            table.add_row(Text(name, style="cyan"), value)
        bar = ProgressBar(total=max(1, progress.total), completed=progress.applied, width=60)
        parts: list[RenderableType] = [Columns([bar]), table]
        if self._sample:
            title = f"the subscriber got {self._sample_of}"
            parts.append(Panel(Text(self._sample), title=title, title_align="left"))
        self._live.update(Group(*parts), refresh=True)

    def quiet(self) -> None:
        """Stop showing progress."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.quiet()


def rows_of(p: Progress) -> list[tuple[str, str]]:
    """The named numbers of a progress, in the order they are shown."""
    within = f"{p.within:,} within their budget, the others wait for a summary"
    rows = [
        ("appended", f"{p.appended:,} of {p.total:,}"),
        ("applied", f"{p.applied:,}"),
        ("events/s", f"{p.rate:,.0f}, summaries included {p.sustained:,.0f}"),
        ("windows", f"{p.windows:,}, {within}"),
    ]
    if p.fullest is not None:
        g = p.fullest
        tail = f"{p.fullest_name}: tail {g.tail:,} of {g.budget:,} tokens ({g.share:.0%})"
        rows.append(("fullest", f"{tail}, render {g.render:,} of {g.ceiling:,}"))
    if p.biggest is not None:
        rows.append(("biggest render", f"{p.biggest.render:,} of {p.biggest.ceiling:,}"))
    return [
        *rows,
        ("summaries due", f"{p.due}"),
        ("accepted", f"{p.accepted:,}"),
        ("received", f"{p.received:,}"),
    ]
