"""One process that is kept running: when it ends, or cannot be started, it is started again after
pauses that grow, for as long as it takes.
"""

from __future__ import annotations

import re
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
LAST_LINES = 400
"""Of a log, the lines that are searched for an error: stack traces are long."""
_LEVEL = re.compile(
    r"\b(ERROR|FATAL|CRITICAL)\b|\"level\":\"(error|critical)\"|^threadfold: "
    r"|^\d+:[A-Z] .* # (Fatal|(Warning: )?(Could not|Can't|Unable|Bad)) "
)
"""The last ones are Redis': its levels are signs."""
_EXCEPTION = re.compile(
    r"(Caused by: |Exception in thread \S+ )?([A-Za-z_]\w*\.)*\w*(Error|Exception|Panic)\b(:|$)"
)
_STACK = re.compile(rf"at |\.\.\. |Suppressed: |{_EXCEPTION.pattern}")
_SENTENCE_END = re.compile(r"\.(?:\s|$)")
SIGNALLED = 128
"""Added to a signal's number in the exit code of a process that it ended."""


class Kept:
    """One process and what became of it.

    ``launch`` starts it: it may take long, raises when it cannot, is called in a thread of the
    pool, and returns what is to be said of the start, if anything. ``poll`` returns its exit code,
    None while it runs. For one thread.
    """

    def __init__(
        self, name: str, log: Path, launch: Callable[[], str | None], poll: Callable[[], int | None]
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
        self._starting: Future[str | None] | None = None
        self._since = self._size()

    @property
    def is_starting(self) -> bool:
        """Whether a thread is just starting it."""
        return self._starting is not None and not self._starting.done()

    @property
    def is_down(self) -> bool:
        """Whether it ended and does not run again yet."""
        return self._starting is not None or self._again_at is not None

    @property
    def cause(self) -> str:
        """Why it ended the last time."""
        return cause(self.log, 1 if self.code is None else self.code, self._since)

    def look(self, pool: Executor) -> str | None:
        """Start it again when its pause is over; returns one sentence when it ended or could not be
        started, with the cause and what is done about it, or what its start says.
        """
        now = time.monotonic()
        if self._starting is not None:
            return self._look_at_start(self._starting, now) if self._starting.done() else None
        if self._again_at is not None:
            if now >= self._again_at:
                self._since = self._size()
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
            f"{self.name} ended with exit code {code} ({self.cause}): starting it again"
            f" in {pause:g} s"
        )

    def _look_at_start(self, starting: Future[str | None], now: float) -> str | None:
        self._starting = None
        error = starting.exception()
        if error is None:
            self._started = now
            return starting.result() or None
        if not isinstance(error, ThreadfoldError | OSError):
            raise error
        pause = self._pause(now)
        why = cause(self.log, 1, self._since, _SENTENCE_END.split(str(error), maxsplit=1)[0])
        return f"{self.name} cannot be started ({why}): trying again in {pause:g} s"

    def _size(self) -> int:
        """Where in its log begins what its next run says."""
        return self.log.stat().st_size if self.log.exists() else 0

    def _pause(self, now: float) -> float:
        self.deaths += 1
        pause = BACK_OFF[min(self.deaths, len(BACK_OFF)) - 1]
        self._again_at = now + pause
        return pause


def cause(log: Path, code: int, since: int = 0, otherwise: str = "") -> str:
    """Why a process ended with this exit code, as far as it shows: a full disk, a signal that left
    no time for a last word, else the last error in its log from byte ``since`` on; ``otherwise`` if
    the log has none.
    """
    free = shutil.disk_usage(log.parent).free
    if free < LITTLE_SPACE:
        return f"the disk of {log.parent} is full: {free / 1e6:.1f} MB are free"
    if code == SIGNALLED + signal.SIGKILL:
        return f"SIGKILL ended it; see {log}"
    if code == 0:  # it was asked to end: errors that it went on after are no cause
        return f"see {log}"
    error = last_error(log, since) or otherwise
    return f"{error}; see {log}" if error else f"see {log}"


def is_full(folder: Path) -> bool:
    """Whether the folder's disk has hardly any space left."""
    return shutil.disk_usage(folder).free < LITTLE_SPACE


def last_error(log: Path, since: int = 0) -> str:
    """The last line of a log from byte ``since`` on that says an error: one of a level from ERROR
    on, what a command of ours or an interpreter says at its end, or an exception with the line
    that announces it. Empty where there is none: the line that happens to be last explains nothing.
    """
    lines = [line.strip() for line in last_lines(log, LAST_LINES, since)]
    for at in range(len(lines) - 1, -1, -1):
        if _EXCEPTION.match(lines[at]):
            above = next((one for one in reversed(lines[:at]) if not _STACK.match(one)), "")
            raised = lines[at].removeprefix("Caused by: ")
            text = f"{above}: {raised}" if _LEVEL.search(above) else raised
        elif _LEVEL.search(lines[at]):
            text = lines[at]
        else:
            continue
        return text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]}…"
    return ""
