"""A database that follows a topic: what both the memory store and the index of turns are.

It has the offsets that were taken in, an index of words and one of vectors, in a file that only one
process writes, or in one that goes with it. All of it follows from the topic, so a file that is
damaged or of another version is begun anew.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

from projections.errors import Healing, MemoryUnavailable
from streams.memory import vector_index, word_index
from streams.memory.store_faults import is_damaged, naming_faults
from streams.memory.wipes import Wipes
from streams.memory.word_index import (
    begin_building,
    end_building,
    merge_words,
    transaction,
)

logger = logging.getLogger(__name__)
_TABLES = f"""
CREATE TABLE checkpoints (partition INTEGER PRIMARY KEY, at INTEGER NOT NULL);
CREATE TABLE unmerged (yes INTEGER PRIMARY KEY);
{word_index.TABLES}
{vector_index.TABLES}
"""
_LASTING = (
    # What an erasure deletes is overwritten. The topic has all of it: a crash may cost the end.
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON;"
    f" PRAGMA cache_size = -{32 << 10}"
)
BUILDING = (
    "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;"
    f" PRAGMA cache_size = -{64 << 10}"
)
"""Nobody reads it yet, and after a crash it is begun anew."""
_READING = f"PRAGMA query_only = ON; PRAGMA cache_size = -{8 << 10}"


class _Unfit(Exception):
    """A file that is to be begun anew; the text says why."""


def remove(path: Path) -> None:
    """Remove a database's file, and those that SQLite keeps beside it."""
    for name in (path, *(Path(f"{path}-{end}") for end in ("wal", "shm", "journal", "texts"))):
        name.unlink(missing_ok=True)


class SqliteIndex:
    """Such a database. Calls may come from any thread; they take turns. Searches of a file do not
    wait for who writes it.
    """

    TABLES: ClassVar[str]
    """Those of its own."""
    INDEXES: ClassVar[str] = ""
    """What only readers need: made once what is built is complete."""
    VERSION: ClassVar[int]
    """Raised whenever the tables, or what is made of the same records, change."""
    WHAT: ClassVar[str]
    """Its name in errors."""

    def __init__(self, path: Path | None = None, *, building: bool = False) -> None:
        """Open the file, or begin anew where it is damaged, of another version or none of ours.
        What is being built is of no use until :meth:`finish` has written it out.

        Raises:
            MemoryUnavailable: it cannot be opened or made now; a file that is there stays.
        """
        self._path = path
        self._building = building
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        """Of who reads beside the writer; who needs both takes it last."""
        self._reader: sqlite3.Connection | None = None
        self._wipes = Wipes()
        self._unmerged = False
        """Whether the index of words has parts with deleted texts."""
        self.damaged = False
        """Whether its file was found to be damaged: :meth:`drop` makes another one."""
        self._db = self._open()
        try:
            with naming_faults(self._folder):
                unmerged = self._db.execute("SELECT 1 FROM unmerged").fetchone()
            if unmerged:
                self._wipe()
        except (sqlite3.DatabaseError, Healing) as error:
            # A table is missing, or a page is damaged.
            self._replaced(str(error.__cause__ or error))
            self.drop()
        except BaseException:
            self._let_go()
            raise

    @property
    def path(self) -> Path | None:
        """Its file; None for one that goes with it."""
        return self._path

    @property
    def _folder(self) -> Path | None:
        return None if self._path is None else self._path.parent

    def close(self) -> None:
        """Let go of the file."""
        if self._unmerged and self._path is not None and not self._building:
            with suppress(Healing, MemoryUnavailable, sqlite3.Error):  # the next to open it does so
                self._wipe()
        with self._lock, self._reading:
            self._let_go()

    def drop(self) -> None:
        """Delete everything, the checkpoints too. Where that fails it stays :attr:`damaged`."""
        with self._lock, self._reading, naming_faults(self._folder):
            self.damaged = True
            self._let_go()
            if self._path is not None:
                remove(self._path)
            self._db = self._open()
            self.damaged = False

    def finish(self) -> None:
        """Make what was built a store that lasts, safely on its disk."""
        with self._lock, self._reading:
            end_building(self._db)
            self._db.executescript(self.INDEXES)
            self._complete(self._db)
            self._db.close()
            assert self._path is not None
            with self._path.open("rb") as file:
                os.fsync(file.fileno())
            self._building = False
            self._db = self._open()
            unmerged = self._db.execute("SELECT 1 FROM unmerged").fetchone()
        if unmerged:
            self._wipe()

    def adopt(self, other: Self) -> None:
        """Become another one, which must not be used any more. Readers find one or the other."""
        with self._lock, other._lock, self._reading:
            if self._path is not None and other._path is not None:
                self._hand_over(other._db, self._path)
            self._let_go()
            self._path, self._db = other._path, other._db
            self._begins()

    @classmethod
    def copied(cls, path: Path) -> Self | None:
        """What a file has now, also while another process writes it, in a file that goes with this
        one; None where the file is not there, is damaged or of another version.
        """
        made = cls()
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
                if db.execute("PRAGMA user_version").fetchone() == (cls.VERSION,):
                    db.backup(made._db)
                    return made
        except sqlite3.Error:
            pass  # It is not there, or damaged: None says so.
        made.close()
        return None

    def checkpoints(self) -> dict[int, int]:
        """Of each partition of the topic the offset of the last record that was taken in."""
        with self._turn() as db:
            return dict(db.execute("SELECT partition, at FROM checkpoints"))

    # -- for those that are one

    def _begins(self) -> None:
        """Forget what is known in memory: the database is another one, or lost texts for good."""

    def _complete(self, db: sqlite3.Connection) -> None:
        """Add what was built elsewhere, the last thing before the file is closed."""

    def _hand_over(self, db: sqlite3.Connection, path: Path) -> None:
        """Give the one that takes its place what does not follow from the topic."""

    def _let_go(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._db.close()

    def _open(self) -> sqlite3.Connection:
        """Open the file; one that is unfit is replaced, once."""
        self._begins()
        with naming_faults(self._folder):
            try:
                return self._opened()
            except _Unfit as why:
                self._replaced(str(why))
                if self._path is not None:
                    remove(self._path)
                return self._opened()

    def _replaced(self, why: str) -> None:
        logger.warning("%s in %s is made anew from its topic: %s", self.WHAT, self._path, why)

    def _opened(self) -> sqlite3.Connection:
        db = sqlite3.connect(
            # Without a name it is a file of this connection alone, which goes with it.
            "" if self._path is None else self._path,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version not in (0, self.VERSION):
                raise _Unfit(f"its file is of version {version}, not {self.VERSION}")
            db.executescript(BUILDING if self._building else _LASTING)
            if version == 0:
                indexes = "" if self._building else self.INDEXES
                made = f"{_TABLES} {self.TABLES} {indexes} PRAGMA user_version = {self.VERSION};"
                db.executescript(f"BEGIN; {made} COMMIT")
            if self._building:
                begin_building(db)
        except BaseException as error:
            db.close()
            if isinstance(error, sqlite3.Error) and is_damaged(error):
                raise _Unfit(f"its file is damaged ({error})") from error
            raise
        return db

    @contextmanager
    def _turn(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        with self._lock, self._naming_damage():
            if not write:
                yield self._db
                return
            with transaction(self._db):
                yield self._db

    @contextmanager
    def _search_turn(self) -> Iterator[sqlite3.Connection]:
        """A turn of who only reads, beside the writer: all of it sees what was written before."""
        if self._path is None or self._building:  # only one connection can have it
            with self._turn() as db:
                yield db
            return
        with self._reading, self._naming_damage():
            if self._reader is None:
                self._reader = _reader_of(self._path)
            with _snapshot(self._reader):
                yield self._reader

    @contextmanager
    def _naming_damage(self) -> Iterator[None]:
        with naming_faults(self._folder):
            try:
                yield
            except sqlite3.Error as error:
                if is_damaged(error) or self.damaged:
                    self.damaged = True
                    raise Healing(
                        f"the file of {self.WHAT} is damaged: it is filled again from its topic"
                    ) from error
                raise

    def tidy(self) -> None:
        """See to it that texts are gone from the file as well which were deleted shortly after
        others.
        """
        with self._turn() as db:
            due = self._is_wipe_due(db)
        if due:
            self._wipe()

    def _note(self, db: sqlite3.Connection, checkpoints: Mapping[int, int], *, wiped: bool) -> bool:
        """Note the offsets that were taken in, and whether texts were deleted that must be gone
        from the file as well; returns whether it is time to see to that (:meth:`_wipe`). Of what
        is being built :meth:`finish` sees to it.
        """
        db.executemany("INSERT OR REPLACE INTO checkpoints VALUES (?, ?)", checkpoints.items())
        if wiped:
            db.execute("INSERT OR IGNORE INTO unmerged VALUES (1)")
            self._unmerged = True
            self._begins()
        return not self._building and self._is_wipe_due(db)

    def _is_wipe_due(self, db: sqlite3.Connection) -> bool:
        if not self._wipes.may_begin or not db.execute("SELECT 1 FROM unmerged").fetchone():
            return False
        return self._unmerged or self._wipes.may_rewrite(_size_of(db))

    def _wipe(self) -> None:
        """Rewrite what holds deleted texts, the index and the file."""
        with self._wipes.one():
            self._begins()
            merge_words(partial(self._turn, write=True))
            self._unmerged = False
            # What a reader still sees would stay in the file.
            with self._turn() as db, self._reading:
                if self._path is not None:
                    if not self._wipes.may_rewrite(_size_of(db)):
                        return
                    # A page that was split keeps copies beside its cells, until it is rewritten.
                    db.execute("VACUUM")
                    self._wipes.rewritten()
                db.execute("DELETE FROM unmerged")
                db.execute("PRAGMA wal_checkpoint (TRUNCATE)")


def _reader_of(path: Path) -> sqlite3.Connection:
    # It makes no file: that is the writer's.
    name = f"{path.absolute().as_uri()}?mode=rw"
    reader = sqlite3.connect(name, uri=True, isolation_level=None, check_same_thread=False)
    reader.executescript(_READING)
    return reader


@contextmanager
def _snapshot(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN")
    try:
        yield
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _size_of(db: sqlite3.Connection) -> int:
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    (size,) = db.execute("PRAGMA page_size").fetchone()
    return int(pages * size)
