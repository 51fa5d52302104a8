"""What a store that is kept by key has of a log and of a record, in bytes.

A record's facts stand together under one key, and what each log says of itself under another: so a
store needs no joins, and takes a batch of news in with a few reads and one write.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from projections.events.codec import DATA_TYPES, MEMORY, MEMORY_NAMES
from projections.events.times import time_at
from projections.events.types import MemoryFused, MemorySaved, SkillSaved
from projections.memory.branches import Branches
from projections.memory.identity import Scope
from projections.memory.news import Fact
from projections.memory.resolution import (
    NEVER,
    STATED,
    TAGS,
    Record,
    Retrievals,
    order_of,
    resolve,
)
from projections.memory.words import date_words, stems_of, tag_word
from projections.names import Key

Place: TypeAlias = tuple[str, str]
"""A record's tenant and id."""
Code: TypeAlias = tuple[str, ...]
"""What sizes are counted of: a tenant, ``(tenant, "user", …)`` or ``(tenant, "session", …)``."""
Size: TypeAlias = tuple[int, int]
"""How many texts, and how many words."""
_TYPES: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(DATA_TYPES[name]) for name in MEMORY
}
_encode = msgspec.json.Encoder().encode


class LogState(Struct, array_like=True):
    """What was taken back of a log: rollbacks (``by``: ``to``, time), dropped events, and events
    that taught what was deleted for good (``hidden``). An erased log has nothing else.
    """

    erased: bool = False
    rollbacks: dict[int, tuple[int, int]] = {}
    dropped: set[int] = set()
    hidden: set[int] = set()

    def branches(self, as_of: int | None = None) -> Branches:
        """Which of its events stand, by the rollbacks up to a time."""
        return Branches(
            (by, to) for by, (to, at) in self.rollbacks.items() if as_of is None or at <= as_of
        )


class Taught(Struct, array_like=True):
    """Which records an event of a log is about, and the events that these were learnt from; of what
    has no text of its own, none.
    """

    memory_ids: tuple[str, ...]
    learnt_from: tuple[int, ...] = ()


class _KeptFact(Struct, array_like=True):
    log: str
    offset: int
    at: int
    learnt_from: tuple[int, ...]
    kind: str
    data: bytes


class Use(Struct, array_like=True, frozen=True):
    """How often an event of a log says that an id of a scope was given out."""

    log: str
    offset: int
    at: int
    scope: Scope
    retrieved: int
    hits: int


class Kept(Struct, array_like=True):
    """What is known of one id of a tenant. ``purged``: up to when what was stated in a scope was
    deleted for good. ``texts``: the number of each text that its facts state.
    """

    facts: list[_KeptFact] = []
    purged: list[tuple[Scope, int]] = []
    texts: dict[str, int] = {}
    uses: list[Use] = []

    def all(self) -> dict[tuple[Key, int], Fact]:
        """Its facts, by log and offset."""
        found: dict[tuple[Key, int], Fact] = {}
        for log, offset, at, learnt_from, kind, data in map(_fields, self.facts):
            tenant, _, conversation = log.partition("/")
            key = Key(tenant, conversation)
            found[key, offset] = Fact(key, offset, at, learnt_from, _TYPES[kind].decode(data))
        return found


def _fields(fact: _KeptFact) -> tuple[str, int, int, tuple[int, ...], str, bytes]:
    return fact.log, fact.offset, fact.at, fact.learnt_from, fact.kind, fact.data


def kept_of(
    facts: Iterable[Fact],
    purged: Mapping[Scope, int],
    texts: Mapping[str, int],
    uses: Iterable[Use],
) -> Kept:
    """Facts as they are kept."""
    return Kept(
        [
            _KeptFact(
                str(one.log),
                one.offset,
                one.at,
                one.learnt_from,
                MEMORY_NAMES[type(one.data)],
                _encode(one.data),
            )
            for one in facts
        ],
        list(purged.items()),
        dict(texts),
        list(uses),
    )


def states(fact: Fact) -> bool:
    """Whether a fact states a record, rather than naming one."""
    return isinstance(fact.data, STATED)


def text_of(fact: Fact) -> str | None:
    """The normalised text that a fact states; None for one that states none."""
    data = fact.data
    return data.normalized_text if isinstance(data, STATED) else None


def is_fused(fact: Fact) -> bool:
    """Whether it has no text of its own: a composite says what its sources say."""
    return isinstance(fact.data, MemoryFused)


def sources_of(facts: Iterable[Fact]) -> set[str]:
    """The ids that facts fuse."""
    found: set[str] = set()
    for fact in facts:
        if isinstance(fact.data, MemoryFused):
            found.update(fact.data.source_record_ids)
    return found


def resolved(
    facts: Iterable[Fact],
    uses: Iterable[Use],
    logs: Mapping[Key, LogState],
    as_of: int | None = None,
) -> list[Record]:
    """What is known of one id comes to: one record, as scopes are part of an id; nothing where none
    stands. A log without a state has taken nothing back. A composite has no text yet.
    """
    scopes: defaultdict[Scope, list[Fact]] = defaultdict(list)
    for fact in facts:
        state = logs.get(fact.log)
        if state is None or state.dropped.isdisjoint((fact.offset, *fact.learnt_from)):
            scopes[fact.scope].append(fact)
    branches = {log: state.branches(as_of) for log, state in logs.items() if state.rollbacks}

    def stands(fact: Fact) -> bool:
        return fact.log not in branches or branches[fact.log].stands(fact.anchor)

    given = _given(uses, logs, as_of)
    found = (
        resolve(own, stands, as_of, given.get(scope, NEVER))
        for scope, own in scopes.items()
        if any(states(one) for one in own)
    )
    return [record for record in found if record is not None]


def _given(
    uses: Iterable[Use], logs: Mapping[Key, LogState], as_of: int | None
) -> dict[Scope, Retrievals]:
    dropped = {str(log): state.dropped for log, state in logs.items() if state.dropped}
    found: dict[Scope, Retrievals] = {}
    for one in uses:
        if (as_of is None or one.at <= as_of) and one.offset not in dropped.get(one.log, ()):
            retrieved, hits, last = found.get(one.scope, NEVER)
            found[one.scope] = Retrievals(
                retrieved + one.retrieved, hits + one.hits, max(one.at, last or one.at)
            )
    return found


class Words(NamedTuple):
    """A text to index: its scope, its session (empty: none), and what else finds it."""

    scope: Scope
    at: int
    session: str
    text: str
    kind: str
    types: tuple[str, ...]
    speaker: str = ""
    tags: tuple[str, ...] = ()

    @property
    def dates(self) -> str:
        """The words of the day on which it was first said."""
        return date_words(time_at(self.at))


def texts_of(facts: Collection[Fact]) -> dict[str, Words]:
    """The texts that facts state, each as it was first said, with the types and tags of all that
    state it.
    """
    found: dict[str, Words] = {}
    for fact in sorted(facts, key=order_of):
        if not states(fact) or is_fused(fact):
            continue
        data, session = fact.data, "" if fact.log.of_user else fact.log.conversation
        if isinstance(data, SkillSaved):
            one = Words(fact.scope, fact.at, session, data.intent, "skill", ("procedure",))
        else:
            assert isinstance(data, MemorySaved)
            tags = {} if data.tags is None else msgspec.to_builtins(data.tags)
            one = Words(
                fact.scope,
                fact.at,
                session,
                data.text,
                "record",
                (data.memory_type,),
                data.role or "",
                tag_words(tags),
            )
        known = found.setdefault(one.text, one)
        if (one.types, one.tags) != (known.types, known.tags):
            found[one.text] = known._replace(
                types=tuple(dict.fromkeys((*known.types, *one.types))),
                tags=tuple(dict.fromkeys((*known.tags, *one.tags))),
            )
    return found


def tag_words(tags: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The words that tags are found by."""
    return tuple(tag_word(kind, tag) for kind in TAGS for tag in tags.get(kind, ()))


def sizes_of(texts: Iterable[Words]) -> dict[Code, Size]:
    """How many texts and words these add to each tenant, user and session."""
    found: dict[Code, Size] = {}
    for one in texts:
        words = len(stems_of(one.text))
        for code in codes_of(one.scope, one.session):
            count, before = found.get(code, (0, 0))
            found[code] = count + 1, before + words
    return found


def codes_of(scope: Scope, session: str = "") -> list[Code]:
    """What a text of a scope and session is counted in."""
    codes: list[Code] = [(scope.tenant,)]
    if scope.user is not None:
        codes.append((scope.tenant, "user", scope.user))
    if session:
        codes.append((scope.tenant, "session", session))
    return codes
