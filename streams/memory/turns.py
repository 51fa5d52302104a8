"""Which turns of the conversations stand, and what finds them: an index in SQLite.

It is fed with the events of the log in order, conversation by conversation. What an event does here
is what the fold makes of it: repeats and events whose conditions are not met are passed over; a
rollback hides what it abandons; a dropped event and an erasure delete. Of other events than
messages only their ids are kept, because a rollback may name them.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from projections.events import types as events
from projections.events.times import time_at
from projections.fold.outcomes import id_hash_of
from projections.memory.branches import Branches
from projections.memory.identity import scope_of
from projections.memory.raw_turns import Turn, turn_text
from projections.memory.text_scores import TextScore
from projections.memory.words import date_words
from projections.names import Key, Position, parse_key
from streams.memory import word_index
from streams.memory.store import Filter
from streams.memory.talks import Talk, Talks
from streams.memory.word_index import (
    Text,
    add_texts,
    find_texts,
    merge_words,
    remove_texts,
    transaction,
)

TABLES = """
CREATE TABLE checkpoints (partition INTEGER PRIMARY KEY, at INTEGER NOT NULL);
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
    """A turn that a search found: its score and relevance are those of its text."""

    turn: Turn
    score: float
    relevance: float


class SqliteTurns:
    """The turns of all conversations, in a file that goes with it. Calls may come from any thread;
    they take turns.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._db = self._open()

    @staticmethod
    def _open() -> sqlite3.Connection:
        # Without a name it is a file of this connection alone, which goes with it.
        db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        db.executescript("PRAGMA synchronous = OFF; PRAGMA secure_delete = ON")
        db.executescript(f"BEGIN; {TABLES} {Talks.TABLES} {word_index.TABLES} COMMIT")
        return db

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._db.close()

    def drop(self) -> None:
        """Delete everything, the checkpoints too."""
        with self._lock:
            self._db.close()
            self._db = self._open()

    def checkpoints(self) -> dict[int, int]:
        """Of each partition of the log the offset of the last event that was taken in."""
        with self._lock:
            return dict(self._db.execute("SELECT partition, at FROM checkpoints"))

    # -- feeding

    def apply(self, said: Sequence[Said], checkpoints: Mapping[int, int]) -> None:
        """Take events in, those of each log in order, with the checkpoints after them: all of it or
        nothing.
        """
        with self._turn() as db:
            batch = _Batch(db)
            for one in said:
                batch.take(one)
            batch.write()
            db.executemany("INSERT OR REPLACE INTO checkpoints VALUES (?, ?)", checkpoints.items())
        if batch.wiped:
            merge_words(self._turn)

    @contextmanager
    def _turn(self) -> Iterator[sqlite3.Connection]:
        with self._lock, transaction(self._db):
            yield self._db

    # -- reading

    def search(self, only: Filter, stems: Collection[str], limit: int) -> list[TurnHit]:
        """The turns that stand and whose text has some of the stems, best first."""
        if only.types or only.topic is not None:
            return []
        hits: list[TurnHit] = []
        with self._lock:
            branches: dict[int, Branches] = {}
            admits = only.admits_place
            for score in find_texts(self._db, only.tenant, only.user, stems, admits):
                turn = self._turn_of(score, only, branches)
                if turn is not None and only.admits_turn(turn):
                    hits.append(TurnHit(turn, score.score, score.relevance))
                    if len(hits) == limit:
                        break
        return hits

    def _turn_of(
        self, score: TextScore, only: Filter, branches: dict[int, Branches]
    ) -> Turn | None:
        row = self._db.execute(
            "SELECT t.talk, t.at_offset, t.at, t.role, x.scope, x.speaker, x.text, l.log,"
            " l.partition FROM turns t JOIN texts x USING (number)"
            " JOIN talks l ON l.number = t.talk WHERE t.number = ?",
            (score.number,),
        ).fetchone()
        if row is None:
            return None
        talk, offset, at, role, scope, speaker, text, log, partition = row
        if talk not in branches:
            branches[talk] = Talks(self._db).branches(talk, only.as_of)
        key = parse_key(log.encode())
        if key is None or not branches[talk].stands(offset):
            return None
        return Turn(
            scope=word_index.decode_scope(scope),
            conversation=key.conversation,
            position=str(Position(partition, offset)),
            role=role,
            speaker=speaker,
            text=text,
            at=at,
        )

    def count(self) -> int:
        """How many turns there are, those that do not stand among them."""
        with self._lock:
            found: int = self._db.execute("SELECT count(*) FROM turns").fetchone()[0]
            return found


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

    def take(self, one: Said) -> None:
        """What one event does."""
        talk, event, offset = self._talks.of(one.log, one.position), one.event, one.position.offset
        if talk.erased or offset <= talk.reached:
            return
        if isinstance(event, events.ErasedEvent):
            self.write()
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
            self.write()
            target = self._talks.target(talk, offset, event.data.to)
            if target is not None:
                self._talks.roll_back(talk, offset, target, one.at)
                talk.newest = self._newest(talk)
        elif isinstance(event, events.EventDroppedEvent):
            self.write()
            target = self._talks.target(talk, offset, event.data.position)
            if target is not None:
                self._delete(talk, target)
                talk.newest = self._newest(talk)

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

    def _newest(self, talk: Talk) -> int | None:
        """The last turn that stands."""
        branches = self._talks.branches(talk.number)
        rows = self._db.execute(
            "SELECT number, at_offset FROM turns WHERE talk = ? ORDER BY at_offset DESC",
            (talk.number,),
        )
        return next((number for number, offset in rows if branches.stands(offset)), None)

    def _delete(self, talk: Talk, offset: int | None) -> None:
        """Delete a turn, or all of a conversation."""
        where, values = ("", ()) if offset is None else (" AND at_offset = ?", (offset,))
        rows = self._db.execute(
            f"SELECT number FROM turns WHERE talk = ?{where}", (talk.number, *values)
        ).fetchall()
        remove_texts(self._db, [number for (number,) in rows])
        self._db.execute(f"DELETE FROM turns WHERE talk = ?{where}", (talk.number, *values))
        self.wiped = self.wiped or bool(rows)
