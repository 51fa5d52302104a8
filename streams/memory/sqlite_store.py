"""The embedded store of the long-term memory: SQLite with its full-text index.

It keeps the facts, so that a record follows from all of them whenever one comes, and beside them
the records as they stand. Texts are indexed with porter's stems. The scope is a column of that
index, with a word for the tenant, one for the user, and so on: a search reads the words of its own
tenant and no others. What the index finds is checked against the record's own scope as well.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

from projections.events.types import MemoryDeleted
from projections.memory.identity import Scope
from projections.memory.news import Dropped, Fact, LogErased, News, WentBack
from projections.memory.resolution import Record, digest
from streams.memory.sqlite_tables import (
    TABLES,
    VERSION,
    Place,
    add_fact,
    decode_record,
    encode_scope,
    erase,
    facts_of,
    renew,
    resolved,
    scope_words,
)
from streams.memory.store import Filter, Hit, Stats

WEIGHTS = (0.0, 1.0, 0.5, 1.0)
"""Of the index's columns: scope, text, words of dates, speaker."""
LOOKED = 8
"""Times as many texts as are asked for are looked at: some are of records that do not stand."""


class SqliteMemories:
    """Records in a file, or in one that goes with it. Calls may come from any thread; they take
    turns.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Open the file, or begin anew where it is of another version or none of ours."""
        self._path = path
        self._lock = threading.Lock()
        self._db = self._open()

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def drop(self) -> None:
        with self._lock:
            self._db.close()
            if self._path is not None:
                for name in (self._path, *(Path(f"{self._path}-{end}") for end in ("wal", "shm"))):
                    name.unlink(missing_ok=True)
            self._db = self._open()

    def _open(self) -> sqlite3.Connection:
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
            self._path.unlink()
            return self._open()
        # What an erasure deletes is overwritten. The topic has all of it: a crash may cost the end.
        db.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON"
        )
        if version == 0:
            db.executescript(f"BEGIN; {TABLES} PRAGMA user_version = {VERSION}; COMMIT")
        return db

    @contextmanager
    def _turn(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if not write:
                yield self._db
                return
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    # -- feeding

    def checkpoints(self) -> dict[int, int]:
        with self._turn() as db:
            return dict(db.execute("SELECT partition, at FROM checkpoints"))

    def apply(self, news: Sequence[News], checkpoints: Mapping[int, int]) -> None:
        with self._turn(write=True) as db:
            touched: dict[Place, None] = {}
            wiped = False
            for one in news:
                if isinstance(one, Fact):
                    touched.update(dict.fromkeys(add_fact(db, one)))
                    wiped = wiped or (isinstance(one.data, MemoryDeleted) and one.data.hard)
                    continue
                log = str(one.log)
                if isinstance(one, LogErased):
                    wiped = True
                elif isinstance(one, WentBack):
                    row = (log, one.by, one.to, one.at)
                    db.execute("INSERT OR REPLACE INTO rollbacks VALUES (?, ?, ?, ?)", row)
                elif isinstance(one, Dropped):
                    db.execute("INSERT OR IGNORE INTO dropped VALUES (?, ?)", (log, one.offset))
                touched.update(
                    dict.fromkeys(db.execute("SELECT scope, id FROM facts WHERE log = ?", (log,)))
                )
                if isinstance(one, LogErased):
                    erase(db, log)
            for place in touched:
                renew(db, place)
            db.executemany("INSERT OR REPLACE INTO checkpoints VALUES (?, ?)", checkpoints.items())
            if wiped:
                # Deleted words stay in the index's old segments until these are merged.
                db.execute("INSERT INTO words (words) VALUES ('optimize')")
        if wiped:
            with self._turn() as db:
                db.execute("PRAGMA wal_checkpoint (TRUNCATE)")

    # -- reading

    def get(self, only: Filter, memory_id: str) -> Record | None:
        with self._turn() as db:
            rows = db.execute(
                "SELECT scope, id, record FROM records WHERE tenant = ? AND id = ?",
                (only.tenant, memory_id),
            ).fetchall()
            return next(_seen(db, only, rows), None)

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
                f"SELECT scope, id, record FROM records WHERE {' AND '.join(where)}"
                f" ORDER BY created {order}, id {order}",
                (*values, *(after or ())),
            )
            return list(islice(_seen(db, only, rows), limit))

    def search(self, only: Filter, words: Sequence[str], limit: int) -> list[Hit]:
        asked = " OR ".join(f'"{word}"' for word in dict.fromkeys(words) if '"' not in word)
        if not asked:
            return []
        scope = " AND ".join(scope_words(only.tenant, only.user, only.channel, None))
        match = f"scope : ({scope}) AND {{text dates speaker}} : ({asked})"
        weights = ", ".join(map(str, WEIGHTS))
        with self._turn() as db:
            rows = db.execute(
                f"SELECT t.scope, t.id, t.text, -bm25(words, {weights}) FROM words"
                " JOIN texts t ON t.number = words.rowid WHERE words MATCH ?"
                f" ORDER BY bm25(words, {weights}) LIMIT ?",
                (match, LOOKED * limit),
            ).fetchall()
            found: dict[Place, Hit] = {}
            for place, text, score in (((row[0], row[1]), row[2], row[3]) for row in rows):
                if place in found or len(found) == limit:
                    continue
                row = db.execute(
                    "SELECT scope, id, record FROM records WHERE scope = ? AND id = ?", place
                )
                for record in _seen(db, only, row.fetchall()):
                    if record.text == text:
                        found[place] = Hit(record, score)
        return list(found.values())

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


def _seen(
    db: sqlite3.Connection, only: Filter, rows: Iterable[tuple[str, str, bytes | None]]
) -> Iterator[Record]:
    """The records of these rows that a filter admits, as of its time."""
    for scope, memory_id, packed in rows:
        if only.as_of is not None:
            record = resolved(db, facts_of(db, (scope, memory_id)), only.as_of)
        else:
            record = None if packed is None else decode_record(packed)
        if record is not None and only.admits(record):
            yield record
