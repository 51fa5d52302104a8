"""What keeps a memory store from being used, in plain words: a full disk, a folder that cannot be
written. None of it is damage: the files stay as they are.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from projections.errors import MemoryUnavailable

_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_FOLDER = (errno.EEXIST, errno.ENOTDIR)
_FAULTS = frozenset(
    (
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_NOMEM,
    )
)
_DAMAGE = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))
PROBE = 256 << 10
"""Bytes that a folder has to take."""


def code_of(error: Exception) -> int:
    """SQLite's number of an error; 0 where it has none."""
    # The low byte is the kind of error; the rest says more of it.
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def is_damaged(error: Exception) -> bool:
    """Whether it says that a file is no database, or not a whole one."""
    return code_of(error) in _DAMAGE


@contextmanager
def naming_faults(folder: Path | None) -> Iterator[None]:
    """Raise what keeps a folder from being used (None: that for temporary files) as
    :class:`MemoryUnavailable`; damage and our own mistakes stay as they are.
    """
    try:
        yield
    except OSError as error:
        raise MemoryUnavailable(_cause(error, folder), _shown(folder)) from error
    except sqlite3.Error as error:
        if code_of(error) not in _FAULTS:
            raise
        raise MemoryUnavailable(_cause(error, folder), _shown(folder)) from error


def try_folder(folder: Path) -> None:
    """See whether a store could be written in a folder, without making it; raises
    :class:`MemoryUnavailable`.
    """
    with naming_faults(folder):
        if folder.is_dir():
            probe = folder / f"probe.{os.getpid()}.part"
            try:
                probe.write_bytes(bytes(PROBE))
            finally:
                with suppress(OSError):
                    probe.unlink()
            return
        above = next(one for one in (folder, *folder.absolute().parents) if one.exists())
        if not above.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(above, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "it cannot be made there")


def _cause(error: OSError | sqlite3.Error, folder: Path | None) -> str:
    where = "the folder for temporary files" if folder is None else "its folder"
    if _is_full(error, folder):
        return f"the disk of {where} is full"
    if isinstance(error, OSError):
        if error.errno in _NO_FOLDER:
            return f"a file is in the place of {where}, or of one above it"
        why = error.strerror or type(error).__name__
    else:
        why = str(error)
    return f"{where} cannot be read or written ({why})"


def _is_full(error: OSError | sqlite3.Error, folder: Path | None) -> bool:
    if isinstance(error, OSError):
        return error.errno in _FULL
    if code_of(error) == sqlite3.SQLITE_IOERR and folder is not None:
        # What SQLite says where it cannot enlarge one of the files beside the database.
        with suppress(OSError):
            return os.statvfs(folder).f_bavail == 0
    return code_of(error) == sqlite3.SQLITE_FULL


def _shown(folder: Path | None) -> str:
    return "" if folder is None else str(folder)
