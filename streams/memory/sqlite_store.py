"""The embedded store of the long-term memory: SQLite with its full-text index.

It keeps the facts, so that a record follows from all of them whenever one comes, and beside them
the records as they stand. Their texts are in an index of words (``streams.memory.word_index``).
What that finds is checked against the record's own scope as well.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from projections.memory.identity import Scope
from projections.memory.news import News
from projections.memory.resolution import Record, digest
from projections.memory.words import is_tag_word
from projections.names import Key
from streams.memory.by_time import Look, Place, RecordsByTime
from streams.memory.kept import tag_words
from streams.memory.often_stated import OftenStated
from streams.memory.sqlite_changes import take_in
from streams.memory.sqlite_index import SqliteIndex
from streams.memory.sqlite_tables import (
    INDEXES,
    TABLES,
    VERSION,
    composites_of,
    decode_record,
    records_said,
    seen,
    superseded_from,
    with_sources,
)
from streams.memory.sqlite_vectors import SqliteVectors
from streams.memory.store import Filter, Hit, by_log
from streams.memory.text_changes import change_texts
from streams.memory.texts_beside import TextsBeside
from streams.memory.vector_index import copy_vectors
from streams.memory.word_index import Admits, encode_scope, find_texts


class SqliteMemories(SqliteIndex, RecordsByTime):
    """Records in a file, or in one that goes with it."""

    TABLES = TABLES
    INDEXES = INDEXES
    VERSION = VERSION
    WHAT = "the memory store"
    _beside: TextsBeside | None = None

    def __init__(self, path: Path | None = None, *, building: bool = False) -> None:
        self.vectors = SqliteVectors(self._turn, _hit)
        """The vectors of its texts."""
        self._often = OftenStated()
        super().__init__(path, building=building)
        self._begin_beside()

    def close(self) -> None:
        """Let go of the file."""
        self._end_beside()
        super().close()

    def drop(self) -> None:
        """Delete everything, the checkpoints too."""
        self._end_beside()
        super().drop()
        self._begin_beside()

    def finish(self) -> None:
        """Make what was built a store that lasts, safely on its disk."""
        if self._beside is not None:
            self._beside.complete()
        super().finish()

    def _complete(self, db: sqlite3.Connection) -> None:
        if self._beside is not None:
            self._beside.merge(db)
            self._end_beside()

    def _begin_beside(self) -> None:
        if self._building and self._path is not None and self._beside is None:
            self._beside = TextsBeside(self._path)

    def _end_beside(self) -> None:
        beside, self._beside = self._beside, None
        if beside is not None:
            beside.close()

    def _begins(self) -> None:
        self.vectors.begin()
        self._often.clear()

    def _hand_over(self, db: sqlite3.Connection, path: Path) -> None:
        copy_vectors(db, path)

    def apply(self, news: Sequence[News], checkpoints: Mapping[int, int]) -> None:
        try:
            with self._turn(write=True) as db:
                change = partial(change_texts, db) if self._beside is None else self._beside.change
                wiped = take_in(db, news, change, self._often)
                due = self._note(db, checkpoints, wiped=wiped)
        except BaseException:
            self._often.clear()
            raise
        if due:
            self._wipe()

    # -- reading

    def get(self, only: Filter, memory_id: str) -> Record | None:
        with self._turn() as db:
            rows = db.execute(
                # The plus keeps SQLite from going through all that the tenant has.
                "SELECT number, record FROM records WHERE +tenant = ? AND id = ?",
                (only.tenant, memory_id),
            ).fetchall()
            return next(seen(db, only, rows), None)

    def _look(
        self, only: Filter, after: Place | None, looked_at: int, limit: int, *, older: bool
    ) -> Look:
        where, values = ["tenant = ?"], [only.tenant]
        if only.user is not None:
            where, values = [*where, "user = ?"], [*values, only.user]
        if only.scope is not None:
            where, values = [*where, "scope = ?"], [*values, encode_scope(only.scope)]
        order = "DESC" if older else "ASC"
        behind = [] if after is None else [f"(created, id) {'<' if older else '>'} (?, ?)"]
        with self._turn() as db:
            rows = db.execute(
                "SELECT created, id, number, record FROM records"
                f" WHERE {' AND '.join(where + behind)}"
                f" ORDER BY created {order}, id {order} LIMIT ?",
                (*values, *(after or ()), looked_at),
            ).fetchall()
            found = list(islice(seen(db, only, [row[2:] for row in rows]), limit))
        return Look(found, None if len(rows) < looked_at else rows[-1][:2])

    def search(self, only: Filter, words: Collection[str], limit: int) -> list[Hit]:
        found: dict[int, Hit] = {}
        # The index has all tags that a text was ever given.
        tags = None if any(not is_tag_word(word) for word in words) else set(words)
        with self._turn() as db:
            admits = _admits(db, only)
            for text, *score in find_texts(db, only.within, words, admits):
                for _, number, record in records_said(db, only, [text]):
                    if tags is None or not tags.isdisjoint(tag_words(record.tags)):
                        found.setdefault(number, Hit(record, *score))
                if len(found) == limit:
                    break
        return list(found.values())

    def composites_of(self, only: Filter, records: Collection[str]) -> list[Record]:
        with self._turn() as db:
            return composites_of(db, only, records)

    def superseded_turns(
        self, tenant: str, turns: Collection[tuple[Key, int]], as_of: int | None
    ) -> set[tuple[Key, int]]:
        asked = by_log(tenant, turns)
        with self._turn() as db:
            return {
                (log, offset)
                for log, offsets in asked.items()
                for offset in superseded_from(db, log, offsets, as_of)
            }

    def digests(self) -> dict[Scope, str]:
        scopes: defaultdict[Scope, list[Record]] = defaultdict(list)
        with self._turn() as db:
            for (packed,) in db.execute("SELECT record FROM records WHERE record IS NOT NULL"):
                own = decode_record(packed)
                record = with_sources(db, own) if own.kind == "composite" else own
                if record is not None:
                    scopes[record.scope].append(record)
        return {scope: digest(records) for scope, records in scopes.items()}


def _admits(db: sqlite3.Connection, only: Filter) -> Admits | None:
    """Which texts a search may find; None where nearly all of the tenant's or user's may be."""
    plain = Filter(only.tenant, only.user, kinds=only.kinds, as_of=only.as_of, expired=only.expired)
    if only == plain and "record" in only.kinds and not only.erasing:
        return None

    def admits(texts: Mapping[int, tuple[Scope, str]]) -> Collection[int]:
        of_scope = [number for number, (scope, _) in texts.items() if only.admits_scope(scope)]
        if only.as_of is not None:  # to know what they said then costs too much for so many
            return of_scope
        return [text for text, *_ in records_said(db, only, of_scope)]

    return admits


def _hit(db: sqlite3.Connection, only: Filter) -> Callable[[int, float], Hit | None]:
    """The records that say texts, where the filter admits them."""

    def hit(text: int, cosine: float) -> Hit | None:
        for _, _, record in records_said(db, only, [text]):
            return Hit(record, cosine, cosine)
        return None

    return hit
