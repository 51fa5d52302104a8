"""The set of figure `recall`: users who chat over 200 days and now and then state a fact.

The chat is real (the chitchat dataset, as in the demo); the facts are forms of ``facts_train`` or
``facts_test``, each said once and asked three times. Every form is planted in every stratum, each
time by another user, so that a user has six facts among some two hundred messages. Positions are
unique over all logs. The same part gives the same set at every run.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from benchmarks.support import facts_test, facts_train
from benchmarks.support.fact_forms import NEARNESS, FactForm
from projections.events import types as events
from projections.events.codec import DATA_TYPES
from projections.events.times import micros_of, parse_micros, time_at
from projections.memory.extraction.extractor import extract
from projections.memory.extraction.memory_events import Taught, memory_events
from projections.memory.news import Fact, News, WentBack
from projections.names import Key, Position, parse_position
from streams.memory.turns import Said
from threadfold.demo.sources import LONG_SESSION, load_sessions

PARTS = {"train": facts_train, "test": facts_test}
STRATA = ("plain", "update", "correction", "speaker", "tenant", "rolled_back")
"""What else was said: nothing; another value later, or at once as a correction; another value by
another speaker, in another tenant by the user of the same name, or in what was rolled back. The
first is reported by the kind of its form.
"""
TENANT, RIVAL = "acme", "rival"
DAYS, TALKS, MESSAGES = 200, 6, 36
"""Days that a user's conversations are spread over, how many there are, and messages of each."""
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
"""When the questions are asked."""
NAMES = ("Ida", "Bruno", "Clara", "Dmitri", "Esther", "Felix", "Greta", "Hugo")
_FIRST_WORDS = "my at on in all when with please next give for nothing from"
_BEGINS = frozenset(_FIRST_WORDS.split())
"""Words that are small behind others."""
_SORRY = ("Sorry, that was wrong:", "Correction:", "No, wait:")


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of whose memory, and the positions of events that answer it (none: nothing
    does), that answered it once, and that nobody may be shown.
    """

    user: str
    text: str
    stratum: str
    nearness: str
    right: frozenset[str] = frozenset()
    former: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()


@dataclass(slots=True)
class RecallSet:
    """What the logs hold, as the index of turns and the memory store take it, and the questions."""

    said: list[Said] = field(default_factory=list)
    news: list[News] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    asked_at: datetime = NOW
    facts: int = 0

    @property
    def turns(self) -> int:
        """How many messages there are."""
        return sum(isinstance(one.event, events.MessageEvent) for one in self.said)


class Line(msgspec.Struct):
    """A message to come; ``undone``: a rollback follows that takes it back. ``place`` is what it is
    to the fact of a number; empty: chat.
    """

    text: str
    name: str | None = None
    role: Literal["user", "assistant"] = "user"
    planted: int = -1
    place: str = ""
    undone: bool = False


class _Planted(msgspec.Struct):
    form: FactForm
    stratum: str
    name: str | None
    places: dict[str, set[str]] = msgspec.field(default_factory=dict)
    """Positions by what they are to it: ``right``, ``former``, ``other`` (of another speaker) or
    ``forbidden``.
    """


def make_set(part: str, users: int | None = None) -> RecallSet:
    """A part's set.

    Args:
        part: ``train`` or ``test``.
        users: make the first ones alone; None: as many as there are forms.
    """
    made = RecallSet()
    chat = _Chat(random.Random(f"chat of {part}"))
    forms = PARTS[part].FORMS
    writer = Writer(made)
    for number in range(len(forms) if users is None else users):
        _User(part, number, forms, chat, writer).write()
    return made


class _Chat:
    """Sessions of the dataset, in a random order, each used once."""

    def __init__(self, rng: random.Random) -> None:
        self._left = [one for one in load_sessions() if len(one.in_order) >= LONG_SESSION]
        rng.shuffle(self._left)

    def talk(self) -> list[Line]:
        """The lines of a conversation of two."""
        messages = [one for one in self._left.pop().in_order if one.text.strip()][:MESSAGES]
        first = messages[0].sender
        return [
            Line(one.text, role="user" if one.sender == first else "assistant") for one in messages
        ]


class _User:
    """One user's conversations, with six facts, and what is asked of them."""

    def __init__(
        self, part: str, number: int, forms: Sequence[FactForm], chat: _Chat, writer: Writer
    ) -> None:
        self._rng = random.Random(f"{part} {number}")
        self._name = f"{part}-user-{number}"
        self._later, self._sorry = PARTS[part].LATER, PARTS[part].CORRECTION
        self._number, self._forms, self._chat, self._writer = number, forms, chat, writer
        self._talks = [chat.talk() for _ in range(TALKS)]
        self._rival: list[Line] = []
        self._planted: list[_Planted] = []

    def write(self) -> None:
        """Write all of it."""
        count = len(self._forms)
        step = max(1, count // len(STRATA))
        for k, stratum in enumerate(STRATA):
            self._plant(self._forms[(self._number + step * k) % count], stratum)
        places = [one.places for one in self._planted]
        days = sorted(self._rng.sample(range(2, DAYS), TALKS), reverse=True)
        for n, (day, lines) in enumerate(zip(days, self._talks, strict=True)):
            log = Key(TENANT, f"{self._name}-{n}")
            self._writer.write(log, self._name, NOW - timedelta(days=day), lines, places)
        log = Key(RIVAL, f"{self._name}-0")
        lines = self._chat.talk()
        for line in self._rival:
            lines.insert(self._rng.randrange(len(lines)), line)
        self._writer.write(log, self._name, NOW - timedelta(days=1), lines, places)
        self._ask(step)

    def _plant(self, form: FactForm, stratum: str) -> None:
        """Put a fact, and its twin if the stratum has one, between the chat's lines."""
        rng, number = self._rng, len(self._planted)
        value, twin = rng.sample(form.values, 2)
        wording = rng.randrange(3)
        name, other = rng.sample(NAMES, 2) if stratum == "speaker" else (None, None)
        right = Line(form.statement(wording, value), name, planted=number, place="right")
        self._planted.append(_Planted(form, stratum, name))
        talk = rng.randrange(TALKS - 1)
        lines = self._talks[talk]
        if stratum == "update":
            later = self._talks[rng.randrange(talk + 1, TALKS)]
            text = form.statement(wording, twin)
            _insert(rng, lines, [Line(text, planted=number, place="former")])
            changed = form.statement(wording + rng.randrange(3), value)
            right.text = _led(self._later[rng.randrange(3)], changed)
            _insert(rng, later, [right])
        elif stratum == "correction":
            text = form.statement(wording, twin)
            right.text = _led(self._sorry[rng.randrange(3)], form.statement(wording, value))
            _insert(rng, lines, [Line(text, planted=number, place="former"), right])
        elif stratum == "speaker":
            text = form.statement(wording + rng.randrange(3), twin)
            _insert(rng, lines, [right, Line(text, other, planted=number, place="other")])
        elif stratum == "tenant":
            text = form.statement(wording, twin)
            self._rival.append(Line(text, planted=number, place="forbidden"))
            _insert(rng, lines, [right])
        elif stratum == "rolled_back":
            text = form.statement(wording, twin)
            gone = Line(text, planted=number, place="forbidden", undone=True)
            _insert(rng, lines, [right, gone] if rng.randrange(2) else [gone, right])
        else:
            _insert(rng, lines, [right])

    def _ask(self, step: int) -> None:
        questions = self._writer.made.questions
        for one in self._planted:
            stratum = one.form.kind if one.stratum == "plain" else one.stratum
            places = {role: frozenset(found) for role, found in one.places.items()}
            for nearness, named in enumerate(NEARNESS):
                questions.append(
                    Question(
                        self._name,
                        one.form.question(nearness, one.name),
                        stratum,
                        named,
                        places.get("right", frozenset()),
                        places.get("former", frozenset()),
                        places.get("forbidden", frozenset()),
                    )
                )
        for k in range(len(STRATA)):
            form = self._forms[(self._number + step * k + 1) % len(self._forms)]
            nearness = k % len(NEARNESS)
            questions.append(
                Question(self._name, form.question(nearness), "unanswerable", NEARNESS[nearness])
            )
        self._writer.made.facts += len(self._planted)


def _insert(rng: random.Random, lines: list[Line], new: Sequence[Line]) -> None:
    """Put lines somewhere between chat, together."""
    at = rng.randrange(1, len(lines))
    lines[at:at] = new


def _led(lead: str, statement: str) -> str:
    """A statement behind some words."""
    first = statement.split(" ", 1)[0].lower()
    return f"{lead} {statement[0].lower() + statement[1:] if first in _BEGINS else statement}"


class Writer:
    """Makes logs of lines: their events, and what the rules learn from them."""

    def __init__(self, made: RecallSet) -> None:
        self.made = made
        self._offset = 0

    def write(
        self,
        log: Key,
        user: str,
        begin: datetime,
        lines: Sequence[Line],
        places: Sequence[dict[str, set[str]]],
    ) -> None:
        """Write one conversation, and then what its messages teach.

        Args: ``places``: of each planted fact, where the positions of its lines are put.
        """
        opened = self._event(log, begin, events.OpenedEvent, events.Opened(user=user))
        at, last, rollback = begin, opened.position.offset, None
        read: list[tuple[int, events.AnyEvent]] = []
        for line in lines:
            at += timedelta(minutes=1)
            message = events.Message(line.role, line.text, line.name)
            one = self._event(log, at, events.MessageEvent, message)
            read.append((one.position.offset, one.event))
            if line.place:
                places[line.planted].setdefault(line.place, set()).add(str(one.position))
            if line.undone:
                to = events.Rollback(str(Position(0, last)))
                back = self._event(log, at, events.RollbackEvent, to)
                rollback = back.position.offset
                self.made.news.append(WentBack(log, rollback, last, micros_of(at)))
            else:
                last = one.position.offset
        self._learn(Taught(log, 0, user, None, rollback), read, at)

    def _event(self, log: Key, at: datetime, kind: type[Any], data: object) -> Said:
        event = kind(
            specversion="1.0",
            id=f"e{self._offset}",
            source=log.source,
            time=time_at(micros_of(at)),
            data=data,
        )
        said = Said(log, Position(0, self._offset), micros_of(at), event)
        self._offset += 1
        self.made.said.append(said)
        return said

    def _learn(
        self, taught: Taught, read: Sequence[tuple[int, events.AnyEvent]], at: datetime
    ) -> None:
        for flat in memory_events(taught, extract(read)):
            fields = {name: value for name, value in flat.items() if name not in _ENVELOPE}
            data: Any = msgspec.convert(fields, DATA_TYPES[flat["type"]])
            said_at = parse_micros(flat.get("time")) or micros_of(at)
            learnt_from = tuple(parse_position(one).offset for one in data.positions)
            self.made.news.append(Fact(taught.key, self._offset, said_at, learnt_from, data))
            self._offset += 1


_ENVELOPE = ("type", "id", "time")
