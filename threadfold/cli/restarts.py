"""One process that is kept running: when it ends, or cannot be started, it is started again after
pauses that grow, for as long as it takes.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path

from projections.errors import ThreadfoldError
from threadfold.embedded.process import last_lines

BACK_OFF = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds before each restart in a row of one process; the last one repeats."""
STEADY = 60.0
"""Seconds of running after which the back-off begins anew."""
LITTLE_SPACE = 16 << 20
"""Bytes left on a disk below which it is named as the cause."""
LONGEST_LINE = 600
SIGNALLED = 128
"""Added to a signal's number in the exit code of a process that it ended."""


class Kept:
    """One process and what became of it.

    ``launch`` starts it: it may take long, raises when it cannot, and is called in a thread of the
    pool. ``poll`` returns its exit code, None while it runs. For one thread.
    """

    def __init__(
        self, name: str, log: Path, launch: Callable[[], None], poll: Callable[[], int | None]
    ) -> None:
        self.name = name
        self.log = log
        self.deaths = 0
        """How often in a row it ended or could not be started."""
        self.code: int | None = None
        """Its last exit code."""
        self._launch = launch
        self._poll = poll
        self._started = time.monotonic()
        self._again_at: float | None = None
        self._starting: Future[None] | None = None

    @property
    def is_starting(self) -> bool:
        """Whether a thread is just starting it."""
        return self._starting is not None and not self._starting.done()

    @property
    def is_down(self) -> bool:
        """Whether it ended and does not run again yet."""
        return self._starting is not None or self._again_at is not None

    def look(self, pool: Executor) -> str | None:
        """Start it again when its pause is over; returns one sentence when it ended or could not be
        started, with the cause and what is done about it.
        """
        now = time.monotonic()
        if self._starting is not None:
            return self._look_at_start(self._starting, now) if self._starting.done() else None
        if self._again_at is not None:
            if now >= self._again_at:
                self._again_at, self._starting = None, pool.submit(self._launch)
            return None
        code = self._poll()
        if code is None:
            return None
        self.code = code
        if now - self._started > STEADY:
            self.deaths = 0
        pause = self._pause(now)
        return (
            f"{self.name} ended with exit code {code} ({cause(self.log, code)}): starting it again"
            f" in {pause:g} s"
        )

    def _look_at_start(self, starting: Future[None], now: float) -> str | None:
        self._starting = None
        error = starting.exception()
        if error is None:
            self._started = now
            return None
        if not isinstance(error, ThreadfoldError | OSError):
            raise error
        pause = self._pause(now)
        return f"{self.name} cannot be started ({cause(self.log, 1)}): trying again in {pause:g} s"

    def _pause(self, now: float) -> float:
        self.deaths += 1
        pause = BACK_OFF[min(self.deaths, len(BACK_OFF)) - 1]
        self._again_at = now + pause
        return pause


def cause(log: Path, code: int) -> str:
    """Why a process ended with this exit code, as far as it shows: a full disk, a signal that left
    no time for a last word, else what its log says last.
    """
    free = shutil.disk_usage(log.parent).free
    if free < LITTLE_SPACE:
        return f"the disk of {log.parent} is full: {free / 1e6:.1f} MB are free"
    if code == SIGNALLED + signal.SIGKILL:
        return f"SIGKILL ended it; see {log}"
    return f"{last_message(log)}; see {log}"


def is_full(folder: Path) -> bool:
    """Whether the folder's disk has hardly any space left."""
    return shutil.disk_usage(folder).free < LITTLE_SPACE


def last_message(log: Path) -> str:
    """The last line of a log that has words and is not of a table; of a Java stack trace its first
    line.
    """
    for line in reversed(last_lines(log, 50)):
        text = line.strip()
        if any(map(str.isalnum, text)) and not text.startswith(("at ", "... ", "|", "+")):
            return text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]}…"
    return "its log is empty"
