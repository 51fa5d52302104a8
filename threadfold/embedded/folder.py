"""A data folder that one stack at a time may use, and that only its owner can read."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

from projections.errors import DataFolderInUse

LOCK_FILE = "threadfold.lock"

HANDOVER = 20.0
"""Seconds to wait for the servers of a stack whose own process ended: their guards stop them."""


def make_private(path: Path, own: Collection[str] | None = None) -> str:
    """Make a folder that only its owner can read, and close one that others can, unless it holds
    folders that are not among ``own``: then it is a folder of something else as well.

    Returns a sentence about an existing folder that was open to others: that it is closed now, or
    why it is not; empty if nothing had to be done. Raises OSError if the folder cannot be made.
    """
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & 0o077:
        return ""
    if mode & stat.S_ISVTX:  # like /tmp: others have their own things there
        return (
            f"{path} is shared with other users, so it stays open to them (mode {mode:o}); only"
            " new files in it are private"
        )
    if own is not None and any(x.is_dir() and x.name not in own for x in path.iterdir()):
        return (
            f"{path} has folders of other programs, so it stays open to other users (mode"
            f" {mode:o}); only new files in it are private"
        )
    try:
        path.chmod(0o700)
    except OSError as error:
        return (
            f"other users can read {path} (mode {mode:o}), and that cannot be changed:"
            f" {error.strerror}"
        )
    return f"other users could read {path} (mode {mode:o}); now only its owner can (mode 700)"


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, in one step: it is there whole, or as before."""
    part = path.with_suffix(".part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


class DataFolder:
    """A folder with a lock that ends with the processes that have it.

    The lock is ``flock`` on ``threadfold.lock`` in the folder, so a crash leaves nothing to clean.
    Servers that inherit ``descriptor`` have the lock, too: if the owner dies, the folder is free
    when its last server has ended, so two Kafkas never use it at once. The pid in the file is only
    for error messages. Not for network file systems without ``flock``.
    """

    def __init__(
        self, path: Path, *, temporary: bool = False, own: Collection[str] | None = None
    ) -> None:
        """Args: ``own`` are folders that it may hold and be closed to others; None: any."""
        self.path = path
        self._own = own
        self.is_temporary = temporary
        self.note = ""
        """Once acquired: what :func:`make_private` says of the folder."""
        self._descriptor: int | None = None

    @classmethod
    def temporary(cls) -> DataFolder:
        """Return a fresh folder in the system's temporary folder, removed on release (not if this
        process is killed).
        """
        return cls(Path(tempfile.mkdtemp(prefix="threadfold-")), temporary=True)

    @property
    def descriptor(self) -> int:
        """The lock's descriptor, for children to inherit; raises RuntimeError without the lock."""
        if self._descriptor is None:
            raise RuntimeError(f"the folder {self.path} is not locked")
        return self._descriptor

    def acquire(self, *, handover: float = HANDOVER) -> None:
        """Create the folder if need be and take its lock.

        Raises DataFolderInUse: at once when its holder lives, after ``handover`` seconds when the
        holder is dead but its servers are not, and when the folder cannot be made or written to.
        """
        try:
            self.note = make_private(self.path, self._own)
            descriptor = os.open(
                self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise DataFolderInUse(
                f"The data folder {self.path} cannot be used: {error.strerror}; name another one."
            ) from error
        try:
            self._lock(descriptor, time.monotonic() + handover)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _lock(self, descriptor: int, deadline: float) -> None:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                written = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
                holder = int(written) if written.isdigit() else 0
                if holder and _alive(holder):
                    raise DataFolderInUse(
                        f"The data folder {self.path} is in use by process {holder}; stop it or"
                        " name another folder."
                    ) from error
                if time.monotonic() >= deadline:
                    raise DataFolderInUse(
                        f"The data folder {self.path} is still in use by servers that process"
                        f" {written or '?'} left behind; stop them or name another folder."
                    ) from error
                time.sleep(0.05)
            else:
                return

    def release(self) -> None:
        """Release the lock and remove a temporary folder. It can be repeated."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self.is_temporary:
            shutil.rmtree(self.path, ignore_errors=True)

    def __enter__(self) -> DataFolder:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
