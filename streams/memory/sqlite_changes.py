"""What a batch of news changes in the tables of the embedded memory store.

All of a batch is taken in at once: what is erased or deleted for good first, then facts, then the
records that are touched, each worked out once. The order within it makes no difference (the law of
decision 0030), and few statements do the work of many.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from projections.events.codec import MEMORY_NAMES
from projections.events.memories import MemoryTags
from projections.events.times import time_at
from projections.events.types import MemoryDeleted, MemoryFused, MemorySaved, SkillSaved
from projections.memory.branches import Branches
from projections.memory.news import Dropped, Fact, LogErased, News, Used, WentBack
from projections.memory.resolution import NEVER, STATED, TAGS
from projections.memory.words import date_words, tag_word
from projections.names import Key
from streams.memory.often_stated import OftenStated, Standing
from streams.memory.sqlite_tables import (
    CHANGED,
    ERASED,
    PLAIN,
    branches_of,
    dropped_from,
    encode,
    facts_of,
    numbers_of,
    pack,
    retrievals_of,
    stands_in,
)
from streams.memory.text_changes import RecordText, TextsOf
from streams.memory.word_index import decode_scope, encode_scope

Place = tuple[str, str]
"""A record's scope, as it is stored, and its id."""
_KNOWN = (
    "SELECT 1 FROM facts WHERE record = ? UNION ALL SELECT 1 FROM uses WHERE record = ? LIMIT 1"
)
DAY = 86_400_000_000
"""Microseconds."""


@dataclass(slots=True)
class _Batch:
    """News on their way into the tables."""

    db: sqlite3.Connection
    often: OftenStated
    logs: dict[Key, tuple[int, int]] = field(default_factory=dict)
    """The number and state of each log that the news name."""
    records: dict[Place, int] = field(default_factory=dict)
    _last: int = 0
    new: set[int] = field(default_factory=set)
    """Numbers of records that nothing was known of."""
    touched: set[int] = field(default_factory=set)
    facts: defaultdict[int, dict[tuple[Key, int], Fact]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """Those of this batch, by record: all that a new one has."""
    changed: set[int] = field(default_factory=set)
    """Numbers of records of which facts went, or may stand no more, or again."""

    def touch(self, place: Place) -> int:
        """The number of a record that changes, a new one where nothing was known of it."""
        record = self.records.get(place)
        if record is None:
            if not self.new:
                (most,) = self.db.execute("SELECT coalesce(max(number), 0) FROM records").fetchone()
                self._last = most
            self._last += 1
            record = self.records[place] = self._last
            self.new.add(record)
        self.touched.add(record)
        return record


def take_in(
    db: sqlite3.Connection,
    news: Sequence[News],
    change: Callable[[Sequence[TextsOf]], None],
    often: OftenStated,
) -> bool:
    """Take news in, within a transaction, and call ``change`` with what changes in the texts of
    records; returns whether text was deleted that must be gone from the file as well.
    """
    often.begin(db)
    batch = _Batch(db, often)
    _number_logs(batch, {one.log for one in news})
    wiped = _take_back(batch, [one for one in news if not isinstance(one, Fact | Used)])
    facts = [one for one in news if isinstance(one, Fact)]
    places = [(encode_scope(fact.scope), fact.memory_id) for fact in facts]
    hard = [isinstance(fact.data, MemoryDeleted) and fact.data.hard for fact in facts]
    for fact, place, gone in zip(facts, places, hard, strict=True):
        if gone:
            _purge(batch, place, fact.at)
    _add(batch, facts, places)
    _count(batch, [one for one in news if isinstance(one, Used)])
    batch.touched |= batch.changed
    change(_renew(batch))
    return wiped or any(hard)


def _number_logs(batch: _Batch, logs: set[Key]) -> None:
    names = {str(log): log for log in logs}
    known = "SELECT log, number, state FROM logs WHERE log IN (SELECT value FROM json_each(?))"

    def find(wanted: Iterable[str]) -> None:
        rows = batch.db.execute(known, (encode(list(wanted)).decode(),))
        batch.logs |= {names[name]: (number, state) for name, number, state in rows}

    find(names)
    missing = [name for name, log in names.items() if log not in batch.logs]
    if missing:
        batch.db.executemany("INSERT INTO logs (log) VALUES (?)", ((name,) for name in missing))
        find(missing)


def _take_back(batch: _Batch, news: Sequence[News]) -> bool:
    """Note rollbacks, dropped events and erasures; what these touch is worked out anew. Returns
    whether a log was erased.
    """
    db, erased = batch.db, False
    for one in news:
        number, state = batch.logs[one.log]
        if state == ERASED:
            continue
        if isinstance(one, WentBack):
            row = (number, one.by, one.to, one.at)
            db.execute("INSERT OR REPLACE INTO rollbacks VALUES (?, ?, ?, ?)", row)
        elif isinstance(one, Dropped):
            db.execute("INSERT OR IGNORE INTO dropped VALUES (?, ?)", (number, one.offset))
        rows = db.execute(
            "SELECT record FROM facts WHERE log = ? UNION SELECT record FROM uses WHERE log = ?",
            (number, number),
        )
        batch.changed.update(record for (record,) in rows)
        batch.logs[one.log] = number, CHANGED
        if isinstance(one, LogErased):
            # That it is erased stays: what comes late changes nothing.
            erased = True
            batch.logs[one.log] = number, ERASED
            for table in ("facts", "taught", "uses", "rollbacks", "dropped", "hidden"):
                db.execute(f"DELETE FROM {table} WHERE log = ?", (number,))
    changed = {(state, number) for number, state in batch.logs.values() if state != PLAIN}
    db.executemany("UPDATE logs SET state = ? WHERE number = ?", changed)
    return erased


def _purge(batch: _Batch, place: Place, at: int) -> None:
    """Delete what was stated of a record up to a time, and whatever of it comes late. Neither a
    rollback nor an erasure brings it back, so it makes no difference which comes first.
    """
    db = batch.db
    db.execute(
        "INSERT INTO purged VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET at = max(at, excluded.at)",
        (*place, at),
    )
    rows = db.execute("SELECT number FROM records WHERE scope = ? AND id = ?", place)
    for (record,) in rows.fetchall():
        batch.changed.add(record)
        gone = "record = ? AND at <= ? AND kind IN ('memory.saved', 'memory.fused', 'skill.saved')"
        taught = db.execute(f"SELECT log, learnt_from FROM facts WHERE {gone}", (record, at))
        _hide(db, [(log, offset) for log, packed in taught for offset in numbers_of(packed)])
        db.execute(f"DELETE FROM facts WHERE {gone}", (record, at))


def _hide(db: sqlite3.Connection, turns: Sequence[tuple[int, int]]) -> None:
    """Note which events of logs taught what was deleted for good: they are not recalled either."""
    db.executemany("INSERT OR IGNORE INTO hidden VALUES (?, ?)", turns)


def _add(batch: _Batch, facts: Sequence[Fact], places: Sequence[Place]) -> None:
    """Add facts, but for those of erased logs and those whose text was deleted for good."""
    db = batch.db
    if not facts:
        return
    purged = _purged(db, places)
    _number_records(batch, places)
    rows: list[tuple[Any, ...]] = []
    hidden: list[tuple[int, int]] = []
    taught: list[tuple[int, int, int]] = []
    parts: list[tuple[str, int]] = []
    for fact, place in zip(facts, places, strict=True):
        log, offset, at, learnt_from, data = fact
        number, state = batch.logs[log]
        stated = isinstance(data, STATED)
        if state == ERASED:
            continue
        if stated and at <= purged.get(place, at - 1):
            hidden += [(number, one) for one in learnt_from]
            continue
        record = batch.touch(place)
        batch.facts[record][log, offset] = fact
        if isinstance(data, MemoryFused):
            parts += [(source, record) for source in data.source_record_ids]
        elif stated:
            taught += [(number, one, offset) for one in learnt_from]
        rows.append(
            (number, offset, record, at, pack(learnt_from), MEMORY_NAMES[type(data)], encode(data))
        )
    db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    db.executemany("INSERT OR IGNORE INTO taught VALUES (?, ?, ?)", taught)
    db.executemany("INSERT OR IGNORE INTO parts VALUES (?, ?)", parts)
    _hide(db, hidden)


def _purged(db: sqlite3.Connection, places: Iterable[Place]) -> dict[Place, int]:
    """Up to when those of the records were deleted for good that were: mostly none ever was."""
    if not db.execute("SELECT 1 FROM purged LIMIT 1").fetchone():
        return {}
    rows = db.execute(
        "SELECT scope, id, at FROM purged WHERE id IN (SELECT value FROM json_each(?))",
        (encode(list({memory_id for _, memory_id in places})).decode(),),
    )
    return {(scope, memory_id): at for scope, memory_id, at in rows}


def _number_records(batch: _Batch, places: Iterable[Place]) -> None:
    """Find the numbers of the records that are there."""
    asked = encode(list({memory_id for _, memory_id in places})).decode()
    known = batch.db.execute(
        "SELECT scope, id, number FROM records WHERE id IN (SELECT value FROM json_each(?))",
        (asked,),
    )
    batch.records |= {(scope, memory_id): number for scope, memory_id, number in known}


def _count(batch: _Batch, used: Sequence[Used]) -> None:
    """Add how often records were given out, but for what erased logs say. A record that nothing
    else is known of yet has its counts once it is.
    """
    if not used:
        return
    scopes = [encode_scope(one.scope) for one in used]
    _number_records(
        batch,
        [(s, name) for s, one in zip(scopes, used, strict=True) for name, *_ in one.counts],
    )
    rows = [
        (batch.touch((scope, name)), batch.logs[one.log][0], one.offset, one.at, retrieved, hits)
        for scope, one in zip(scopes, used, strict=True)
        if batch.logs[one.log][1] != ERASED
        for name, retrieved, hits in one.counts
    ]
    batch.db.executemany("INSERT OR REPLACE INTO uses VALUES (?, ?, ?, ?, ?, ?)", rows)


def _renew(batch: _Batch) -> list[TextsOf]:
    """Work out what is touched, and bring its rows up to date; returns what changes in its
    texts.
    """
    db = batch.db
    old = batch.touched - batch.new
    places = {number: place for place, number in batch.records.items()}
    places |= {
        number: (scope, memory_id)
        for number, scope, memory_id in db.execute(
            "SELECT number, scope, id FROM records"
            " WHERE number IN (SELECT value FROM json_each(?))",
            (encode(list(old)).decode(),),
        )
    }
    new = _not_dropped(batch)
    standings, texts = _followed(batch, old, new, places)
    # Without those that an operator dropped.
    facts = facts_of(db, old - standings.keys()) | {n: new.get(n, []) for n in batch.new}
    branches, given = _branches(batch, facts), retrievals_of(db, batch.touched)
    for number in batch.touched - standings.keys():
        own = facts.get(number, [])
        standings[number] = one = Standing(own, partial(stands_in, branches), _text_of)
        texts += one.texts(number, places[number][0], known=number in old)
    rows: list[tuple[Any, ...]] = []
    for number, one in standings.items():
        batch.often.keep(number, one)
        if not one.count and not db.execute(_KNOWN, (number, number)).fetchone():
            db.execute("DELETE FROM records WHERE number = ?", (number,))
            db.execute("DELETE FROM parts WHERE composite = ?", (number,))
            continue
        record, place = one.resolution.result(given.get(number, NEVER)), places[number]
        scope = decode_scope(place[0])
        rows.append(
            (
                number,
                *place,
                scope.tenant,
                scope.user,
                (one.first or 0) if record is None else record.created,
                None if record is None else pack(record),
            )
        )
    db.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    return texts


def _followed(
    batch: _Batch,
    old: Iterable[int],
    new: Mapping[int, list[Fact]],
    places: Mapping[int, Place],
) -> tuple[dict[int, Standing], list[TextsOf]]:
    """Of records with many facts, those whose ``new`` ones all follow them, and what changes in
    their texts.
    """
    batch.often.forget(batch.changed)
    standings: dict[int, Standing] = {}
    texts: list[TextsOf] = []
    known = {number: one for number in old if (one := batch.often.get(number)) is not None}
    branches = _branches(batch, {number: new.get(number, []) for number in known})
    for number, one in known.items():
        scope = places[number][0]
        said = one.follow(new.get(number, []), partial(stands_in, branches), number, scope)
        if said is None:
            batch.often.forget([number])
            continue
        standings[number] = one
        texts += said
    return standings, texts


def _not_dropped(batch: _Batch) -> dict[int, list[Fact]]:
    """The facts of the batch, by record, without those that an operator dropped."""
    dropped: dict[Key, set[int]] = {
        log: dropped_from(batch.db, number)
        for log, (number, state) in batch.logs.items()
        if state == CHANGED
    }
    return {
        record: [
            fact
            for fact in own.values()
            if fact.log not in dropped
            or dropped[fact.log].isdisjoint((fact.offset, *fact.learnt_from))
        ]
        for record, own in batch.facts.items()
    }


def _branches(batch: _Batch, facts: Mapping[int, Sequence[Fact]]) -> Mapping[Key, Branches]:
    """The branches of the logs that may have some."""
    logs = {fact.log for own in facts.values() for fact in own}
    plain = {log for log, (_, state) in batch.logs.items() if state == PLAIN}
    return branches_of(batch.db, logs - plain)


def _text_of(fact: Fact) -> RecordText:
    data, dates = fact.data, _date_words(fact.at // DAY)
    session = "" if fact.log.of_user else str(fact.log)
    if isinstance(data, SkillSaved):
        return RecordText(data.intent, session, dates, "", "")
    assert isinstance(data, MemorySaved)
    tags = "" if data.tags is None else _tag_words(data.tags)
    return RecordText(data.text, session, dates, data.role or "", tags)


def _tag_words(tags: MemoryTags) -> str:
    return " ".join(tag_word(kind, tag) for kind in TAGS for tag in getattr(tags, kind))


@lru_cache(maxsize=4096)
def _date_words(day: int) -> str:
    return date_words(time_at(day * DAY))
