"""What the index of turns knows of each conversation: whose it is, its ids, runs and rollbacks."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import msgspec

from projections.errors import InvalidPosition
from projections.events import types as events
from projections.events.size_limits import out_of_bounds
from projections.fold.conditions import UNCONDITIONAL
from projections.fold.handlers import HANDLERS
from projections.fold.outcomes import id_hash_of
from projections.memory.branches import Branches
from projections.names import Key, Position, parse_position
from projections.window import turns as runs
from projections.window.recent_ids import LIMIT as RECENT_IDS
from projections.window.turns import Turns as Runs

MAX_OFFSET = (1 << 63) - 1
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(Runs).decode


@dataclass(slots=True)
class Talk:
    """A conversation. ``last`` is its last event that conditions see, ``reached`` the last that was
    taken in, ``newest`` the number of the last turn that stands.
    """

    number: int
    partition: int
    user: str | None = None
    channel: str | None = None
    last: int = -1
    reached: int = -1
    newest: int | None = None
    runs: Runs = runs.NONE
    erased: bool = False
    changed: bool = False


class Stretch(NamedTuple):
    """Whose the turns between two events are."""

    first: int
    end: int
    user: str | None
    channel: str | None


class _After(NamedTuple):
    """How a conversation stood after an event: its newest turn, and whose it was."""

    newest: int | None = None
    user: str | None = None
    channel: str | None = None


class Talks:
    """The conversations of an index, read and written through a connection."""

    TABLES: ClassVar[str] = """
CREATE TABLE talks (
  number INTEGER PRIMARY KEY, log TEXT NOT NULL UNIQUE, partition INTEGER NOT NULL, user TEXT,
  channel TEXT, last INTEGER, reached INTEGER, newest INTEGER, runs BLOB,
  erased INTEGER NOT NULL DEFAULT 0);
CREATE TABLE logged (talk INTEGER, at INTEGER, id BLOB, rejected INTEGER, PRIMARY KEY (talk, at))
  WITHOUT ROWID;
CREATE INDEX logged_ids ON logged (talk, id);
CREATE TABLE openings (
  talk INTEGER, at INTEGER, said_user TEXT, said_channel TEXT, user TEXT, channel TEXT,
  PRIMARY KEY (talk, at)) WITHOUT ROWID;
CREATE TABLE talk_rollbacks (
  talk INTEGER, went_by INTEGER, went_to INTEGER NOT NULL, at INTEGER NOT NULL, newest INTEGER,
  user TEXT, channel TEXT, PRIMARY KEY (talk, went_by)) WITHOUT ROWID;
"""
    """Beside what an opening or a rollback says stands what it led to (:class:`_After`): however
    many there are, the next one asks for the last of them alone.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._known: dict[Key, Talk] = {}

    def of(self, log: Key, position: Position) -> Talk:
        """A log's conversation; a new one is added."""
        talk = self._known.get(log)
        if talk is None:
            row = self._db.execute(
                "SELECT number, partition, user, channel, last, reached, newest, runs, erased"
                " FROM talks WHERE log = ?",
                (str(log),),
            ).fetchone()
            if row is None:
                number = self._db.execute(
                    "INSERT INTO talks (log, partition) VALUES (?, ?)",
                    (str(log), position.partition),
                ).lastrowid
                talk = Talk(number or 0, position.partition)
            else:
                number, partition, user, channel, last, reached, newest, packed, erased = row
                talk = Talk(
                    number,
                    partition,
                    user,
                    channel,
                    last,
                    reached,
                    newest,
                    _unpack(packed),
                    bool(erased),
                )
            self._known[log] = talk
        talk.changed = True
        return talk

    def write(self) -> None:
        """Write what changed."""
        changed = [talk for talk in self._known.values() if talk.changed]
        self._db.executemany(
            "UPDATE talks SET user = ?, channel = ?, last = ?, reached = ?, newest = ?, runs = ?,"
            " erased = ? WHERE number = ?",
            (
                (
                    talk.user,
                    talk.channel,
                    talk.last,
                    talk.reached,
                    talk.newest,
                    _pack(talk.runs),
                    talk.erased,
                    talk.number,
                )
                for talk in changed
            ),
        )
        for talk in changed:
            talk.changed = False

    def admit(self, talk: Talk, offset: int, id_: bytes, event: events.AnyEvent) -> bool:
        """Note an event; returns whether it counts: it is no repeat, and its conditions are met.

        A resolution counts, though the fold may know that nothing was suspended: of two writers
        that race just then, the one that the fold takes may be passed over here.
        """
        talk.reached = offset
        if self._known_id(talk, id_, offset) is not None:
            return False
        handler = HANDLERS[type(event)]
        counts = (
            not (handler.bounded and out_of_bounds(event.data))
            and self._conditions_met(talk, offset, event)
            and self._run(talk, offset, event)
            and (
                not isinstance(event, events.RollbackEvent)
                or self.target(talk, offset, event.data.to) is not None
            )
        )
        self._db.execute(
            "INSERT INTO logged VALUES (?, ?, ?, ?)", (talk.number, offset, id_, not counts)
        )
        if counts and handler.visible(event):
            talk.last = offset
        return counts

    def _known_id(self, talk: Talk, id_: bytes, before: int) -> tuple[int, bool] | None:
        """The event of this id and whether it was rejected; None where it is not one of the last
        ids that the fold knew before an event, and so is new to it.
        """
        found: tuple[int, bool] | None = self._db.execute(
            # By itself SQLite goes through all of the conversation's events.
            "SELECT at, rejected FROM logged INDEXED BY logged_ids"
            " WHERE talk = ? AND id = ? AND at < ?"
            " ORDER BY at DESC LIMIT 1",
            (talk.number, id_, before),
        ).fetchone()
        if found is None:
            return None
        (since,) = self._db.execute(
            "SELECT count(*) FROM (SELECT 1 FROM logged WHERE talk = ? AND at > ? AND at < ?"
            " LIMIT ?)",
            (talk.number, found[0], before, RECENT_IDS),
        ).fetchone()
        return found if since < RECENT_IDS else None

    def _conditions_met(self, talk: Talk, offset: int, event: events.AnyEvent) -> bool:
        if type(event) in UNCONDITIONAL:
            return True
        if isinstance(event.fence, int) and talk.runs.token != event.fence:
            return False
        if not isinstance(event.expect, str):
            return True
        if not event.expect:
            return talk.last < 0
        expected = self._place(talk, offset, event.expect, rejected=False)
        return expected is not None and talk.last <= expected

    @staticmethod
    def _run(talk: Talk, offset: int, event: events.AnyEvent) -> bool:
        """Keep the runs up to date, so that the fences of later events can be checked."""
        change: runs.Change | str
        if isinstance(event, events.TurnStartedEvent):
            change = runs.begin(talk.runs, offset, event.data, fenced=event.fence is not None)
        elif isinstance(event, events.TurnEndedEvent):
            since = runs.expired_since(event.data)
            try:
                place = None if since is None else parse_position(since)
            except InvalidPosition:
                place = Position(-1, -1)
            at = place and (place.offset if place.partition == talk.partition else -1)
            change = runs.end(talk.runs, offset, event.data, at)
        else:
            return True
        if isinstance(change, str):
            return False
        talk.runs = change.turns
        return True

    def open(self, talk: Talk, offset: int, data: events.Opened) -> None:
        """The conversation says whose it is."""
        said = data.user or None, data.channel or None
        talk.user, talk.channel = said[0] or talk.user, said[1] or talk.channel
        self._db.execute(
            "INSERT INTO openings VALUES (?, ?, ?, ?, ?, ?)",
            (talk.number, offset, *said, talk.user, talk.channel),
        )

    def roll_back(self, talk: Talk, offset: int, target: int, at: int) -> None:
        """Go back to a target: whose the conversation was then it is again, and its newest turn is
        that of then. All its turns are written.
        """
        then = self._after(talk, target)
        self._db.execute(
            "INSERT INTO talk_rollbacks VALUES (?, ?, ?, ?, ?, ?, ?)",
            (talk.number, offset, target, at, *then),
        )
        talk.newest, talk.user, talk.channel = then

    def drop(self, talk: Talk, target: int) -> list[Stretch]:
        """An event is taken out, for good, and its turn was deleted. Returns whose the turns after
        it are now, if it said whose the conversation is. All turns are written.
        """
        taken = self._db.execute(
            "DELETE FROM openings WHERE talk = ? AND at = ?", (talk.number, target)
        )
        stretches = [Stretch(target, MAX_OFFSET, *self._after(talk, target)[1:])]
        for at in self._work_out_anew(talk, target):
            stretches[-1] = stretches[-1]._replace(end=at)
            stretches.append(Stretch(at, MAX_OFFSET, *self._after(talk, at)[1:]))
        talk.newest, talk.user, talk.channel = self._after(talk, MAX_OFFSET)
        return stretches if taken.rowcount else []

    def _work_out_anew(self, talk: Talk, behind: int) -> Iterator[int]:
        """Work out what openings and rollbacks behind an event led to, in order; each once those
        before it are right.
        """
        rows = self._db.execute(
            "SELECT at, NULL, said_user, said_channel FROM openings WHERE talk = ?1 AND at > ?2"
            " UNION ALL SELECT went_by, went_to, NULL, NULL FROM talk_rollbacks"
            " WHERE talk = ?1 AND went_by > ?2 ORDER BY 1",
            (talk.number, behind),
        ).fetchall()
        for at, to, user, channel in rows:
            if to is None:
                before = self._after(talk, at - 1)
                self._db.execute(
                    "UPDATE openings SET user = ?, channel = ? WHERE talk = ? AND at = ?",
                    (user or before.user, channel or before.channel, talk.number, at),
                )
            else:
                self._db.execute(
                    "UPDATE talk_rollbacks SET newest = ?, user = ?, channel = ?"
                    " WHERE talk = ? AND went_by = ?",
                    (*self._after(talk, to), talk.number, at),
                )
            yield at

    def _after(self, talk: Talk, offset: int) -> _After:
        """How the conversation stood after the event at an offset: as after the last rollback until
        then, and with what came since.
        """
        back, *then = self._db.execute(
            "SELECT went_by, newest, user, channel FROM talk_rollbacks"
            " WHERE talk = ? AND went_by <= ? ORDER BY went_by DESC LIMIT 1",
            (talk.number, offset),
        ).fetchone() or (-1, *_After())
        since = (talk.number, back, offset)
        turn = self._db.execute(
            "SELECT number FROM turns WHERE talk = ? AND at_offset > ? AND at_offset <= ?"
            " ORDER BY at_offset DESC LIMIT 1",
            since,
        ).fetchone()
        opening = self._db.execute(
            "SELECT user, channel FROM openings WHERE talk = ? AND at > ? AND at <= ?"
            " ORDER BY at DESC LIMIT 1",
            since,
        ).fetchone()
        return _After(*(turn or then[:1]), *(opening or then[1:]))

    def target(self, talk: Talk, offset: int, to: str) -> int | None:
        """The event that a rollback at ``offset`` goes back to; None where there is none."""
        found = self._place(talk, offset, to)
        if found is None or found >= offset:
            return None
        there = self._db.execute(
            "SELECT 1 FROM logged WHERE talk = ? AND at = ?", (talk.number, found)
        ).fetchone()
        return found if there else None

    def _place(self, talk: Talk, before: int, named: str, *, rejected: bool = True) -> int | None:
        try:
            position = parse_position(named)
        except InvalidPosition:
            known = self._known_id(talk, id_hash_of(named)[:8], before)
            return None if known is None or known[1] > rejected else known[0]
        return position.offset if position.partition == talk.partition else None

    def branches(self, number: int, as_of: int | None = None) -> Branches:
        """Which events of a conversation stand, by its rollbacks up to a time."""
        rows = self._db.execute(
            "SELECT went_by, went_to, at FROM talk_rollbacks WHERE talk = ?", (number,)
        )
        return Branches((by, to) for by, to, at in rows if as_of is None or at <= as_of)

    def erase(self, talk: Talk) -> None:
        """Forget all of it but that it is erased."""
        for table in ("logged", "openings", "talk_rollbacks"):
            self._db.execute(f"DELETE FROM {table} WHERE talk = ?", (talk.number,))
        talk.user = talk.channel = talk.newest = None
        talk.runs, talk.erased = runs.NONE, True
