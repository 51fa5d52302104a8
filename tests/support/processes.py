"""Watching processes by pid, and waiting for a condition without sleeping blindly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody has reaped yet does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    if sys.platform.startswith("linux"):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
    else:
        state = subprocess.run(
            ["/bin/ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True
        ).stdout.strip()
    return bool(state) and not state.startswith("Z")


def freeze(pid: int) -> None:
    """Stop a process in its tracks; all its threads stand still when this returns. A signal alone
    reaches threads that run on a busy machine a moment later.
    """
    os.kill(pid, signal.SIGSTOP)
    if sys.platform.startswith("linux"):
        until(lambda: all(_state(task) in "TtZ" for task in Path(f"/proc/{pid}/task").iterdir()))


def _state(task: Path) -> str:
    """The state of a thread, ``Z`` for one that has ended."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def children(pid: int) -> list[int]:
    """The processes that a process has started, and that still run."""
    if sys.platform.startswith("linux"):
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            if parent == pid:
                found.append(int(stat.parent.name))
    else:
        rows = subprocess.run(
            ["/bin/ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True
        ).stdout.split("\n")
        found = [int(row.split()[0]) for row in rows if row.strip() and int(row.split()[1]) == pid]
    return [child for child in found if alive(child)]


def until(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    """Wait for the condition; fails the test if it does not come true within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"the condition did not come true in {seconds:g} s"
        time.sleep(0.02)
