"""Vectors of a store's texts, in SQLite beside them, each of one model.

A vector goes with its text: a trigger deletes it, so erasures reach it whatever erases. Those of
two models stand side by side and are never compared; one model's are in use, and another one's take
their place once every text has one.

A search compares with the vectors of its own tenant or user alone. Up to ``EXACT`` of them are
compared exactly; of more, those are chosen whose numbers' signs agree best: 48 bytes a vector of
384 numbers, which are kept in memory.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from projections.errors import EmbeddingsUnavailable
from streams.embeddings.embedder import Vectors

logger = logging.getLogger(__name__)

TABLES = """
CREATE TABLE models (
  number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, size INTEGER NOT NULL);
CREATE TABLE model_in_use (one INTEGER PRIMARY KEY CHECK (one = 1), model INTEGER NOT NULL);
CREATE TABLE vectors (
  number INTEGER PRIMARY KEY AUTOINCREMENT, model INTEGER NOT NULL, text INTEGER NOT NULL,
  tenant TEXT NOT NULL, user TEXT, signs BLOB NOT NULL, vector BLOB NOT NULL);
CREATE UNIQUE INDEX vectors_of_text ON vectors (text, model);
CREATE INDEX vectors_of_user ON vectors (model, tenant, user, number, signs);
CREATE TABLE vectors_gone (one INTEGER PRIMARY KEY CHECK (one = 1), times INTEGER NOT NULL);
INSERT INTO vectors_gone VALUES (1, 0);
CREATE TRIGGER text_gone AFTER DELETE ON texts BEGIN
  DELETE FROM vectors WHERE text = OLD.number;
END;
CREATE TRIGGER text_before_gone AFTER UPDATE OF before ON texts BEGIN
  DELETE FROM vectors WHERE text = NEW.number;
END;
CREATE TRIGGER vector_gone AFTER DELETE ON vectors BEGIN
  UPDATE vectors_gone SET times = times + 1;
END;
"""
EXACT = 1_000
"""Vectors that a search compares exactly."""
SCANNED = 10_000
"""Texts that are looked at in one turn, for those without a vector."""
IN_MEMORY = 1_000_000
"""Signs that are kept in memory: 48 bytes each, of 384 numbers."""
_READ = "t.text || ifnull(char(10) || b.text, '')"
"""What a vector is made of: a text, and what was said just before."""
_encode = msgspec.json.Encoder().encode
_Signs = npt.NDArray[np.uint64]


class Near(NamedTuple):
    """A text by its number, and the cosine of its vector to the question's."""

    text: int
    cosine: float


class NewVector(NamedTuple):
    """A text by its number, whose it is, and its vector; ``made_of``: of which text, where that is
    known. A number may be another text's by now.
    """

    text: int
    tenant: str
    user: str | None
    vector: Vectors
    made_of: str | None = None


def add_vectors(db: sqlite3.Connection, model: str, vectors: Sequence[NewVector]) -> int:
    """Add vectors of texts that are still there, and still of those; returns how many.

    Raises:
        EmbeddingsUnavailable: they are not as long as the model's others.
    """
    if not vectors:
        return 0
    size = len(vectors[0].vector)
    db.execute(
        "INSERT INTO models (name, size) VALUES (?, ?)"
        " ON CONFLICT DO UPDATE SET size = excluded.size WHERE size = 0",
        (model, size),
    )
    number, known = db.execute(
        "SELECT number, size FROM models WHERE name = ?", (model,)
    ).fetchone()
    if any(len(one.vector) != known for one in vectors):
        raise EmbeddingsUnavailable(
            f"model {model} now makes vectors of {size} numbers; the stored ones have {known}:"
            " give the endpoint another name"
        )
    added = db.executemany(
        "INSERT OR IGNORE INTO vectors (model, text, tenant, user, signs, vector)"
        " SELECT ?1, t.number, ?2, ?3, ?4, ?5 FROM texts t LEFT JOIN texts b ON b.number = t.before"
        " WHERE t.number = ?6 AND json_extract(t.scope, '$[0]') = ?2"
        f" AND json_extract(t.scope, '$[1]') IS ?3 AND ifnull(?7 = {_READ}, true)",
        [
            (
                number,
                one.tenant,
                one.user,
                _signs(one.vector).tobytes(),
                one.vector.astype(np.float16).tobytes(),
                one.text,
                one.made_of,
            )
            for one in vectors
        ],
    )
    return added.rowcount


def texts_without(
    db: sqlite3.Connection, model: str, after: int, limit: int
) -> tuple[list[Any], int | None]:
    """Rows ``(number, scope, text)`` of texts behind a number that have no vector of a model, and
    where to go on; None: that was the last one. What is said is understood by what was said just
    before, so that follows it in the row.
    """
    scanned = "SELECT number FROM texts WHERE number > ? ORDER BY number LIMIT 1 OFFSET ?"
    row = db.execute(scanned, (after, SCANNED - 1)).fetchone()
    last = None if row is None else int(row[0])
    rows = db.execute(
        f"SELECT t.number, t.scope, {_READ}"
        " FROM texts t LEFT JOIN texts b ON b.number = t.before"
        " WHERE t.number > ?2 AND (?4 IS NULL OR t.number <= ?4)"
        " AND NOT EXISTS (SELECT 1 FROM vectors v"
        " JOIN models m ON m.number = v.model WHERE v.text = t.number AND m.name = ?1)"
        " ORDER BY t.number LIMIT ?3",
        (model, after, limit, last),
    ).fetchall()
    return rows, last


def model_in_use(db: sqlite3.Connection) -> str | None:
    """The model whose vectors are searched; None before the first is complete."""
    row = db.execute(
        "SELECT m.name FROM model_in_use u JOIN models m ON m.number = u.model"
    ).fetchone()
    return None if row is None else str(row[0])


def deleted_vectors(db: sqlite3.Connection) -> int:
    """How often a vector was deleted."""
    (times,) = db.execute("SELECT times FROM vectors_gone").fetchone()
    return int(times)


def use_model(db: sqlite3.Connection, model: str) -> None:
    """Search a model's vectors from now on, and delete those of all others. One that has made none
    yet is of size 0.
    """
    db.execute("INSERT OR IGNORE INTO models (name, size) VALUES (?, 0)", (model,))
    (number,) = db.execute("SELECT number FROM models WHERE name = ?", (model,)).fetchone()
    db.execute("INSERT OR REPLACE INTO model_in_use VALUES (1, ?)", (number,))
    db.execute("DELETE FROM vectors WHERE model <> ?", (number,))
    db.execute("DELETE FROM models WHERE number <> ?", (number,))


class Signs:
    """The signs of vectors in memory, by the scope that they are searched in. What was added since
    is read with the next search; once anything was deleted, all are read anew.
    """

    def __init__(self, most: int = IN_MEMORY) -> None:
        self._most = most
        self._gone = -1
        self._scopes: OrderedDict[tuple[Any, ...], tuple[npt.NDArray[np.int64], _Signs]] = (
            OrderedDict()
        )

    def nearest(
        self, db: sqlite3.Connection, vector: Vectors, tenant: str, user: str | None
    ) -> list[Near]:
        """The texts of a tenant, or of a user, that are nearest to a vector of the model in use,
        best first: ``EXACT`` at most.
        """
        row = db.execute(
            "SELECT m.number, m.size FROM model_in_use u JOIN models m ON m.number = u.model"
        ).fetchone()
        if row is None or row[1] != len(vector):
            return []
        numbers, signs = self._of(db, row[0], tenant, user)
        if len(numbers) > EXACT:
            words = np.bitwise_count(signs ^ _signs(vector))
            apart = words.sum(axis=1, dtype=np.uint16)
            numbers = numbers[np.argpartition(apart, EXACT)[:EXACT]]
        rows = db.execute(
            "SELECT text, vector FROM vectors WHERE number IN (SELECT value FROM json_each(?))"
            # The plus keeps SQLite from reading all of the scope by the other index.
            " AND +model = ? AND +tenant = ? AND (? OR +user = ?)",
            (_encode(numbers.tolist()).decode(), row[0], tenant, user is None, user),
        ).fetchall()
        if not rows:
            return []
        stored = np.frombuffer(b"".join(one for _, one in rows), np.float16).reshape(len(rows), -1)
        cosines = stored.astype(np.float32) @ vector
        order = np.argsort(-cosines, kind="stable")
        return [Near(rows[i][0], float(cosines[i])) for i in order]

    def _of(
        self, db: sqlite3.Connection, model: int, tenant: str, user: str | None
    ) -> tuple[npt.NDArray[np.int64], _Signs]:
        gone = deleted_vectors(db)
        if gone != self._gone:
            self._scopes.clear()
            self._gone = gone
        scope = (model, tenant, user)
        numbers, signs = self._scopes.pop(scope, (np.empty(0, np.int64), np.empty(0, np.uint64)))
        rows = db.execute(
            "SELECT number, signs FROM vectors WHERE model = ? AND tenant = ?"
            f" AND {'user = ?' if user is not None else '? IS NULL'} AND number > ?",
            (model, tenant, user, int(numbers.max(initial=0))),
        ).fetchall()
        if rows:
            numbers = np.concatenate([numbers, np.array([row[0] for row in rows], np.int64)])
            added = np.frombuffer(b"".join(row[1] for row in rows), np.uint64)
            added = added.reshape(len(rows), -1)
            signs = added if not len(signs) else np.concatenate([signs, added])
        self._scopes[scope] = numbers, signs
        held = sum(len(known) for known, _ in self._scopes.values())
        while held > self._most and len(self._scopes) > 1:
            held -= len(self._scopes.popitem(last=False)[1][0])
        return numbers, signs


def _signs(vector: Vectors) -> _Signs:
    """One bit a number, in whole words of 64."""
    bits = np.packbits(vector > 0)
    return np.pad(bits, (0, -len(bits) % 8)).view(np.uint64)


def copy_vectors(db: sqlite3.Connection, path: Path) -> None:
    """Copy the vectors of equal texts in equal scopes from another store's file; none of one that
    was deleted or is damaged.
    """
    if not path.exists():
        return
    try:
        db.execute("ATTACH ? AS other", (str(path),))
        try:
            db.executescript(_COPY)
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
            db.execute("DETACH other")
    except sqlite3.DatabaseError as error:
        logger.warning("no vectors are taken over from %s: %s", path, error)


_COPY = """
BEGIN;
INSERT OR IGNORE INTO models SELECT * FROM other.models;
INSERT OR IGNORE INTO model_in_use SELECT * FROM other.model_in_use;
INSERT OR IGNORE INTO vectors (model, text, tenant, user, signs, vector)
  SELECT v.model, t.number, v.tenant, v.user, v.signs, v.vector
  FROM texts t JOIN records r ON r.number = t.owner
  JOIN other.records o ON o.id = r.id AND o.scope = r.scope
  JOIN other.texts x ON x.owner = o.number AND x.text = t.text
  JOIN other.vectors v ON v.text = x.number;
COMMIT;
"""
