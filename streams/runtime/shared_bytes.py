"""Bytes that another process of this machine takes from where they lie, and puts what it made of
them in their place: neither a large body nor its events are copied by way of a pipe.
"""

from __future__ import annotations

import io
import os
import pickle
import secrets
import tempfile
from pathlib import Path
from typing import Any

from streams.runtime.process_pool import WorkerLost

TOKEN = 16
"""Bytes before the content. Who opens it by its name knows by them that it is this one: numbers of
file descriptors are used again.
"""
LARGE = 4096
"""Bytes from which on a value that is put back goes by the file, and not by the pipe."""


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
        fd = self._opened(self._token)
        try:
            content = os.pread(fd, self._size, TOKEN)
            os.ftruncate(fd, 0)
            _write(fd, _taken(self._token))
        finally:
            os.close(fd)
        if len(content) < self._size:
            raise _gone()
        return content

    def put_back(self, value: object) -> bytes:
        """Put the large bytes that a value holds in the place of the content, which was taken.
        Returns the rest of it, pickled: the owner makes the value of it (:meth:`received`).

        Raises:
            WorkerLost: its owner closed it.
        """
        fd = self._opened(_taken(self._token))
        try:
            os.lseek(fd, TOKEN, os.SEEK_SET)
            rest = io.BytesIO()
            _Putting(rest, fd).dump(value)
            return rest.getvalue()
        finally:
            os.close(fd)

    def received(self, rest: bytes) -> Any:
        """The value that was put back, for the owner; ``rest`` is what :meth:`put_back` gave."""
        return _Receiving(io.BytesIO(rest), self._fd).load()

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

    def _opened(self, head: bytes) -> int:
        """Its file; raises :class:`WorkerLost` unless it is there and begins with ``head``."""
        try:
            fd = os.open(self._path, os.O_RDWR)
        except OSError:
            raise _gone() from None
        if os.pread(fd, TOKEN, 0) == head:
            return fd
        os.close(fd)
        raise _gone()


class _Putting(pickle.Pickler):
    """Pickles a value without its large bytes: those are written to a file."""

    def __init__(self, rest: io.BytesIO, fd: int) -> None:
        super().__init__(rest, pickle.HIGHEST_PROTOCOL)
        self._fd = fd
        self._end = TOKEN

    def persistent_id(self, obj: Any) -> tuple[int, int] | None:
        if type(obj) is not bytes or len(obj) < LARGE:
            return None
        _write(self._fd, obj)
        begin, self._end = self._end, self._end + len(obj)
        return begin, len(obj)


class _Receiving(pickle.Unpickler):
    """The other way round."""

    def __init__(self, rest: io.BytesIO, fd: int) -> None:
        super().__init__(rest)
        self._fd = fd

    def persistent_load(self, pid: tuple[int, int]) -> bytes:
        begin, size = pid
        return os.pread(self._fd, size, begin)


def _taken(token: bytes) -> bytes:
    """What stands in the token's place once the content was taken."""
    return bytes(byte ^ 0xFF for byte in token)


def _write(fd: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _gone() -> WorkerLost:
    return WorkerLost("the process that was to read a large body ended: try again")
