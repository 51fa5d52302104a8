"""What the facts of one record come to: a pure function of the set of them.

The law: a record depends on which facts and rollbacks there are, and on nothing else. So news may
come in any order, any number of times, from any number of partitions: equal sets give equal
records. Facts are ordered by their own times, then by where they stand in their logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from projections.events.times import time_at
from projections.events.types import (
    MemoryDeleted,
    MemoryFused,
    MemoryOutcome,
    MemorySaved,
    MemorySuperseded,
    SkillSaved,
)
from projections.memory.identity import Scope
from projections.memory.news import Fact
from projections.names import Key, users_log

DUPLICATE_WITHIN = 15 * 60 * 1_000_000
"""Microseconds within which saying the same again is a duplicate; later it confirms."""
STATED = (MemorySaved, SkillSaved)
"""What states a record, composites among them. A union would be made anew with every look."""
TRUST = {"tool": 0, "model": 1, "user": 2}
"""Who said it, the least trusted first."""


class Use(Struct):
    """What came of a record: how often it was given out, how often of these it was relevant enough
    for a prompt (a hit), and whether using it succeeded.
    """

    retrieved: int = 0
    hits: int = 0
    succeeded: int = 0
    failed: int = 0


class Retrievals(NamedTuple):
    """How often a record was given out, and when last: the sum of what its events say."""

    retrieved: int = 0
    hits: int = 0
    last: int | None = None


NEVER = Retrievals()


class Record(Struct):
    """A record, composite or skill as it stands. Times are microseconds since 1970.

    Text, type, tags and provenance (``conversation``, ``positions``, ``role``, ``trust``) are those
    of the latest statement among the most trusted ones of the present revision. ``duplicates`` are
    statements of the same within 15 minutes. An expired record is not recalled: ``superseded_by``
    says which later one it conflicts with.

    What a composite says follows from its ``sources`` (``projections.memory.composites``); it has
    taken in the composites that are its ``children``.
    """

    id: str
    kind: str
    scope: Scope
    type: str
    text: str
    normalized_text: str
    trust: str
    created: int
    confirmed_at: int
    conversation: str | None = None
    topic: str | None = None
    role: str | None = None
    entities: list[str] = []
    tags: dict[str, list[str]] = {}
    temporal: dict[str, str] = {}
    confidence: float = 1.0
    origin: str = "explicit"
    positions: list[str] = []
    revision: int = 1
    duplicates: int = 0
    superseded_by: str | None = None
    expired_at: int | None = None
    expired_reason: str | None = None
    sources: list[str] = []
    children: list[str] = []
    doc_markdown: str | None = None
    preconditions: list[str] = []
    last_retrieved_at: int | None = None
    use: Use = msgspec.field(default_factory=Use)

    @property
    def stands(self) -> bool:
        """Whether it is recalled."""
        return self.expired_at is None

    @property
    def deleted(self) -> bool:
        """Whether it does not stand, and none took its place."""
        return self.expired_at is not None and self.superseded_by is None

    @property
    def log(self) -> Key:
        """The log whose statement it shows; of a composite, until its sources make it."""
        if self.conversation is None:
            return users_log(self.scope.tenant, self.scope.user)
        return Key(self.scope.tenant, self.conversation)

    def document(self) -> dict[str, Any]:
        """The record as the public interface has it."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        del found["scope"]
        found |= {"user": self.scope.user, "channel": self.scope.channel}
        for name in ("created", "confirmed_at", "expired_at", "last_retrieved_at"):
            found[name] = None if found[name] is None else time_at(found[name])
        found["tags"] = {name: self.tags.get(name, []) for name in TAGS}
        for name in ("sources", "children", "preconditions", "doc_markdown"):
            if not found[name]:
                del found[name]
        return found


TAGS = ("task", "tool", "constraint", "failure", "affordance")


def order_of(fact: Fact) -> tuple[int, str, int]:
    """Where a fact comes among those of its record."""
    return fact.at, str(fact.log), fact.offset


def resolve(
    facts: Sequence[Fact],
    stands: Callable[[Fact], bool],
    as_of: int | None = None,
    given: Retrievals = NEVER,
) -> Record | None:
    """What a record's facts come to; None where nothing of it is known.

    Args:
        facts: all that were accepted about one record, in any order.
        stands: whether a fact's branch of its log stands (at ``as_of``).
        as_of: only what was known at that time counts.
        given: how often it was given out (until ``as_of``).
    """
    known = [fact for fact in facts if (as_of is None or fact.at <= as_of) and stands(fact)]
    if len(known) > 1:
        known.sort(key=order_of)
    resolution = Resolution()
    for fact in known:
        resolution.add(fact)
    return resolution.result(given)


class Resolution:
    """What the facts of one record come to that stand, added in their order."""

    def __init__(self) -> None:
        self._record: Record | None = None
        self._succeeded = self._failed = 0
        self._extracted: set[tuple[str, type, tuple[int, ...]]] = set()

    def add(self, fact: Fact) -> None:
        """Add the next fact."""
        data, record = fact.data, self._record
        if data.origin != "explicit" and fact.learnt_from:
            # A span may be read twice, and say the same twice: it was said once.
            found = str(fact.log), type(data), fact.learnt_from
            if found in self._extracted:
                return
            self._extracted.add(found)
        if isinstance(data, STATED):
            self._record = _stated(record, fact, data)
        elif isinstance(data, MemoryOutcome):
            self._succeeded += data.succeeded
            self._failed += not data.succeeded
        elif record is not None and isinstance(data, MemoryDeleted):
            record.expired_at, record.expired_reason = fact.at, data.reason or "deleted"
            record.superseded_by = None
        elif record is not None and isinstance(data, MemorySuperseded):
            record.expired_at, record.expired_reason = fact.at, data.reason or "superseded"
            record.superseded_by = data.by

    def result(self, given: Retrievals = NEVER) -> Record | None:
        """The record, which changes with the next fact; ``given`` as :func:`resolve` says."""
        record = self._record
        if record is not None:
            record.use = Use(given.retrieved, given.hits, self._succeeded, self._failed)
            record.last_retrieved_at = given.last
        return record


def _stated(before: Record | None, fact: Fact, data: MemorySaved | SkillSaved) -> Record:
    """The record after it was stated once more. What was said last stands again, whatever expired
    it before.
    """
    new = _of_skill(fact, data) if isinstance(data, SkillSaved) else _of_saved(fact, data)
    if before is None:
        return new
    new.created, new.revision, new.duplicates = before.created, before.revision, before.duplicates
    same = (new.text, new.doc_markdown) if new.kind == "skill" else new.normalized_text
    if same != (
        (before.text, before.doc_markdown) if new.kind == "skill" else before.normalized_text
    ):
        new.revision += 1
        return new
    if fact.at - before.confirmed_at <= DUPLICATE_WITHIN:
        new.duplicates += 1
    if TRUST[before.trust] > TRUST[new.trust]:
        before.confirmed_at, before.duplicates = fact.at, new.duplicates
        before.confidence = max(before.confidence, new.confidence)
        before.expired_at = before.expired_reason = before.superseded_by = None
        return before
    new.confidence = max(before.confidence, new.confidence)
    return new


def _of_saved(fact: Fact, data: MemorySaved) -> Record:
    tags = {} if data.tags is None else msgspec.to_builtins(data.tags)
    temporal = {} if data.temporal is None else msgspec.to_builtins(data.temporal)
    fused = data if isinstance(data, MemoryFused) else None
    return Record(
        id=data.memory_id,
        kind="record" if fused is None else "composite",
        scope=fact.scope,
        type=data.memory_type,
        text=data.text,
        normalized_text=data.normalized_text,
        trust=data.trust,
        created=fact.at,
        confirmed_at=fact.at,
        conversation=None if fact.log.of_user else fact.log.conversation,
        topic=data.topic,
        role=data.role,
        entities=list(data.entities),
        tags=tags,
        temporal=temporal,
        confidence=data.confidence,
        origin=data.origin,
        positions=list(data.positions),
        sources=[] if fused is None else list(fused.source_record_ids),
        children=[] if fused is None else list(fused.child_composite_ids),
    )


def _of_skill(fact: Fact, data: SkillSaved) -> Record:
    return Record(
        id=data.memory_id,
        kind="skill",
        scope=fact.scope,
        type="procedure",
        text=data.intent,
        normalized_text=data.normalized_text,
        trust=data.trust,
        created=fact.at,
        confirmed_at=fact.at,
        conversation=None if fact.log.of_user else fact.log.conversation,
        origin=data.origin,
        positions=list(data.positions),
        doc_markdown=data.doc_markdown,
        preconditions=list(data.preconditions),
    )


_encode = msgspec.json.Encoder(order="deterministic").encode


def digest(records: Iterable[Record]) -> str:
    """The SHA-256 of records, the same for equal records in any order."""
    return sha256(b"\n".join(sorted(_encode(record) for record in records))).hexdigest()
