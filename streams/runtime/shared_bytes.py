"""Bytes that another process of this machine takes from where they lie: a large body is not copied
on its way to the process that reads it, and is freed before what was made of it comes back.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path
from typing import Any

from streams.runtime.process_pool import WorkerLost

TOKEN = 16
"""Bytes before the content. Who opens it by its name knows by them that it is this one: numbers of
file descriptors are used again.
"""


class SharedBytes:
    """Bytes in a file in memory (Linux; elsewhere in a temporary file). Whoever makes it writes it,
    then hands it to another process, and closes it in the end.
    """

    def __init__(self) -> None:
        self._token = secrets.token_bytes(TOKEN)
        self._size = 0
        if hasattr(os, "memfd_create"):
            self._fd = os.memfd_create("shared-bytes", os.MFD_CLOEXEC)
            self._path = f"/proc/{os.getpid()}/fd/{self._fd}"
        else:
            self._fd, self._path = tempfile.mkstemp()
        _write(self._fd, self._token)

    def __len__(self) -> int:
        """Bytes of the content."""
        return self._size

    def write(self, content: bytes) -> None:
        """Add to the content."""
        _write(self._fd, content)
        self._size += len(content)

    def take(self) -> bytes:
        """The content, which is not there any more afterwards.

        Raises:
            WorkerLost: it was taken before, or its owner closed it.
        """
        try:
            fd = os.open(self._path, os.O_RDWR)
        except OSError:
            raise _gone() from None
        try:
            if os.pread(fd, TOKEN, 0) != self._token:
                raise _gone()
            content = os.pread(fd, self._size, TOKEN)
            os.ftruncate(fd, 0)
        finally:
            os.close(fd)
        if len(content) < self._size:
            raise _gone()
        return content

    def close(self) -> None:
        """Free it; safe to repeat."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
            if not self._path.startswith("/proc/"):
                Path(self._path).unlink(missing_ok=True)

    def __getstate__(self) -> dict[str, Any]:
        """Another process finds it by its name, and does not own it."""
        return {"_token": self._token, "_size": self._size, "_path": self._path, "_fd": -1}


def _write(fd: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _gone() -> WorkerLost:
    return WorkerLost("the process that was to read a large body ended: try again")
