"""A full-text index in SQLite whose answers depend on the texts of those who ask alone.

Each word is indexed once with the code of its tenant and once with that of its user, or of its
conversation if that is anonymous. So a question reads the words of its own tenant, user or
conversation: others' texts cost it no time and change no score. FTS5 keeps the words, and its
vocabulary table says where each occurs; the scores are made in ``projections.memory.text_scores``.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from hashlib import sha256
from heapq import nlargest
from operator import itemgetter
from typing import NamedTuple

import msgspec

from projections.memory.identity import Scope
from projections.memory.text_scores import (
    WORDS,
    Corpus,
    Place,
    TextScore,
    rarity_of,
    text_scores,
)
from projections.memory.words import stems_of

BUILT_AT_ONCE = 1 << 20
"""Bytes of words that are kept in memory while an index is built, before they are written."""
MERGED = 500
"""Pages of the index that are merged at once."""
TABLES = """
CREATE TABLE texts (
  number INTEGER PRIMARY KEY, owner INTEGER NOT NULL, scope TEXT NOT NULL, session TEXT NOT NULL,
  text TEXT NOT NULL, dates TEXT NOT NULL, speaker TEXT NOT NULL, tags TEXT NOT NULL,
  length INTEGER NOT NULL, before INTEGER);
CREATE INDEX texts_of_owner ON texts (owner);
CREATE INDEX texts_before ON texts (before) WHERE before IS NOT NULL;
CREATE TABLE sizes (code TEXT PRIMARY KEY, texts INTEGER NOT NULL, words INTEGER NOT NULL)
  WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5 (
  text, dates, speaker, tags, content = '', columnsize = 0, tokenize = "ascii tokenchars '=_'");
CREATE VIRTUAL TABLE places USING fts5vocab (words, 'instance');
"""
COUNTED = 10_000
"""Texts with a word that are counted to say how rare it is; one with more is as rare as that."""
MOST = 2_000
"""Places of words that make a text one that may be found. The rarest words come first; a word that
does not go in any more counts for the texts that rarer ones found.
"""
COMMON = 12
"""Words that count so, at most."""
KEPT = 300
"""Texts that are scored, those with the rarest words, and those that stand behind them."""
_encode = msgspec.json.Encoder().encode
_scope = msgspec.json.Decoder(tuple[str, str | None, str | None, str | None]).decode


Admits = Callable[[Mapping[int, tuple[Scope, str]]], Collection[int]]
"""Those of texts that may be found, by their numbers; each is given with its scope and session."""


class Text(NamedTuple):
    """A text to index: what it is of, whose it is, what it was said in, words for its tags
    (``projections.memory.words.tag_word``), and the number of the text before it.
    """

    number: int
    owner: int
    scope: Scope
    session: str
    text: str
    dates: str = ""
    speaker: str = ""
    tags: str = ""
    before: int | None = None


def add_texts(db: sqlite3.Connection, texts: Iterable[Text]) -> None:
    """Index texts whose numbers are new."""
    sizes: dict[str, list[int]] = {}
    rows, words = [], []
    for one in texts:
        number, owner, scope, session, text, dates, speaker, tags, before = one
        stems = stems_of(text)
        packed, length = encode_scope(scope), len(stems)
        rows.append((number, owner, packed, session, text, dates, speaker, tags, length, before))
        words.append((number, *_tokens(scope, stems, dates, speaker, tags)))
        _count(sizes, scope, session, 1, length)
    marks = ", ".join("?" * 10)
    db.executemany(f"INSERT INTO texts VALUES ({marks})", rows)
    db.executemany(
        "INSERT INTO words (rowid, text, dates, speaker, tags) VALUES (?, ?, ?, ?, ?)", words
    )
    _resize(db, sizes)


def remove_texts(db: sqlite3.Connection, numbers: Sequence[int]) -> None:
    """Delete texts. Their words stay in parts of the index's file until :func:`merge_words`."""
    if not numbers:
        return
    sizes: dict[str, list[int]] = {}
    rows = db.execute(
        "SELECT number, scope, session, text, dates, speaker, tags, length FROM texts"
        " WHERE number IN (SELECT value FROM json_each(?))",
        (_encode(numbers).decode(),),
    ).fetchall()
    for number, packed, session, text, dates, speaker, tags, length in rows:
        scope = decode_scope(packed)
        db.execute(
            "INSERT INTO words (words, rowid, text, dates, speaker, tags)"
            " VALUES ('delete', ?, ?, ?, ?, ?)",
            (number, *_tokens(scope, stems_of(text), dates, speaker, tags)),
        )
        _count(sizes, scope, session, -1, -length)
    gone = [(row[0],) for row in rows]
    db.executemany("DELETE FROM texts WHERE number = ?", gone)
    db.executemany("UPDATE texts SET before = NULL WHERE before = ?", gone)
    _resize(db, sizes)
    codes = ((code,) for code in sizes)
    db.executemany("DELETE FROM sizes WHERE code = ? AND texts <= 0", codes)


def move_texts(db: sqlite3.Connection, numbers: Sequence[int], scope: Scope) -> None:
    """Put texts into another scope. Vectors are made of them anew."""
    wanted = _encode(numbers).decode()
    moved = [
        Text(number, owner, scope, *rest)
        for number, owner, *rest in db.execute(
            "SELECT number, owner, session, text, dates, speaker, tags, before FROM texts"
            " WHERE number IN (SELECT value FROM json_each(?))",
            (wanted,),
        ).fetchall()
    ]
    behind = db.execute(
        "SELECT before, number FROM texts WHERE before IN (SELECT value FROM json_each(?))",
        (wanted,),
    ).fetchall()
    remove_texts(db, numbers)
    add_texts(db, moved)
    db.executemany("UPDATE texts SET before = ? WHERE number = ?", behind)


def _count(sizes: dict[str, list[int]], scope: Scope, session: str, texts: int, words: int) -> None:
    codes = _codes(scope)
    if session:
        codes = (*codes, _code(scope.tenant, "session", session))
    for code in codes:
        size = sizes.setdefault(code, [0, 0])
        size[0] += texts
        size[1] += words


def begin_building(db: sqlite3.Connection) -> None:
    """Write whole batches out at once, and merge them at the end: nobody reads yet."""
    _configure(db, hashsize=BUILT_AT_ONCE, automerge=0)


def end_building(db: sqlite3.Connection) -> None:
    """Make the index one that is read, and written to in small batches."""
    db.execute("INSERT INTO words (words) VALUES ('optimize')")
    _configure(db, hashsize=1 << 20, automerge=4)  # what FTS5 has by default


def _configure(db: sqlite3.Connection, **options: int) -> None:
    db.executemany("INSERT INTO words (words, rank) VALUES (?, ?)", options.items())


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All that is written within, or nothing of it."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk may have ended it already
            db.execute("ROLLBACK")
        raise


def merge_words(turn: Callable[[], AbstractContextManager[sqlite3.Connection]]) -> None:
    """Rewrite the index: deleted words stay in its old parts until these are merged. Each step is
    a ``turn`` of its own, a transaction: readers take turns with it.
    """
    pages, done = -MERGED, False  # less than nothing: begin to merge all parts
    while not done:
        with turn() as db:
            before = db.total_changes
            db.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (pages,))
            done = db.total_changes - before < 2
        pages = MERGED
        time.sleep(0.001)  # who waits gets a turn


def find_texts(
    db: sqlite3.Connection, within: Scope, stems: Iterable[str], admits: Admits | None = None
) -> list[TextScore]:
    """The scores of texts that have some of the first stems, best first.

    Args:
        within: whose texts: a tenant's, a user's, or those of an anonymous conversation.
        admits: None: all of them may be found.
    """
    code = _codes(within)[-1]
    corpus = Corpus(
        *(db.execute("SELECT texts, words FROM sizes WHERE code = ?", (code,)).fetchone() or (0, 0))
    )
    having = _having(db, code, list(dict.fromkeys(stems))[:WORDS])
    found, common = _places(db, code, having)
    rarity = {stem: rarity_of(corpus, stem, n) for stem, n in having.items()}
    weights: dict[int, float] = {}
    for stem, at in found.items():
        _weigh(weights, rarity[stem], at)
    if admits is not None:
        weights = _admitted(db, weights, admits)
    weights = _best(weights, 3 * KEPT)
    for stem, at in _common_places(db, code, common, weights).items():
        found[stem] = at
        _weigh(weights, rarity[stem], at)
    weights = _best(weights, KEPT)
    if not weights:
        return []
    rows = db.execute(
        "SELECT t.number, t.scope, t.session, t.length + ifnull(b.length, 0), t.before, t.speaker"
        " FROM texts t LEFT JOIN texts b ON b.number = t.before"
        " WHERE t.number IN (SELECT value FROM json_each(?1))"
        " OR t.before IN (SELECT value FROM json_each(?1))",
        (_encode(list(weights)).decode(),),
    )
    near = {number: (decode_scope(packed), *rest) for number, packed, *rest in rows}
    texts = {
        number: (scope, session)
        for number, (scope, session, *_) in near.items()
        if scope.tenant == within.tenant
        and within.user in (None, scope.user)
        and within.conversation in (None, scope.conversation)
    }
    # Those in ``weights`` were admitted; what stands behind them may be another's.
    behind = {number: place for number, place in texts.items() if number not in weights}
    shown = set(behind if admits is None else admits(behind)) | weights.keys()
    places = {
        number: Place(number, length, session, before, _speaker(speaker))
        for number in texts
        if number in shown
        for _, session, length, before, speaker in (near[number],)
    }
    sessions = {place.session for place in places.values()}
    sizes = dict(
        db.execute(
            "SELECT code, words FROM sizes WHERE code IN (SELECT value FROM json_each(?))",
            (_encode([_code(within.tenant, "session", one) for one in sessions]).decode(),),
        )
    )
    lengths = {one: sizes.get(_code(within.tenant, "session", one), 0) for one in sessions}
    return text_scores(corpus, having, found, places, lengths)


def _having(db: sqlite3.Connection, code: str, stems: Iterable[str]) -> dict[str, int]:
    """How many texts have each of these stems, the rarest first."""
    counts = db.execute(
        "SELECT value, (SELECT count(*) FROM"
        " (SELECT 1 FROM words WHERE words MATCH '\"' || ?1 || value || '\"' LIMIT ?2))"
        " FROM json_each(?3)",
        (code, COUNTED, _encode(list(stems)).decode()),
    )
    return dict(sorted(counts, key=itemgetter(1, 0)))


def _weigh(weights: dict[int, float], rarity: float, at: Iterable[tuple[int, str]]) -> None:
    for number in {number for number, _ in at}:
        weights[number] = weights.get(number, 0.0) + rarity


def _best(weights: dict[int, float], most: int) -> dict[int, float]:
    return (
        weights
        if len(weights) <= most
        else dict(nlargest(most, weights.items(), key=itemgetter(1)))
    )


def _places(
    db: sqlite3.Connection, code: str, having: Mapping[str, int]
) -> tuple[dict[str, list[tuple[int, str]]], list[str]]:
    """Where the rarest stems occur, and which stems are left."""
    found: dict[str, list[tuple[int, str]]] = {}
    common: list[str] = []
    left = MOST
    for stem, count in having.items():
        if not count:
            continue
        if found and count > left:
            common.append(stem)
            continue
        left -= count
        found[stem] = db.execute(
            "SELECT doc, col FROM places WHERE term = ? LIMIT ?", (code + stem, MOST)
        ).fetchall()
    return found, common


def _common_places(
    db: sqlite3.Connection, code: str, stems: Sequence[str], numbers: Iterable[int]
) -> dict[str, list[tuple[int, str]]]:
    """Where the rarest of these stems occur in these texts."""
    found: dict[str, list[tuple[int, str]]] = {}
    if not stems:
        return found
    rows = db.execute(
        "WITH texts AS MATERIALIZED (SELECT value FROM json_each(?2))"
        " SELECT s.value, doc, col FROM json_each(?3) s CROSS JOIN places p"
        " ON p.term = ?1 || s.value WHERE doc IN texts",
        (code, _encode(list(numbers)).decode(), _encode(stems[:COMMON]).decode()),
    )
    for stem, number, field in rows:
        found.setdefault(stem, []).append((number, field))
    return found


def _admitted(
    db: sqlite3.Connection, weights: Mapping[int, float], admits: Admits
) -> dict[int, float]:
    """Those of the texts by their numbers that may be found."""
    rows = db.execute(
        "SELECT number, scope, session FROM texts WHERE number IN (SELECT value FROM json_each(?))",
        (_encode(list(weights)).decode(),),
    )
    texts = {number: (decode_scope(packed), session) for number, packed, session in rows}
    return {number: weights[number] for number in admits(texts)}


def _tokens(
    scope: Scope, stems: Sequence[str], dates: str, speaker: str, tags: str
) -> Iterator[str]:
    codes = _codes(scope)
    for words in (stems, _few(dates), _few(speaker), tags.split()):
        yield " ".join([code + f" {code}".join(words) for code in codes]) if words else ""


def _resize(db: sqlite3.Connection, sizes: dict[str, list[int]]) -> None:
    db.executemany(
        "INSERT INTO sizes VALUES (?, ?, ?) ON CONFLICT DO UPDATE"
        " SET texts = texts + excluded.texts, words = words + excluded.words",
        ((code, *size) for code, size in sizes.items()),
    )


@lru_cache(maxsize=4096)
def _few(text: str) -> tuple[str, ...]:
    """The stems of a date's words or a speaker's name."""
    return tuple(stems_of(text))


@lru_cache(maxsize=4096)
def _speaker(name: str) -> frozenset[str]:
    return frozenset(_few(name))


@lru_cache(maxsize=4096)
def _codes(scope: Scope) -> tuple[str, ...]:
    """What a scope's words begin with: its tenant's code, and its user's or its conversation's."""
    of_tenant = _code(scope.tenant)
    if scope.user is not None:
        return of_tenant, _code(scope.tenant, "user", scope.user)
    if scope.conversation is not None:
        return of_tenant, _code(scope.tenant, "conversation", scope.conversation)
    return (of_tenant,)


@lru_cache(maxsize=65536)
def _code(tenant: str, *parts: str) -> str:
    """The same length for all, so that no code with a word is another code with another word."""
    named = "\n".join((tenant, *parts)).encode("utf-8", "surrogatepass")
    return sha256(named).hexdigest()[:16]


@lru_cache(maxsize=4096)
def encode_scope(scope: Scope) -> str:
    """A scope as it is stored."""
    return _encode(tuple(scope)).decode()


@lru_cache(maxsize=4096)
def decode_scope(text: str) -> Scope:
    """The scope of its stored form."""
    return Scope(*_scope(text))
