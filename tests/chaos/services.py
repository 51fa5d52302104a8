"""A worker or a gateway as an orchestrator runs it: started again when it ends, ended by SIGTERM, its
memory watched.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import psutil

from threadfold.embedded.process import GuardedProcess, last_lines

LIMIT = 20.0
"""Seconds in which a service ends once it is told to."""
MEMORY = 600 << 20
"""Bytes that no service of a run may hold; one at rest holds a fourth of it."""
KILLED = 137
_WHERE = re.compile(r" at \S+| \(.*\)")
"""What differs in a line from one end to the next: addresses, and a client's own words."""


class Service:
    """One worker or gateway: its process now, and whether somebody wants it to run."""

    def __init__(self, name: str, command: list[str], env: dict[str, str], log: Path) -> None:
        self.name, self.command, self.env, self.log = name, command, env, log
        self.wanted = True
        self.not_before = 0.0
        self.frozen = False
        self.process: GuardedProcess | None = None
        self.ended: Counter[str] = Counter()
        """How often its processes ended without being told to, by exit code and last line; those
        that were killed do not count.
        """
        self.endings: list[float] = []
        """Seconds that it took to end, each time that it was told to."""
        self.peak = 0
        """The most bytes of memory that it held."""

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start a process in the place of the one that ended."""
        self.frozen = False
        process = GuardedProcess(
            [sys.executable, "-m", "threadfold.cli", *self.command], env=self.env, log=self.log
        )
        process.start()
        # Others ask for its pid meanwhile.
        self.process = process

    def note_end(self) -> None:
        """Note why its process ended."""
        code = self.process.poll() if self.process is not None else None
        if code not in (None, 0, KILLED):
            line = " ".join(last_lines(self.log, 1))
            self.ended[f"{code} ({_WHERE.sub('', line.removeprefix('threadfold: '))[:200]})"] += 1

    def kill(self) -> None:
        """End it with SIGKILL, frozen or not."""
        if self.process is not None:
            self.process.kill()

    async def end(self) -> None:
        """SIGTERM, and wait for its end; one that does not end in time is killed."""
        process = self.process
        if process is None or not self.running or self.frozen:
            return
        begun = time.monotonic()
        os.kill(process.pid, signal.SIGTERM)
        while time.monotonic() - begun < LIMIT + 2:
            if process.poll() is not None:
                break
            await asyncio.sleep(0.05)
        self.endings.append(time.monotonic() - begun)
        if process.poll() is None:
            process.kill()

    def measure(self) -> None:
        """Look at its memory."""
        if self.process is not None and self.running:
            try:
                self.peak = max(self.peak, psutil.Process(self.process.pid).memory_info().rss)
            except psutil.Error:
                return  # it has ended meanwhile

    def wrongs(self) -> list[str]:
        """What no service may do: end late, hold too much, or fail with an error that has no name."""
        late = [seconds for seconds in self.endings if seconds > LIMIT]
        found = [f"{self.name} did not end within {LIMIT:g} s of SIGTERM"] if late else []
        if self.peak > MEMORY:
            found.append(f"{self.name} held {self.peak >> 20} MiB")
        if count := self.tracebacks():
            found.append(f"{self.name} logged {count} tracebacks")
        return found

    def freeze(self) -> None:
        """SIGSTOP: it stands still in the middle of whatever it does."""
        if self.process is not None and self.running:
            os.kill(self.process.pid, signal.SIGSTOP)
            self.frozen = True

    def tracebacks(self) -> int:
        """How many tracebacks its processes logged."""
        return (
            self.log.read_text(errors="replace").count("Traceback (most recent call last)")
            if self.log.exists()
            else 0
        )

    def wake(self) -> None:
        """SIGCONT: it goes on where it stood, a zombie where somebody else has its partitions by
        now.
        """
        if self.process is not None and self.running:
            wake(self.process.pid)
            self.frozen = False


def wake(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return  # it has ended meanwhile: nothing to wake
