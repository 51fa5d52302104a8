"""What the embedded servers have in common: a guarded process on a free port, started until it
answers, stopped in order.
"""

from __future__ import annotations

import errno
import math
import re
import threading
import time
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from projections.errors import EmbeddedUnavailable
from threadfold.embedded.folder import make_private
from threadfold.embedded.ports import HOST
from threadfold.embedded.process import GuardedProcess, Lifecycle, last_lines, rotate_log

POLL = 0.03
"""Seconds between two probes of a starting server."""

ATTEMPTS = 4
"""Starts before giving up, if another process takes the free port each time."""

TAIL_LINES = 8
_FRAME = re.compile(r"\s+(at |\.\.\. \d+ more)")
"""A line of a Java traceback: it says nothing to whoever runs the server."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


class EmbeddedServer(Lifecycle):
    """A real server as a guarded child on 127.0.0.1, with its data and log in a folder of its own.

    ``hold`` are descriptors that the server inherits, such as the data folder's lock. ``password``
    is what its clients log in with, the same over restarts; empty: anybody on this machine can.
    ``start`` and
    ``stop`` can be repeated; ``stop`` may be called from another thread while ``start`` waits,
    which then raises EmbeddedUnavailable.
    """

    name = "server"
    grace = 15.0
    """Seconds between SIGTERM and SIGKILL on ``stop``."""

    def __init__(
        self,
        data: Path,
        *,
        port: int | None,
        hold: Sequence[int] = (),
        timeout: float = 60.0,
        password: str = "",
    ) -> None:
        self.data = data.absolute()
        self.log = self.data / f"{self.name}.log"
        self.wanted_port = port
        self.hold = tuple(hold)
        self.timeout = timeout
        self.password = password
        self.port: int | None = None
        self.note = ""
        """What the last start did that whoever runs the server should know; mostly empty."""
        self._process: GuardedProcess | None = None
        self._stopped = threading.Event()

    @abstractmethod
    def _launch(self, port: int | None) -> tuple[int, GuardedProcess]:
        """Start the server on ``port`` or a free one; returns the port and the process."""

    @abstractmethod
    def _answers(self, port: int, process: GuardedProcess) -> bool:
        """Tell whether this very server answers on the port."""

    @property
    def address(self) -> str:
        """``127.0.0.1:port``; raises RuntimeError when the server was not started."""
        if self.port is None:
            raise RuntimeError(f"the embedded {self.name} was not started")
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The server's own process id; raises RuntimeError when it was not started."""
        return self._started().pid

    @property
    def guard_pid(self) -> int:
        """The process id of the server's guard; raises RuntimeError when it was not started."""
        return self._started().guard_pid

    def _started(self) -> GuardedProcess:
        if self._process is None:
            raise RuntimeError(f"the embedded {self.name} was not started")
        return self._process

    def poll(self) -> int | None:
        """Return None while the server runs (or never ran), else its exit code."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start the server; returns when it answers. Does nothing if it runs.

        Raises EmbeddedUnavailable when it cannot be started, ends, or does not answer within
        ``timeout`` seconds; the message has the last lines of the log.
        """
        if self._process is not None and self._process.poll() is None:
            return
        self._stopped.clear()
        self.note = ""
        try:
            make_private(self.data)
            rotate_log(self.log)
        except OSError as error:
            raise self._unusable(error) from error
        try:
            for attempt in range(1, ATTEMPTS + 1):
                before = self.log.stat().st_size if self.log.exists() else 0
                self.port, self._process = self._launch(self.wanted_port)
                if self._wait(self.port, self._process, before, last=attempt == ATTEMPTS):
                    return
        except BaseException as error:
            self.stop()
            if isinstance(error, OSError):
                raise self._unusable(error) from error
            raise

    def _unusable(self, error: OSError) -> EmbeddedUnavailable:
        remedy = "free disk space there" if error.errno in _FULL else "make it writable"
        return EmbeddedUnavailable(
            f"The embedded {self.name} cannot use {self.data}: {error.strerror}; {remedy} or choose"
            " another data folder."
        )

    def _wait(self, port: int, process: GuardedProcess, before: int, *, last: bool) -> bool:
        """Wait for an answer; False when it ended, and another try may help: another process had
        the free port, or the server's data were mended.
        """
        deadline = time.monotonic() + self.timeout
        while not self._answers(port, process):
            if self._stopped.is_set():
                raise EmbeddedUnavailable(f"The embedded {self.name} was stopped while it started.")
            code = process.poll()
            if code is not None:
                said = self._written_since(before)
                taken = self.wanted_port is None and "Address already in use" in said
                if not last and (taken or self._mend(code, said)):
                    return False
                raise EmbeddedUnavailable(
                    f"The embedded {self.name} ended with exit code {code} while starting."
                    f" {self._remedy(said)}{self._tail(before)}"
                )
            if time.monotonic() > deadline:
                raise EmbeddedUnavailable(
                    f"The embedded {self.name} did not answer in {self.timeout:g} s."
                    f" {self._tail(before)}"
                )
            time.sleep(POLL)
        return True

    def _mend(self, code: int, said: str) -> bool:
        """Do what helps a server that ended with this exit code and these words in its log; False:
        nothing does.
        """
        del code, said
        return False

    def _remedy(self, said: str) -> str:
        """A sentence on what helps a server that ended with these words in its log, and a space;
        empty: nothing is known.
        """
        del said
        return ""

    def stop(self, within: float = math.inf) -> None:
        """Stop the server, after ``grace`` seconds, or ``within`` if that is less, by force; a
        no-op if it does not run.
        """
        self._stopped.set()
        if self._process is not None:
            self._process.stop(min(self.grace, within))

    def kill(self) -> None:
        """End the server with SIGKILL, as a crash would; for tests of what a crash does."""
        self._stopped.set()
        if self._process is not None:
            self._process.kill()

    def _written_since(self, offset: int) -> str:
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(offset)
            return file.read(1 << 20).decode(errors="replace")

    def _tail(self, since: int = 0) -> str:
        lines = last_lines(self.log, since=since)
        last = "\n  ".join([line for line in lines if not _FRAME.match(line)][-TAIL_LINES:])
        return (
            f"See {self.log}; its last lines:\n  {last}"
            if last
            else f"Its log {self.log} is empty."
        )
