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
from functools import partial
from typing import Any

import msgspec
from msgspec import structs

from projections.events.codec import DATA_TYPES, MEMORY
from projections.events.types import Learnt
from projections.memory.branches import Branches
from projections.memory.composites import composed
from projections.memory.news import Fact
from projections.memory.resolution import NEVER, Record, Retrievals, resolve
from projections.names import Key
from streams.memory.erasures import Erased
from streams.memory.store import Filter
from streams.memory.word_index import encode_scope

VERSION = 10
"""Raised whenever the tables, or what is made of the same news, change: the store is fed anew."""
TABLES = """
CREATE TABLE logs (
  number INTEGER PRIMARY KEY, log TEXT NOT NULL UNIQUE, state INTEGER NOT NULL DEFAULT 0);
CREATE TABLE facts (
  log INTEGER NOT NULL, at_offset INTEGER NOT NULL, record INTEGER NOT NULL,
  at INTEGER NOT NULL, learnt_from BLOB NOT NULL, kind TEXT NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (log, at_offset));
CREATE INDEX facts_of_record ON facts (record);
CREATE TABLE taught (
  log INTEGER, at_offset INTEGER, fact INTEGER, PRIMARY KEY (log, at_offset, fact)) WITHOUT ROWID;
CREATE TABLE uses (
  record INTEGER, log INTEGER, at_offset INTEGER, at INTEGER NOT NULL, retrieved INTEGER NOT NULL,
  hits INTEGER NOT NULL, PRIMARY KEY (record, log, at_offset)) WITHOUT ROWID;
CREATE INDEX uses_of_log ON uses (log);
CREATE TABLE parts (
  source TEXT, composite INTEGER, PRIMARY KEY (source, composite)) WITHOUT ROWID;
CREATE INDEX parts_of_composite ON parts (composite);
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
"""
INDEXES = """
CREATE INDEX records_by_time ON records (tenant, created, id);
CREATE INDEX records_by_user ON records (tenant, user, created, id);
"""
PLAIN, CHANGED, ERASED = 0, 1, 2
"""States of a log: nothing was taken back, something was (a rollback, a dropped event), all was."""
_END = (1 << 63) - 1
_TYPES: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(DATA_TYPES[name]) for name in MEMORY
}
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


def retrievals_of(
    db: sqlite3.Connection, records: Iterable[int], as_of: int | None = None
) -> dict[int, Retrievals]:
    """How often records were given out until a time, by their numbers; those that were not are
    missing.
    """
    if not db.execute("SELECT 1 FROM uses LIMIT 1").fetchone():
        return {}
    rows = db.execute(
        "SELECT u.record, sum(u.retrieved), sum(u.hits), max(u.at) FROM uses u"
        " WHERE u.record IN (SELECT value FROM json_each(?)) AND u.at <= ? AND NOT EXISTS"
        " (SELECT 1 FROM dropped d WHERE d.log = u.log AND d.at_offset = u.at_offset)"
        " GROUP BY u.record",
        (encode(list(records)).decode(), _END if as_of is None else as_of),
    )
    return {record: Retrievals(*counts) for record, *counts in rows}


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
    facts: Sequence[Fact],
    branches: Mapping[Key, Branches],
    as_of: int | None = None,
    given: Retrievals = NEVER,
) -> Record | None:
    """What the facts of a record that nobody dropped come to."""
    return resolve(facts, partial(stands_in, branches), as_of, given)


def stands_in(branches: Mapping[Key, Branches], fact: Fact) -> bool:
    """Whether a fact's branch of its log stands; a log without branches does."""
    return fact.log not in branches or branches[fact.log].stands(fact.anchor)


def known_at(
    db: sqlite3.Connection, record: int, as_of: int | None, erased: Erased = None
) -> Record | None:
    """A record as it was known at a time, without what erased logs say; of a composite, what its
    own facts come to.
    """
    facts = facts_of(db, [record])[record]
    if erased is not None:
        facts = [fact for fact in facts if not erased(fact.log)]
    given = retrievals_of(db, [record], as_of).get(record, NEVER)
    return resolved(facts, branches_of(db, (fact.log for fact in facts), as_of), as_of, given)


def superseded_from(
    db: sqlite3.Connection, log: Key, offsets: Collection[int], as_of: int | None
) -> set[int]:
    """Those of a log's events that taught what no longer stands: its record expired, says another
    text by now, or was deleted for good.
    """
    asked = (str(log), encode(list(offsets)).decode())
    rows = db.execute(
        "SELECT t.at_offset, f.record, f.at, f.learnt_from, f.kind, f.data, r.record"
        " FROM logs l JOIN taught t ON t.log = l.number"
        " JOIN facts f ON f.log = t.log AND f.at_offset = t.fact"
        " JOIN records r ON r.number = f.record"
        " WHERE l.log = ? AND t.at_offset IN (SELECT value FROM json_each(?))",
        asked,
    ).fetchall()
    branches = branches_of(db, [log], as_of)[log] if rows else Branches(())
    found: set[int] = set()
    for offset, number, at, learnt_from, kind, data, packed in rows:
        late = as_of is not None and at > as_of
        if offset in found or late or not branches.stands(numbers_of(learnt_from)[-1]):
            continue
        if as_of is not None:
            record = known_at(db, number, as_of)
        else:
            record = None if packed is None else decode_record(packed)
        if record is not None and (
            not record.stands or _TYPES[kind].decode(data).normalized_text != record.normalized_text
        ):
            found.add(offset)
    hidden = db.execute(
        "SELECT h.at_offset FROM hidden h JOIN logs l ON l.number = h.log WHERE l.log = ?"
        " AND h.at_offset IN (SELECT value FROM json_each(?))",
        asked,
    )
    return found | {offset for (offset,) in hidden}


def seen(
    db: sqlite3.Connection, only: Filter, rows: Iterable[tuple[int, bytes | None]]
) -> Iterator[Record]:
    """The records of these rows that a filter admits, as of its time."""
    for number, packed in rows:
        record = _as_it_is(db, number, packed, only.as_of, only.erased)
        if record is not None and record.kind == "composite":
            record = with_sources(db, record, only.as_of, only.erased)
        if record is not None and only.admits(record):
            yield record


def _as_it_is(
    db: sqlite3.Connection,
    number: int,
    packed: bytes | None,
    as_of: int | None,
    erased: Erased,
) -> Record | None:
    if as_of is not None:
        record = known_at(db, number, as_of)
    else:
        record = None if packed is None else decode_record(packed)
    if record is None or erased is None or not erased(record.log):
        return record
    left = known_at(db, number, as_of, erased)
    # Lists and their cursors go by the time of the row.
    return None if left is None else structs.replace(left, created=record.created)


def with_sources(
    db: sqlite3.Connection, composite: Record, as_of: int | None = None, erased: Erased = None
) -> Record | None:
    """A composite as its sources make it, without what erased logs say."""
    rows = db.execute(
        "SELECT number, record FROM records WHERE scope = ?"
        " AND id IN (SELECT value FROM json_each(?))",
        (encode_scope(composite.scope), encode(composite.sources).decode()),
    ).fetchall()
    return composed(
        composite, [_as_it_is(db, number, packed, as_of, erased) for number, packed in rows]
    )


def composites_of(db: sqlite3.Connection, only: Filter, records: Collection[str]) -> list[Record]:
    """The composites that some of these records are sources of, and that no other of them has taken
    in.
    """
    rows = db.execute(
        "SELECT number, record FROM records WHERE number IN (SELECT composite FROM parts"
        " WHERE source IN (SELECT value FROM json_each(?)))",
        (encode(list(records)).decode(),),
    ).fetchall()
    found = [one for one in seen(db, only, rows) if not set(one.sources).isdisjoint(records)]
    taken_in = {child for one in found for child in one.children}
    return sorted((one for one in found if one.id not in taken_in), key=lambda one: one.id)


def records_said(
    db: sqlite3.Connection, only: Filter, texts: Collection[int]
) -> Iterator[tuple[int, int, Record]]:
    """Of texts by their numbers the records that say them, each with its number: but where a record
    says another text by now, or where the filter does not admit it.
    """
    rows = db.execute(
        "SELECT x.number, x.text, r.number, r.record"
        " FROM texts x JOIN records r ON r.number = x.owner"
        " WHERE x.number IN (SELECT value FROM json_each(?))",
        (encode(list(texts)).decode(),),
    ).fetchall()
    for text, said, number, packed in rows:
        record = next(seen(db, only, [(number, packed)]), None)
        if record is not None and record.text == said:
            yield text, number, record
