"""The guard: a small process that stands between threadfold and a server, and never lets the server
outlive its owner.

Run as a script (``python -I -S guard.py``) or a module: ``python -m threadfold.embedded.guard
[options] -- COMMAND...``. It holds the read end of a pipe whose only write end is the owner's.
However the owner goes, SIGKILL included, the kernel closes the write end; the guard reads
end-of-file, sends the server SIGTERM, after a grace SIGKILL, and exits with it. The other way
round, a killed guard takes its server along (Linux: PR_SET_PDEATHSIG; elsewhere the owner notices
and kills the server's group).

Standard library only, and little of it: the guard starts in a few tens of milliseconds. The owner's
side is :class:`threadfold.embedded.process.GuardedProcess`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

ORPHAN_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL when the owner ended without naming a grace."""

PARENT_CHECK = 1.0
"""Seconds between looks at the parent's pid: the second line, for an owner whose forked children
hold the pipe open.
"""

_PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>


class _Options:
    """The owner's options: descriptors to inherit, the owner's pid, and the command."""

    def __init__(self, arguments: list[str]) -> None:
        self.control: int | None = None
        self.status: int | None = None
        self.parent: int | None = None
        rest = list(arguments)
        while rest and rest[0] != "--":
            if (
                len(rest) < 2
                or rest[0] not in ("--control", "--status", "--parent")
                or not rest[1].isdigit()
            ):
                raise SystemExit(
                    f"guard: {rest[0]} is not an option with a number; use: guard [options] --"
                    " COMMAND..."
                )
            setattr(self, rest[0][2:], int(rest[1]))
            rest = rest[2:]
        self.command = rest[1:]
        if not self.command:
            raise SystemExit("guard: no command after --")


def _die_with_parent(guard: int) -> None:
    """Ask Linux to kill this process when its parent, the guard, dies; a no-op elsewhere."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if (
        os.getppid() != guard
    ):  # the guard died between fork and prctl, so the signal will never come
        os._exit(1)


def _spawn(options: _Options) -> int:
    """Fork and exec the command in a process group of its own; returns its pid. Writes to
    ``status`` if the exec fails.
    """
    guard = os.getpid()
    child = os.fork()
    if child:
        # Both sides set it, so that it is set whichever comes first.
        with contextlib.suppress(OSError):
            os.setpgid(child, child)
        return child
    try:
        os.setpgid(0, 0)
        for number in (
            signal.SIGTERM,
            signal.SIGINT,
            signal.SIGHUP,
            signal.SIGCHLD,
            signal.SIGPIPE,
        ):
            signal.signal(number, signal.SIG_DFL)
        _die_with_parent(guard)
        os.execvp(options.command[0], options.command)
    except OSError as error:
        message = f"error {error.strerror}\n".encode()
        os.write(2 if options.status is None else options.status, message)
    finally:
        os._exit(127)


def _kill(child: int, number: int) -> None:
    """Signal the child's process group; does nothing if it has ended."""
    try:
        os.killpg(child, number)
    except (ProcessLookupError, PermissionError):  # macOS answers EPERM for a group of zombies
        return


def _exit_code(status: int) -> int:
    """Return the shell's form of a wait status: the exit code, or 128 + the signal's number."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


class _Watch:
    """Waits for the first of: the child's end, the owner's word or end, a signal."""

    def __init__(self, options: _Options) -> None:
        self.control = options.control
        self.parent = options.parent
        self.stop_requested = False
        self.reader, writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, *_: object) -> None:
        self.stop_requested = True

    def sleep(self, seconds: float, *, control: bool) -> float | None:
        """Sleep up to ``seconds``; returns a grace in seconds once the child must stop."""
        watched = [self.reader]
        if control and self.control is not None:
            watched.append(self.control)
        ready, _, _ = select.select(watched, [], [], max(0.0, seconds))
        if self.reader in ready:
            os.read(self.reader, 4096)
        if self.stop_requested:
            return ORPHAN_GRACE
        if self.control in ready and self.control is not None:
            words = os.read(self.control, 64).decode(errors="replace").split()
            return float(words[1]) if len(words) == 2 and words[0] == "stop" else ORPHAN_GRACE
        if self.parent is not None and os.getppid() != self.parent:
            return ORPHAN_GRACE
        return None


def _reap(child: int) -> int | None:
    """Return the child's exit code if it has ended."""
    pid, status = os.waitpid(child, os.WNOHANG)
    return _exit_code(status) if pid == child else None


def _run(child: int, watch: _Watch) -> int:
    """Stay until the child has ended, by itself or because it had to; returns its exit code."""
    grace: float | None = None
    while grace is None:
        code = _reap(child)
        if code is not None:
            return code
        grace = watch.sleep(PARENT_CHECK, control=True)
    _kill(child, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while (left := deadline - time.monotonic()) > 0:
        code = _reap(child)
        if code is not None:
            return code
        watch.sleep(min(left, PARENT_CHECK), control=False)
    _kill(child, signal.SIGKILL)
    return _exit_code(os.waitpid(child, 0)[1])


def main(arguments: list[str]) -> int:
    """Run the command under guard; returns its exit code (128 + n when signal n ended it)."""
    options = _Options(arguments)
    for descriptor in (options.control, options.status):
        if descriptor is not None:
            os.set_inheritable(descriptor, False)
    watch = _Watch(options)
    child = _spawn(options)
    if options.status is not None:
        os.write(options.status, f"pid {child}\n".encode())
        os.close(options.status)
    code = _run(child, watch)
    _kill(child, signal.SIGKILL)  # what the child itself had started and left behind
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
