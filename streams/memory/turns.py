"""Which turns of the conversations stand, and what finds them: an index in SQLite.

It is fed with the events of the log in order, conversation by conversation. What an event does here
is what the fold makes of it: repeats and events whose conditions are not met are passed over; a
rollback hides what it abandons; a dropped event and an erasure delete. Of other events than
messages only their ids are kept, because a rollback may name them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from projections.events import types as events
from projections.events.times import time_at
from projections.fold.outcomes import id_hash_of
from projections.memory.branches import Branches
from projections.memory.identity import Scope, scope_of
from projections.memory.raw_turns import Turn, turn_text
from projections.memory.words import date_words
from projections.names import Key, Position, parse_key
from streams.memory import word_index
from streams.memory.sqlite_index import SqliteIndex
from streams.memory.sqlite_vectors import SqliteVectors
from streams.memory.store import Filter
from streams.memory.talks import Stretch, Talk, Talks
from streams.memory.word_index import (
    Admits,
    Text,
    add_texts,
    find_texts,
    move_texts,
    remove_texts,
)

TABLES = """
CREATE TABLE topic (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL);
CREATE TABLE unread (release TEXT PRIMARY KEY);
CREATE TABLE turns (
  number INTEGER PRIMARY KEY, talk INTEGER NOT NULL, at_offset INTEGER NOT NULL,
  at INTEGER NOT NULL, role TEXT NOT NULL);
CREATE UNIQUE INDEX turns_of_talk ON turns (talk, at_offset);
"""


class Said(NamedTuple):
    """An event of a log, where it stands, and its time in microseconds since 1970."""

    log: Key
    position: Position
    at: int
    event: events.AnyEvent


class TurnHit(NamedTuple):
    """A turn that a search found; all else is as :class:`streams.memory.store.Hit` has it."""

    turn: Turn
    score: float
    relevance: float
    coverage: float = 1.0

    @property
    def place(self) -> str:
        """Which turn it is."""
        return self.turn.id


class SqliteTurns(SqliteIndex):
    """The turns of all conversations, in a file or in one that goes with it."""

    TABLES = TABLES + Talks.TABLES
    VERSION = 8
    WHAT = "the index of turns"

    def __init__(self, path: Path | None = None, *, building: bool = False) -> None:
        self.vectors = SqliteVectors(self._turn, _hit)
        """The vectors of its texts."""
        super().__init__(path, building=building)

    def _begins(self) -> None:
        self.vectors.begin()

    def belongs_to(self, topic: str) -> bool:
        """Whether its turns are of the topic of this id; it is of the first that is named."""
        with self._turn(write=True) as db:
            db.execute("INSERT OR IGNORE INTO topic VALUES (1, ?)", (topic,))
            (known,) = db.execute("SELECT id FROM topic").fetchone()
            return bool(known == topic)

    def lacks_unread_of(self, release: str) -> bool:
        """Whether it lacks records that another release could not read. ``release`` may read them:
        then they count from where they stand, before what came since.
        """
        with self._turn() as db:
            row = db.execute("SELECT 1 FROM unread WHERE release <> ?", (release,)).fetchone()
            return row is not None

    def apply(
        self,
        said: Sequence[Said],
        checkpoints: Mapping[int, int],
        unread_by: str | None = None,
    ) -> None:
        """Take events in, those of each log in order, with the checkpoints after them: all of it or
        nothing. ``unread_by`` is the release that could not read others up to there, if some were.
        """
        with self._turn(write=True) as db:
            if unread_by is not None:
                db.execute("INSERT OR IGNORE INTO unread VALUES (?)", (unread_by,))
            batch = _Batch(db)
            for one in said:
                batch.take(one)
            batch.write()
            due = self._note(db, checkpoints, wiped=batch.wiped)
        if due:
            self._wipe()

    # -- reading

    def search(self, only: Filter, stems: Collection[str], limit: int) -> list[TurnHit]:
        """The turns that stand and whose text has some of the stems, best first."""
        if only.types or only.topic is not None:
            return []
        hits: list[TurnHit] = []
        with self._search_turn() as db:
            branches: dict[int, Branches] = {}
            admits = _admits(db, only)
            for number, *score in find_texts(db, only.within, stems, admits):
                turn = _turn_of(db, only, number, branches)
                if turn is not None:
                    hits.append(TurnHit(turn, *score))
                    if len(hits) == limit:
                        break
        return hits

    def count(self) -> int:
        """How many turns there are, those that do not stand among them."""
        with self._turn() as db:
            found: int = db.execute("SELECT count(*) FROM turns").fetchone()[0]
            return found


def _admits(db: sqlite3.Connection, only: Filter) -> Admits | None:
    """Which texts a search may find; None where all of the tenant's or user's may be."""
    if only == Filter(only.tenant, only.user, kinds=only.kinds, as_of=only.as_of):
        return None
    timed = only.since is not None or only.until is not None
    branches: dict[int, Branches] = {}

    def admits(texts: Mapping[int, tuple[Scope, str]]) -> Collection[int]:
        return [
            number
            for number, place in texts.items()
            if only.admits_place(*place)
            and (not timed or _turn_of(db, only, number, branches) is not None)
        ]

    return admits


def _hit(db: sqlite3.Connection, only: Filter) -> Callable[[int, float], TurnHit | None]:
    branches: dict[int, Branches] = {}

    def hit(text: int, cosine: float) -> TurnHit | None:
        turn = _turn_of(db, only, text, branches)
        return None if turn is None else TurnHit(turn, cosine, cosine)

    return hit


def _turn_of(
    db: sqlite3.Connection, only: Filter, text: int, branches: dict[int, Branches]
) -> Turn | None:
    """The turn that a text is, where it stands and the filter admits it."""
    row = db.execute(
        "SELECT t.talk, t.at_offset, t.at, t.role, x.scope, x.speaker, x.text, l.log,"
        " l.partition FROM turns t JOIN texts x USING (number)"
        " JOIN talks l ON l.number = t.talk WHERE t.number = ?",
        (text,),
    ).fetchone()
    if row is None:
        return None
    talk, offset, at, role, scope, speaker, said, log, partition = row
    if talk not in branches:
        branches[talk] = Talks(db).branches(talk, only.as_of)
    key = parse_key(log.encode())
    if key is None or not branches[talk].stands(offset):
        return None
    turn = Turn(
        scope=word_index.decode_scope(scope),
        conversation=key.conversation,
        position=str(Position(partition, offset)),
        role=role,
        speaker=speaker,
        text=said,
        at=at,
    )
    return turn if only.admits_turn(turn) else None


class _Batch:
    """Events on their way into the tables."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.wiped = False
        self._db = db
        self._talks = Talks(db)
        self._texts: list[Text] = []
        self._turns: list[tuple[int, int, int, int, str]] = []
        (self._last,) = db.execute("SELECT ifnull(max(number), 0) FROM turns").fetchone()

    def write(self) -> None:
        """Write what was collected."""
        add_texts(self._db, self._texts)
        self._db.executemany("INSERT INTO turns VALUES (?, ?, ?, ?, ?)", self._turns)
        self._texts, self._turns = [], []
        self._talks.write()

    def _write_before(self, talk: Talk) -> None:
        """Write what was collected before an event that reads it, and changes its conversation."""
        self.write()
        talk.changed = True

    def take(self, one: Said) -> None:
        """What one event does."""
        talk, event, offset = self._talks.of(one.log, one.position), one.event, one.position.offset
        if talk.erased or offset <= talk.reached:
            return
        if isinstance(event, events.ErasedEvent):
            self._write_before(talk)
            self._delete(talk, None)
            self._talks.erase(talk)
            return
        if not self._talks.admit(talk, offset, id_hash_of(event.id)[:8], event):
            return
        if isinstance(event, events.OpenedEvent):
            self._talks.open(talk, offset, event.data)
        elif isinstance(event, events.MessageEvent):
            self._said(talk, one, event.data)
        elif isinstance(event, events.RollbackEvent):
            self._write_before(talk)
            target = self._talks.target(talk, offset, event.data.to)
            if target is not None:
                self._talks.roll_back(talk, offset, target, one.at)
        elif isinstance(event, events.EventDroppedEvent):
            self._write_before(talk)
            target = self._talks.target(talk, offset, event.data.position)
            if target is not None:
                self._delete(talk, target)
                for stretch in self._talks.drop(talk, target):
                    self._hand_back(talk, one.log, stretch)

    def _said(self, talk: Talk, one: Said, data: events.Message) -> None:
        text = turn_text(data)
        if not text:
            return
        self._last += 1
        scope = scope_of(one.log, talk.user, talk.channel)
        dates, speaker = date_words(time_at(one.at)), data.name or data.role
        session = str(one.log)
        self._texts.append(
            Text(self._last, talk.number, scope, session, text, dates, speaker, before=talk.newest)
        )
        self._turns.append((self._last, talk.number, one.position.offset, one.at, data.role))
        talk.newest = self._last

    def _hand_back(self, talk: Talk, log: Key, stretch: Stretch) -> None:
        """Give turns to whose they are, as an event before them that said otherwise was taken out.
        The fold may never have had it: it parks a conversation at what it cannot fold.
        """
        scope = scope_of(log, stretch.user, stretch.channel)
        rows = self._db.execute(
            "SELECT t.number FROM turns t JOIN texts x USING (number)"
            " WHERE t.talk = ? AND t.at_offset > ? AND t.at_offset < ? AND x.scope <> ?",
            (talk.number, stretch.first, stretch.end, word_index.encode_scope(scope)),
        ).fetchall()
        if rows:
            move_texts(self._db, [number for (number,) in rows], scope)

    def _delete(self, talk: Talk, offset: int | None) -> None:
        """Delete a turn, or all of a conversation."""
        where, values = ("", ()) if offset is None else (" AND at_offset = ?", (offset,))
        rows = self._db.execute(
            f"SELECT number FROM turns WHERE talk = ?{where}", (talk.number, *values)
        ).fetchall()
        remove_texts(self._db, [number for (number,) in rows])
        self._db.execute(f"DELETE FROM turns WHERE talk = ?{where}", (talk.number, *values))
        self.wiped = self.wiped or bool(rows)
