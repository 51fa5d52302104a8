"""The owner's side of the guard: any command as a child that cannot outlive this process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from projections.errors import EmbeddedUnavailable
from threadfold.embedded import guard

KILL_MARGIN = 3.0
"""Seconds given to the guard beyond the grace before it is killed itself."""


LOG_LIMIT = 8 << 20
"""Bytes above which a start moves a log aside (one old log is kept)."""


def version_output(command: Sequence[str | Path], timeout: float) -> str | None:
    """What a command prints about its version on stdout and stderr; None if it does not run."""
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=timeout, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stderr + run.stdout if run.returncode == 0 else None


def rotate_log(log: Path) -> None:
    """Move a log that is over :data:`LOG_LIMIT` aside."""
    if log.exists() and log.stat().st_size > LOG_LIMIT:
        shutil.move(log, log.with_suffix(".log.1"))


def last_lines(log: Path, count: int = 0, since: int = 0) -> list[str]:
    """The last lines of a log, ``count`` or all of them, of its last 64 KiB and from byte ``since``
    on (the whole log if it is shorter: it was moved aside); empty if there is none.
    """
    if not log.exists():
        return []
    size = log.stat().st_size
    with log.open("rb") as file:
        file.seek(max(0, size - 65_536, since if since <= size else 0))
        return file.read().decode(errors="replace").splitlines()[-count:]


class Lifecycle(ABC):
    """Something that a ``with`` block starts and stops."""

    @abstractmethod
    def start(self) -> None:
        """Start it."""

    @abstractmethod
    def stop(self) -> object:
        """Stop it; does nothing if it does not run."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class GuardedProcess(Lifecycle):
    """A child command under guard: when this process ends, even by SIGKILL, the child is
    terminated.

    ``cmd`` is found on PATH; ``env`` replaces the environment (None: inherited); ``log`` is
    appended to with the command's output and error (None: inherited from this process);
    ``pass_fds`` are descriptors the command inherits, such as a lock. The command runs in a
    session of its own, so Ctrl-C at the terminal reaches only this process, which stops its
    children in the order it likes. Not safe to be used from several threads at once. One object
    starts once.
    """

    def __init__(
        self,
        cmd: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        cwd: Path | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.cmd = [str(part) for part in cmd]
        self.env = env
        self.log = log
        self.cwd = cwd
        self.pass_fds = tuple(pass_fds)
        self._guard: subprocess.Popen[bytes] | None = None
        self._control: int | None = None
        self._pid: int | None = None

    @property
    def pid(self) -> int:
        """The command's own pid (not the guard's); raises RuntimeError before ``start``."""
        if self._pid is None:
            raise RuntimeError("the process was not started")
        return self._pid

    @property
    def guard_pid(self) -> int:
        """The guard's pid; raises RuntimeError before ``start``."""
        if self._guard is None:
            raise RuntimeError("the process was not started")
        return self._guard.pid

    def start(self) -> None:
        """Start guard and command; returns once the command has been executed.

        Raises EmbeddedUnavailable when the command cannot be executed (missing, not executable) or
        the log not opened.
        """
        if self._guard is not None:
            raise RuntimeError("the process was already started")
        control_read, control_write = os.pipe()
        status_read, status_write = os.pipe()
        try:
            self._guard = self._launch(control_read, status_write)
            self._control = control_write
        except OSError as error:
            os.close(control_write)
            os.close(status_read)
            raise EmbeddedUnavailable(f"Could not start {self.cmd[0]}: {error}.") from error
        finally:
            os.close(control_read)
            os.close(status_write)
        with os.fdopen(status_read, "rb") as status:
            # Ends once both the guard and the exec have closed it.
            answer = status.read().decode(errors="replace")
        words = dict(line.partition(" ")[::2] for line in answer.splitlines())
        if "error" in words or "pid" not in words:
            reason = words.get("error", "its guard process ended")
            self.stop(0.0)
            raise EmbeddedUnavailable(f"Could not start {self.cmd[0]}: {reason}.")
        self._pid = int(words["pid"])

    def _launch(self, control: int, status: int) -> subprocess.Popen[bytes]:
        # As an isolated script: no site-packages to load, and no module of ours or of the working
        # folder shadows one of Python's.
        command = [sys.executable, "-I", "-S", str(Path(guard.__file__).resolve())]
        options = {"--control": control, "--status": status, "--parent": os.getpid()}
        command += [part for name, value in options.items() for part in (name, str(value))]
        command += ["--", *self.cmd]
        output: IO[bytes] | None = None
        if self.log is not None:
            output = self.log.open("ab")
        try:
            return subprocess.Popen(
                command,
                env=self.env,
                cwd=self.cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=(control, status, *self.pass_fds),
            )
        finally:
            if output is not None:
                output.close()

    def poll(self) -> int | None:
        """None while the command runs, else its exit code (128 + n after signal n)."""
        if self._guard is None:
            return None
        code = self._guard.poll()
        if code is None:
            return None
        self._release()
        if code < 0:  # the guard itself was killed: nothing of the command may stay
            self._kill_command()
            return 128 - code
        return code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code; raises TimeoutError after ``timeout`` s."""
        if self._guard is None:
            raise RuntimeError("the process was not started")
        try:
            self._guard.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{self.cmd[0]} still runs after {timeout} s") from error
        code = self.poll()
        assert code is not None
        return code

    def stop(self, grace: float = 10.0) -> int | None:
        """Send SIGTERM, after ``grace`` seconds SIGKILL; returns the exit code, None if it was
        never started.

        Returns when the command has ended. Does nothing if it ended or was stopped before.
        """
        if self._guard is None:
            return None
        if self.poll() is None and self._control is not None:
            try:
                os.write(self._control, f"stop {grace:.3f}\n".encode())
            except BrokenPipeError:
                grace = 0.0  # the guard is just ending; only its exit is left to wait for
            try:
                self._guard.wait(grace + KILL_MARGIN)
            except subprocess.TimeoutExpired:
                self._kill_command()
                os.kill(self._guard.pid, signal.SIGKILL)
                self._guard.wait()
        return self.poll()

    def kill(self) -> None:
        """End the command with SIGKILL and wait for its end; does nothing if it does not run."""
        if self._guard is not None and self.poll() is None:
            self._kill_command()
            self._guard.wait()
            self.poll()

    def _kill_command(self) -> None:
        if self._pid is None:
            return
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # macOS answers EPERM for a group of zombies
            return

    def _release(self) -> None:
        # In one step, so that two threads never close it twice.
        control, self._control = self._control, None
        if control is not None:
            os.close(control)
