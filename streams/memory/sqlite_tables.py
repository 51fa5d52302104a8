"""The tables of the embedded memory store, and how facts are read from them.

``facts`` holds what was accepted, and ``records`` what it comes to. A record has a row as long as
anything is known of it, also while it does not stand: it may have stood at an earlier time. All
texts of its facts are in the index (``streams.memory.word_index``). Logs and records have numbers
here, so that indexes are short and grow at their ends. What news changes is in
``streams.memory.sqlite_changes``.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from projections.events.codec import DATA_TYPES, MEMORY
from projections.events.types import Learnt
from projections.memory.branches import Branches
from projections.memory.news import Fact
from projections.memory.resolution import Record, resolve
from projections.names import Key
from streams.memory import vector_index, word_index
from streams.memory.store import Filter

VERSION = 5
"""Raised whenever the tables, or what is made of the same news, change: the store is fed anew."""
TABLES = (
    """
CREATE TABLE checkpoints (partition INTEGER PRIMARY KEY, at INTEGER NOT NULL);
CREATE TABLE unmerged (yes INTEGER PRIMARY KEY);
CREATE TABLE logs (
  number INTEGER PRIMARY KEY, log TEXT NOT NULL UNIQUE, state INTEGER NOT NULL DEFAULT 0);
CREATE TABLE facts (
  log INTEGER NOT NULL, at_offset INTEGER NOT NULL, record INTEGER NOT NULL,
  at INTEGER NOT NULL, learnt_from BLOB NOT NULL, kind TEXT NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (log, at_offset));
CREATE INDEX facts_of_record ON facts (record);
CREATE TABLE rollbacks (
  log INTEGER, went_by INTEGER, went_to INTEGER NOT NULL, at INTEGER NOT NULL,
  PRIMARY KEY (log, went_by)) WITHOUT ROWID;
CREATE TABLE dropped (log INTEGER, at_offset INTEGER, PRIMARY KEY (log, at_offset)) WITHOUT ROWID;
CREATE TABLE purged (scope TEXT, id TEXT, at INTEGER NOT NULL, PRIMARY KEY (id, scope))
  WITHOUT ROWID;
CREATE TABLE hidden (log INTEGER, at_offset INTEGER, PRIMARY KEY (log, at_offset)) WITHOUT ROWID;
CREATE TABLE records (
  number INTEGER PRIMARY KEY, scope TEXT NOT NULL, id TEXT NOT NULL, tenant TEXT NOT NULL,
  user TEXT, created INTEGER NOT NULL, record BLOB, UNIQUE (id, scope));
CREATE INDEX records_by_time ON records (tenant, created, id);
CREATE INDEX records_by_user ON records (tenant, user, created, id);
"""
    + word_index.TABLES
    + vector_index.TABLES
)
PLAIN, CHANGED, ERASED = 0, 1, 2
"""States of a log: nothing was taken back, something was (a rollback, a dropped event), all was."""
_TYPES: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(DATA_TYPES[name]) for name in MEMORY
}
NAMES = {DATA_TYPES[name]: name for name in MEMORY}
encode = msgspec.json.Encoder().encode
pack = msgspec.msgpack.Encoder().encode
decode_record = msgspec.msgpack.Decoder(Record).decode
numbers_of = msgspec.msgpack.Decoder(tuple[int, ...]).decode


def facts_of(db: sqlite3.Connection, records: Iterable[int]) -> dict[int, list[Fact]]:
    """The facts of records by their numbers; those that an operator dropped are missing."""
    rows = db.execute(
        "SELECT f.record, l.log, l.state, f.log, f.at_offset, f.at, f.learnt_from, f.kind, f.data"
        " FROM facts f JOIN logs l ON l.number = f.log"
        " WHERE f.record IN (SELECT value FROM json_each(?))",
        (encode(list(records)).decode(),),
    )
    found: defaultdict[int, list[Fact]] = defaultdict(list)
    dropped: dict[int, set[int]] = {}
    for record, log, state, number, offset, at, learnt_from, name, data in rows.fetchall():
        basis = numbers_of(learnt_from)
        if state == CHANGED:
            if number not in dropped:
                dropped[number] = dropped_from(db, number)
            if not dropped[number].isdisjoint((offset, *basis)):
                continue
        tenant, _, conversation = log.partition("/")
        decoded: Learnt = _TYPES[name].decode(data)
        found[record].append(Fact(Key(tenant, conversation), offset, at, basis, decoded))
    return found


def dropped_from(db: sqlite3.Connection, log: int) -> set[int]:
    """The offsets of a log's events that an operator dropped."""
    rows = db.execute("SELECT at_offset FROM dropped WHERE log = ?", (log,))
    return {offset for (offset,) in rows}


def branches_of(
    db: sqlite3.Connection, logs: Iterable[Key], as_of: int | None = None
) -> Mapping[Key, Branches]:
    """Which events of logs stand, by their rollbacks up to a time."""
    found: dict[Key, Branches] = {}
    for log in set(logs):
        rows = db.execute(
            "SELECT went_by, went_to, r.at FROM rollbacks r"
            " JOIN logs l ON l.number = r.log WHERE l.log = ?",
            (str(log),),
        )
        found[log] = Branches((by, to) for by, to, at in rows if as_of is None or at <= as_of)
    return found


def resolved(
    facts: Sequence[Fact], branches: Mapping[Key, Branches], as_of: int | None = None
) -> Record | None:
    """What the facts of a record that nobody dropped come to; a log without branches stands."""

    def stands(fact: Fact) -> bool:
        return fact.log not in branches or branches[fact.log].stands(fact.anchor)

    return resolve(facts, stands, as_of)


def known_at(db: sqlite3.Connection, record: int, as_of: int) -> Record | None:
    """A record as it was known at a time."""
    facts = facts_of(db, [record])[record]
    return resolved(facts, branches_of(db, (fact.log for fact in facts), as_of), as_of)


def superseded_from(
    db: sqlite3.Connection, log: Key, offsets: Collection[int], as_of: int | None
) -> set[int]:
    """Those of a log's events that taught a record which no longer stands, or was deleted for
    good.
    """
    rows = db.execute(
        "SELECT f.record, f.learnt_from, r.record FROM facts f JOIN logs l ON l.number = f.log"
        " JOIN records r ON r.number = f.record WHERE l.log = ?",
        (str(log),),
    )
    found: set[int] = set()
    for number, learnt_from, packed in rows.fetchall():
        taught = set(numbers_of(learnt_from)).intersection(offsets)
        if taught - found:
            record = (
                known_at(db, number, as_of)
                if as_of is not None
                else None
                if packed is None
                else decode_record(packed)
            )
            if record is not None and not record.stands:
                found |= taught
    hidden = db.execute(
        "SELECT h.at_offset FROM hidden h JOIN logs l ON l.number = h.log WHERE l.log = ?",
        (str(log),),
    )
    return found | {offset for (offset,) in hidden if offset in offsets}


def seen(
    db: sqlite3.Connection, only: Filter, rows: Iterable[tuple[int, bytes | None]]
) -> Iterator[Record]:
    """The records of these rows that a filter admits, as of its time."""
    for number, packed in rows:
        if only.as_of is not None:
            record = known_at(db, number, only.as_of)
        else:
            record = None if packed is None else decode_record(packed)
        if record is not None and only.admits(record):
            yield record


def record_said(db: sqlite3.Connection, only: Filter, text: int) -> tuple[int, Record] | None:
    """The record that says a text, with its number; None where it says another by now, or where the
    filter does not admit it.
    """
    row = db.execute(
        "SELECT r.number, r.record, x.text FROM texts x JOIN records r ON r.number = x.owner"
        " WHERE x.number = ?",
        (text,),
    ).fetchone()
    if row is None:
        return None
    record = next(seen(db, only, [row[:2]]), None)
    return None if record is None or record.text != row[2] else (row[0], record)
