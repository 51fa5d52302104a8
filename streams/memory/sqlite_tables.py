"""The tables of the embedded memory store, and what news changes in them.

``facts`` holds what was accepted, and ``records`` what it comes to. A record has a row as long as
anything is known of it, also while it does not stand: it may have stood at an earlier time. All
texts of its facts are in ``texts`` and its full-text index ``words``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any

import msgspec

from projections.events.codec import DATA_TYPES, MEMORY
from projections.events.times import time_at
from projections.events.types import Learnt, MemoryDeleted, MemorySaved, SkillSaved
from projections.memory.branches import Branches
from projections.memory.identity import Scope
from projections.memory.news import Fact
from projections.memory.resolution import Record, resolve
from projections.names import Key

VERSION = 2
"""Raised whenever the tables, or what is made of the same news, change: the store is fed anew."""
TABLES = """
CREATE TABLE checkpoints (partition INTEGER PRIMARY KEY, at INTEGER NOT NULL);
CREATE TABLE facts (
  log TEXT NOT NULL, at_offset INTEGER NOT NULL, scope TEXT NOT NULL, id TEXT NOT NULL,
  at INTEGER NOT NULL, learnt_from BLOB NOT NULL, kind TEXT NOT NULL, data BLOB NOT NULL,
  UNIQUE (log, at_offset));
CREATE INDEX facts_of_record ON facts (id, scope);
CREATE TABLE rollbacks (
  log TEXT, went_by INTEGER, went_to INTEGER NOT NULL, at INTEGER NOT NULL,
  PRIMARY KEY (log, went_by)) WITHOUT ROWID;
CREATE TABLE dropped (log TEXT, at_offset INTEGER, PRIMARY KEY (log, at_offset)) WITHOUT ROWID;
CREATE TABLE purged (scope TEXT, id TEXT, at INTEGER NOT NULL, PRIMARY KEY (id, scope))
  WITHOUT ROWID;
CREATE TABLE erased (log TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE records (
  scope TEXT NOT NULL, id TEXT NOT NULL, tenant TEXT NOT NULL, user TEXT,
  created INTEGER NOT NULL, record BLOB, UNIQUE (id, scope));
CREATE INDEX records_by_time ON records (tenant, created, id);
CREATE INDEX records_by_user ON records (tenant, user, created, id);
CREATE TABLE texts (
  number INTEGER PRIMARY KEY, scope TEXT NOT NULL, id TEXT NOT NULL, text TEXT NOT NULL);
CREATE INDEX texts_of_record ON texts (id, scope);
CREATE VIRTUAL TABLE words USING fts5 (scope, text, dates, speaker, tokenize = 'porter unicode61');
"""
_TYPES: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(DATA_TYPES[name]) for name in MEMORY
}
_NAMES = {DATA_TYPES[name]: name for name in MEMORY}
_encode = msgspec.json.Encoder().encode
decode_record = msgspec.msgpack.Decoder(Record).decode
_pack = msgspec.msgpack.Encoder().encode
_scope = msgspec.json.Decoder(tuple[str, str | None, str | None, str | None]).decode
_numbers = msgspec.msgpack.Decoder(tuple[int, ...]).decode
Place = tuple[str, str]
"""A record's scope, as it is stored, and its id."""


def add_fact(db: sqlite3.Connection, fact: Fact) -> list[Place]:
    """Add a fact; returns the records that it may change: none if its log is erased, or its text
    was deleted for good.
    """
    log, place = str(fact.log), (encode_scope(fact.scope), fact.memory_id)
    data, touched = fact.data, list[Place]()
    if isinstance(data, MemoryDeleted) and data.hard:
        _purge(db, place, fact.at)
        touched = [place]
    if db.execute("SELECT 1 FROM erased WHERE log = ?", (log,)).fetchone():
        return touched
    if isinstance(data, MemorySaved | SkillSaved):
        row = db.execute("SELECT at FROM purged WHERE scope = ? AND id = ?", place).fetchone()
        if row is not None and fact.at <= row[0]:
            return []
    db.execute(
        "INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            log,
            fact.offset,
            *place,
            fact.at,
            _pack(fact.learnt_from),
            _NAMES[type(data)],
            _encode(data),
        ),
    )
    return [place]


def _purge(db: sqlite3.Connection, place: Place, at: int) -> None:
    """Delete what was stated of a record up to a time, and whatever of it comes late. Neither a
    rollback nor an erasure brings it back, so it makes no difference which comes first.
    """
    db.execute(
        "INSERT INTO purged VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET at = max(at, excluded.at)",
        (*place, at),
    )
    db.execute(
        "DELETE FROM facts WHERE scope = ? AND id = ? AND at <= ?"
        " AND kind IN ('memory.saved', 'memory.fused', 'skill.saved')",
        (*place, at),
    )


def erase(db: sqlite3.Connection, log: str) -> None:
    """Delete all that a log taught. That it is erased stays: what comes late changes nothing."""
    db.execute("INSERT OR IGNORE INTO erased VALUES (?)", (log,))
    for table in ("facts", "rollbacks", "dropped"):
        db.execute(f"DELETE FROM {table} WHERE log = ?", (log,))


def facts_of(db: sqlite3.Connection, place: Place) -> list[Fact]:
    """The facts of a record that no operator dropped, also those that do not stand."""
    rows = db.execute(
        "SELECT log, at_offset, at, learnt_from, kind, data FROM facts WHERE scope = ? AND id = ?",
        place,
    )
    found: list[Fact] = []
    for log, offset, at, learnt_from, name, data in rows.fetchall():
        tenant, _, conversation = log.partition("/")
        decoded: Learnt = _TYPES[name].decode(data)
        key = Key(tenant, conversation)
        found.append(Fact(key, offset, at, _numbers(learnt_from), decoded))
    return _without_dropped(db, found)


def resolved(
    db: sqlite3.Connection, facts: Sequence[Fact], as_of: int | None = None
) -> Record | None:
    """What the facts of a record that nobody dropped come to, by the rollbacks of their logs."""
    branches: dict[Key, Branches] = {}
    for log in {fact.log for fact in facts}:
        rows = db.execute("SELECT went_by, went_to, at FROM rollbacks WHERE log = ?", (str(log),))
        branches[log] = Branches((by, to) for by, to, at in rows if as_of is None or at <= as_of)
    return resolve(facts, lambda fact: branches[fact.log].stands(fact.anchor), as_of)


def _without_dropped(db: sqlite3.Connection, facts: Sequence[Fact]) -> list[Fact]:
    """The facts that no operator dropped, nor an event that taught them."""
    gone = {
        (log, offset)
        for log in {fact.log for fact in facts}
        for (offset,) in db.execute("SELECT at_offset FROM dropped WHERE log = ?", (str(log),))
    }
    if not gone:
        return list(facts)
    return [
        fact
        for fact in facts
        if gone.isdisjoint((fact.log, offset) for offset in (fact.offset, *fact.learnt_from))
    ]


def renew(db: sqlite3.Connection, place: Place) -> None:
    """Work a record out anew, and bring its row and the index up to date."""
    facts = facts_of(db, place)
    stated = [fact for fact in facts if isinstance(fact.data, MemorySaved | SkillSaved)]
    texts = {_text_of(fact) for fact in stated}
    known = dict(
        db.execute("SELECT text, number FROM texts WHERE scope = ? AND id = ?", place).fetchall()
    )
    for text in known.keys() - {text for text, *_ in texts}:
        db.execute("DELETE FROM texts WHERE number = ?", (known[text],))
        db.execute("DELETE FROM words WHERE rowid = ?", (known[text],))
    scope = decode_scope(place[0])
    for text, dates, speaker in sorted(texts):
        if text not in known:
            row = db.execute("INSERT INTO texts (scope, id, text) VALUES (?, ?, ?)", (*place, text))
            known[text] = row.lastrowid
            db.execute(
                "INSERT INTO words (rowid, scope, text, dates, speaker) VALUES (?, ?, ?, ?, ?)",
                (row.lastrowid, " ".join(scope_words(*scope)), text, dates, speaker),
            )
    if not texts:
        db.execute("DELETE FROM records WHERE scope = ? AND id = ?", place)
        return
    record = resolved(db, facts)
    db.execute(
        "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?)",
        (
            *place,
            scope.tenant,
            scope.user,
            min(fact.at for fact in stated) if record is None else record.created,
            None if record is None else _pack(record),
        ),
    )


def _text_of(fact: Fact) -> tuple[str, str, str]:
    """What the index has of a fact: its text, words of its date, and who said it."""
    data = fact.data
    dates = " ".join(_date_words(time_at(fact.at)))
    if isinstance(data, SkillSaved):
        return data.intent, dates, ""
    assert isinstance(data, MemorySaved)
    return data.text, dates, data.role or ""


def _date_words(time: str) -> list[str]:
    year, month, day = time[:10].split("-")
    return [year, MONTHS[int(month) - 1], str(int(day))]


MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)


@lru_cache(maxsize=4096)
def scope_words(
    tenant: str, user: str | None, channel: str | None, conversation: str | None
) -> tuple[str, ...]:
    """The words that stand for a scope in the index: one for each part that is given.

    They end in a digit, so that stemming leaves them whole.
    """
    parts = (("t", tenant), ("u", user), ("c", channel), ("v", conversation))
    return tuple(
        name + sha256(f"{tenant}\n{value}".encode("utf-8", "surrogatepass")).hexdigest()[:20] + "0"
        for name, value in parts
        if value is not None
    )


@lru_cache(maxsize=4096)
def encode_scope(scope: Scope) -> str:
    """A scope as it is stored."""
    return _encode(tuple(scope)).decode()


@lru_cache(maxsize=4096)
def decode_scope(text: str) -> Scope:
    """The scope of its stored form."""
    return Scope(*_scope(text))
