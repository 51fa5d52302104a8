"""The embedded store of the long-term memory: SQLite with its full-text index.

It keeps the facts, so that a record follows from all of them whenever one comes, and beside them
the records as they stand. Their texts are in an index of words (``streams.memory.word_index``).
What that finds is checked against the record's own scope as well.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

from projections.errors import Healing
from projections.memory.identity import Scope
from projections.memory.news import News
from projections.memory.resolution import Record, digest
from projections.names import Key
from streams.memory.sqlite_changes import take_in
from streams.memory.sqlite_tables import (
    TABLES,
    VERSION,
    decode_record,
    record_said,
    seen,
    superseded_from,
)
from streams.memory.sqlite_vectors import SqliteVectors
from streams.memory.store import Filter, Hit, Stats
from streams.memory.word_index import encode_scope, find_texts, merge_words, transaction

SMALL = 16_384
"""Pages (of 4 KB) up to which a file is rewritten with every erasure; a larger one is at most every
``VACUUM_EVERY`` seconds.
"""
VACUUM_EVERY = 3600.0


_LASTING = (
    # What an erasure deletes is overwritten. The topic has all of it: a crash may cost the end.
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON;"
    f" PRAGMA cache_size = -{32 << 10}"
)
_BUILDING = (
    "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;"
    f" PRAGMA cache_size = -{64 << 10}"
)
"""Nobody reads it yet, and after a crash it is begun anew."""


def remove(path: Path) -> None:
    """Remove a store's file, and those that SQLite keeps beside it."""
    for name in (path, *(Path(f"{path}-{end}") for end in ("wal", "shm", "journal"))):
        name.unlink(missing_ok=True)


class SqliteMemories:
    """Records in a file, or in one that goes with it. Calls may come from any thread; they take
    turns.
    """

    def __init__(self, path: Path | None = None, *, building: bool = False) -> None:
        """Open the file, or begin anew where it is damaged, of another version or none of ours.
        What is being built is of no use until :meth:`finish` has written it out.
        """
        self._path = path
        self._building = building
        self._lock = threading.Lock()
        self._vacuumed = -VACUUM_EVERY
        self.vectors = SqliteVectors(self._turn)
        """The vectors of its texts."""
        self.damaged = False
        """Whether its file was found to be damaged: :meth:`drop` makes another one."""
        self._db = self._open()
        try:
            unmerged = self._db.execute("SELECT 1 FROM unmerged").fetchone()
        except sqlite3.DatabaseError:
            self.drop()
            unmerged = None
        if unmerged:
            self._wipe()

    @property
    def path(self) -> Path | None:
        """Its file; None for one that goes with it."""
        return self._path

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def drop(self) -> None:
        with self._lock:
            self._db.close()
            if self._path is not None:
                remove(self._path)
            self._db = self._open()
            self.damaged = False

    def finish(self) -> None:
        """Make what was built a store that lasts, safely on its disk."""
        with self._lock:
            self._db.execute("INSERT INTO words (words) VALUES ('optimize')")
            self._db.close()
            assert self._path is not None
            with self._path.open("rb") as file:
                os.fsync(file.fileno())
            self._building = False
            self._db = self._open()

    def adopt(self, other: SqliteMemories) -> None:
        """Become another store, which must not be used any more. Readers find one or the other."""
        with self._lock, other._lock:
            if self._path is not None and other._path is not None:
                other.vectors.copy(other._db, self._path)
            self._db.close()
            self._path, self._db = other._path, other._db
            self.vectors.begin()

    @classmethod
    def copied(cls, path: Path) -> SqliteMemories | None:
        """What a file has now, also while another process writes it, in a file that goes with this
        store; None where the file is not there, is damaged or of another version.
        """
        made = cls()
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
                if db.execute("PRAGMA user_version").fetchone() == (VERSION,):
                    db.backup(made._db)
                    return made
        except sqlite3.Error:
            pass
        made.close()
        return None

    def _open(self) -> sqlite3.Connection:
        self.vectors.begin()
        db = sqlite3.connect(
            # Without a name it is a file of this connection alone, which goes with it.
            "" if self._path is None else self._path,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            (version,) = db.execute("PRAGMA user_version").fetchone()
        except sqlite3.DatabaseError:
            version = -1
        if version not in (0, VERSION):
            db.close()
            if self._path is None:
                raise ValueError("a new database is of version 0")
            remove(self._path)
            return self._open()
        db.executescript(_BUILDING if self._building else _LASTING)
        if version == 0:
            db.executescript(f"BEGIN; {TABLES} PRAGMA user_version = {VERSION}; COMMIT")
        return db

    @contextmanager
    def _turn(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                if not write:
                    yield self._db
                    return
                with transaction(self._db):
                    yield self._db
            except sqlite3.DatabaseError as error:
                # The low byte is the kind of error; the rest says more of it.
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                    self.damaged = True
                    raise Healing(
                        "the memory store's file is damaged: it is fed anew from its topic"
                    ) from error
                raise

    # -- feeding

    def checkpoints(self) -> dict[int, int]:
        with self._turn() as db:
            return dict(db.execute("SELECT partition, at FROM checkpoints"))

    def apply(self, news: Sequence[News], checkpoints: Mapping[int, int]) -> None:
        with self._turn(write=True) as db:
            wiped = take_in(db, news)
            db.executemany("INSERT OR REPLACE INTO checkpoints VALUES (?, ?)", checkpoints.items())
            if wiped:
                db.execute("INSERT OR IGNORE INTO unmerged VALUES (1)")
            due = db.execute("SELECT 1 FROM unmerged").fetchone() is not None
        if wiped or (due and time.monotonic() >= self._vacuumed + VACUUM_EVERY):
            self._wipe()

    def _wipe(self) -> None:
        """Rewrite what holds deleted texts, the index and the file."""
        self.vectors.begin()
        merge_words(partial(self._turn, write=True))
        with self._turn() as db:
            if self._path is not None:
                # A page that was split keeps copies beside its cells, until it is rewritten.
                (pages,) = db.execute("PRAGMA page_count").fetchone()
                if pages > SMALL and time.monotonic() < self._vacuumed + VACUUM_EVERY:
                    return
                db.execute("VACUUM")
                self._vacuumed = time.monotonic()
            db.execute("DELETE FROM unmerged")
            db.execute("PRAGMA wal_checkpoint (TRUNCATE)")

    # -- reading

    def get(self, only: Filter, memory_id: str) -> Record | None:
        with self._turn() as db:
            rows = db.execute(
                "SELECT number, record FROM records WHERE tenant = ? AND id = ?",
                (only.tenant, memory_id),
            ).fetchall()
            return next(seen(db, only, rows), None)

    def page(self, only: Filter, after: tuple[int, str] | None, limit: int) -> list[Record]:
        return self._by_time(only, after, limit, older=True)

    def neighbours(
        self, only: Filter, memory_id: str, before: int, after: int
    ) -> list[Record] | None:
        middle = self.get(only, memory_id)
        if middle is None:
            return None
        scope, at = middle.scope, (middle.created, middle.id)
        own = Filter(scope.tenant, kinds=(middle.kind,), as_of=only.as_of, expired=only.expired)
        earlier = self._by_time(own, at, before, older=True, scope=scope)
        later = self._by_time(own, at, after, older=False, scope=scope)
        return [*reversed(earlier), middle, *later]

    def _by_time(
        self,
        only: Filter,
        after: tuple[int, str] | None,
        limit: int,
        *,
        older: bool,
        scope: Scope | None = None,
    ) -> list[Record]:
        where, values = ["tenant = ?"], [only.tenant]
        if only.user is not None:
            where, values = [*where, "user = ?"], [*values, only.user]
        if scope is not None:
            where, values = [*where, "scope = ?"], [*values, encode_scope(scope)]
        if after is not None:
            where = [*where, f"(created, id) {'<' if older else '>'} (?, ?)"]
        order = "DESC" if older else "ASC"
        with self._turn() as db:
            rows = db.execute(
                f"SELECT number, record FROM records WHERE {' AND '.join(where)}"
                f" ORDER BY created {order}, id {order}",
                (*values, *(after or ())),
            )
            return list(islice(seen(db, only, rows), limit))

    def search(self, only: Filter, words: Collection[str], limit: int) -> list[Hit]:
        found: dict[int, Hit] = {}
        with self._turn() as db:
            for number, score, relevance in find_texts(
                db, only.tenant, only.user, words, lambda scope, _: only.admits_scope(scope)
            ):
                place = record_said(db, only, number)
                if place is not None and place[0] not in found:
                    found[place[0]] = Hit(place[1], score, relevance)
                if len(found) == limit:
                    break
        return list(found.values())

    def superseded_turns(
        self, tenant: str, turns: Collection[tuple[Key, int]], as_of: int | None
    ) -> set[tuple[Key, int]]:
        asked: defaultdict[Key, set[int]] = defaultdict(set)
        for log, offset in turns:
            if log.tenant == tenant:
                asked[log].add(offset)
        with self._turn() as db:
            return {
                (log, offset)
                for log, offsets in asked.items()
                for offset in superseded_from(db, log, offsets, as_of)
            }

    def stats(self, only: Filter) -> Stats:
        stats = Stats()
        for record in self._by_time(replace(only, expired=True), None, 1 << 62, older=True):
            if record.stands:
                stats.records += 1
                stats.types[record.type] = stats.types.get(record.type, 0) + 1
            else:
                stats.expired += 1
        return stats

    def digests(self) -> dict[Scope, str]:
        scopes: defaultdict[Scope, list[Record]] = defaultdict(list)
        with self._turn() as db:
            for (packed,) in db.execute("SELECT record FROM records WHERE record IS NOT NULL"):
                record = decode_record(packed)
                scopes[record.scope].append(record)
        return {scope: digest(records) for scope, records in scopes.items()}
