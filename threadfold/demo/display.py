"""What a person sees: a live table on a terminal, plain lines anywhere else. Everything shown was
measured a moment ago.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from threadfold.demo.watch import Gauge

PLAIN_EVERY = 2.0
SAMPLE_EVERY = 10.0


@dataclass
class Progress:
    """The measured state of a run; tokens and events as named, ``rate`` in events applied a second
    over the last seconds.
    """

    total: int = 0
    appended: int = 0
    applied: int = 0
    rate: float = 0.0
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


class Display(ABC):
    """Where the demo shows itself; use as a context manager."""

    @abstractmethod
    def say(self, text: str) -> None:
        """A line that stays."""

    @abstractmethod
    def table(self, title: str, rows: list[tuple[str, str]]) -> None:
        """A table that stays."""

    @abstractmethod
    def update(self, progress: Progress) -> None:
        """Show progress; called several times a second."""

    def quiet(self) -> None:
        """Stop showing progress; lines need no end."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.quiet()


class Plain(Display):
    """Lines, for pipes and files."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = self._last_sample = 0.0
        self._shown = ""

    def say(self, text: str) -> None:
        self._print(text)

    def table(self, title: str, rows: list[tuple[str, str]]) -> None:
        self._print(title)
        wide = max(len(name) for name, _ in rows)
        for name, value in rows:
            self._print(f"  {name:<{wide}}  {value}")

    def update(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._last >= PLAIN_EVERY:
            self._last = now
            self._print(
                "  ".join(
                    [
                        f"{now - progress.began:5.1f} s",
                        *(f"{name} {value}" for name, value in rows_of(progress)),
                    ]
                )
            )
        if (
            progress.sample
            and progress.sample != self._shown
            and now - self._last_sample >= SAMPLE_EVERY
        ):
            self._last_sample, self._shown = now, progress.sample
            self._print(f"         the subscriber got {progress.sample_of}: {progress.sample}")

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class OnTerminal(Display):
    """A table that is drawn anew in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._shown = ""
        self._shown_of = ""
        self._changed = 0.0

    def say(self, text: str) -> None:
        self._console.print(Text(text))

    def table(self, title: str, rows: list[tuple[str, str]]) -> None:
        table = Table(title=title, title_justify="left", show_header=False)
        for row in rows:
            table.add_row(*row)
        self._console.print(table)

    def update(self, progress: Progress) -> None:
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(self._draw(progress), refresh=True)

    def _draw(self, progress: Progress) -> Group:
        now = time.monotonic()
        if progress.sample != self._shown and now - self._changed > 2.5:  # long enough to be read
            self._shown, self._shown_of, self._changed = progress.sample, progress.sample_of, now
        table = Table.grid(padding=(0, 2))
        for name, value in rows_of(progress):
            table.add_row(Text(name, style="cyan"), value)
        bar = Table.grid()
        bar.add_row(ProgressBar(total=max(1, progress.total), completed=progress.applied, width=60))
        parts: list[RenderableType] = [bar, table]
        if self._shown:
            parts.append(
                Panel(
                    Text(self._shown),
                    title=f"the subscriber got {self._shown_of}",
                    title_align="left",
                )
            )
        return Group(*parts)

    def quiet(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def rows_of(p: Progress) -> list[tuple[str, str]]:
    """The named numbers of a progress, in the order they are shown."""
    rows = [
        ("appended", f"{p.appended:,} of {p.total:,}"),
        ("applied", f"{p.applied:,}"),
        ("events/s", f"{p.rate:,.0f}"),
        (
            "windows",
            f"{p.windows:,}, {p.within:,} within their budget, the others wait for a summary",
        ),
    ]
    if p.fullest is not None:
        g = p.fullest
        rows.append(
            (
                "fullest",
                (
                    f"{p.fullest_name}: tail {g.tail:,} of {g.budget:,} tokens ({g.share:.0%}),"
                    f" render {g.render:,} of {g.ceiling:,}"
                ),
            )
        )
    if p.biggest is not None:
        rows.append(("biggest render", f"{p.biggest.render:,} of {p.biggest.ceiling:,}"))
    return [
        *rows,
        ("summaries due", f"{p.due}"),
        ("accepted", f"{p.accepted:,}"),
        ("received", f"{p.received:,}"),
    ]


def make_display(console: Console) -> Display:
    """A live display on a terminal, else a plain one."""
    return OnTerminal(console) if console.is_terminal else Plain(console)
