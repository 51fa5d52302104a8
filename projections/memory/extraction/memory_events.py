"""Candidates as events of the log that taught them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from projections.events.memories import (
    Learnt,
    MemoryFused,
    MemorySaved,
    MemorySavedEvent,
    MemorySuperseded,
    MemoryTags,
    Origin,
)
from projections.events.times import parse_micros, present, time_at
from projections.memory.extraction.candidate import Candidate
from projections.memory.fusion import Relations, Statement
from projections.memory.identity import Scope, id_of, normalize, scope_of
from projections.memory.resolution import TRUST
from projections.names import Key, Position, parse_position


class Taught(msgspec.Struct, frozen=True):
    """Whose memory a log teaches at this moment: ``rollback`` is its latest one."""

    key: Key
    partition: int
    user: str | None
    channel: str | None
    rollback: int | None

    @property
    def scope(self) -> Scope:
        """Whose the records are."""
        return scope_of(self.key, self.user, self.channel)

    def position(self, offset: int) -> str:
        """A position of the log."""
        return str(Position(self.partition, offset))


def memory_events(
    taught: Taught, candidates: Sequence[Candidate], asked: str | None = None
) -> Iterator[dict[str, Any]]:
    """The flat events that say what was found.

    Their ids follow from what they say and from the rollback that they know: the same span that is
    read twice gives the same events, and what a rollback made void is said anew after it.

    Args:
        asked: the request that a model answered. Asked again, it would say it in other words: the
            ids of what it said follow from the request (:func:`answer_id`), so that its first
            answer counts. Where rules answered in its place, they say the same again.
    """
    number = 0
    for flat in _events(taught, candidates):
        if asked is None or flat.get("model") is None:
            yield flat
        else:
            yield {**flat, "id": answer_id(taught, asked, number)}
            number += 1


def answer_id(taught: Taught, asked: str, number: int) -> str:
    """The id of the event of that number, from 0 on, in the first answer to a request."""
    return _id_of([str(taught.key), asked, taught.rollback, number])


def judgement_id(taught: Taught, asked: str, left: int = 0) -> str:
    """The id of an event of the first judgement for a request. ``left``: how many come behind it.
    So the last one shows that all were said.
    """
    return _id_of([str(taught.key), asked, taught.rollback, "judged", left])


def candidate_of(event: MemorySavedEvent) -> Candidate:
    """The candidate that an event says."""
    data = event.data
    return Candidate(
        memory_type=data.memory_type,
        text=data.text,
        offsets=tuple(parse_position(position).offset for position in data.positions),
        time=event.time,
        role=data.role or "",
        trust=data.trust,
        confidence=data.confidence,
        topic=data.topic,
        entities=tuple(data.entities),
        temporal=data.temporal,
        tags=data.tags or MemoryTags(),
        model=data.model,
    )


def _events(taught: Taught, candidates: Sequence[Candidate]) -> Iterator[dict[str, Any]]:
    for found in candidates:
        data = MemorySaved(**_fields(taught, found))
        if data.normalized_text:
            data.memory_id = id_of(taught.key, data) or ""
            yield _flat("memory.saved", taught.key, data, found.time)


class Said(NamedTuple):
    """A candidate and the statement that it is."""

    found: Candidate
    statement: Statement


def said(taught: Taught, candidates: Sequence[Candidate]) -> list[Said]:
    """The statements of candidates that may be fused or conflict: those without a topic."""
    several, now = [], parse_micros(present()) or 0
    for found in candidates:
        data = MemorySaved(**_fields(taught, found))
        if found.topic is None and data.normalized_text:
            at = parse_micros(found.time)
            one = Statement(
                id_of(taught.key, data) or "",
                found.memory_type,
                found.text,
                now if at is None else at,
                found.trust,
            )
            several.append(Said(found, one))
    return several


def relation_events(
    taught: Taught, several: Sequence[Said], found: Relations, asked: str | None = None
) -> Iterator[dict[str, Any]]:
    """The flat events that say which of these conflict or are fused, with each other and with what
    is there already.

    Args:
        asked: the request for which a model may have judged. Asked again, it may judge otherwise:
            the ids of what it said follow from the request (:func:`judgement_id`).
    """
    events = list(_relations(taught, several, found))
    if asked is None or found.model is None:
        yield from events
        return
    for left, flat in zip(range(len(events) - 1, -1, -1), events, strict=True):
        yield {**flat, "id": judgement_id(taught, asked, left)}


def _relations(
    taught: Taught, several: Sequence[Said], found: Relations
) -> Iterator[dict[str, Any]]:
    """These events, with ids that follow from what they say.

    Each stands as long as the first new record that it is about: a rollback takes what it said with
    it. It has the time of the last one.
    """
    last = {one.statement.id: one.found for one in several}
    origin: Origin = "rules" if found.model is None else "model"
    for conflict in found.conflicts:
        new = [last[one.id] for one in conflict if one.id in last]
        over = MemorySuperseded(
            memory_id=conflict.former.id,
            by=conflict.later.id,
            reason="conflict",
            **_learnt(taught, new[-1].offsets, origin, found.model),
        )
        yield _flat("memory.superseded", taught.key, over, time_at(conflict.later.at))
    for cluster in found.clusters:
        new = [last[one] for one in cluster.sources if one in last]
        fused = MemoryFused(
            memory_id="",
            memory_type=new[0].memory_type,
            text="",
            # What names it: what it says follows from its sources, as they are at any time.
            normalized_text=" ".join(cluster.sources),
            trust=min((one.trust for one in new), key=TRUST.__getitem__),
            source_record_ids=list(cluster.sources),
            child_composite_ids=list(cluster.children),
            **_learnt(taught, min(new, key=_anchor).offsets, origin, found.model),
        )
        fused.memory_id = id_of(taught.key, fused) or ""
        flat = _flat("memory.fused", taught.key, fused, max(new, key=_anchor).time)
        # The time and the trust follow from which of the sources are new: another extraction finds
        # the same cluster from another one.
        yield {**flat, "id": _id_of(["memory.fused", str(taught.key), _named(fused)])}


def _named(fused: MemoryFused) -> list[object]:
    """What names the event of a composite: its first record, its sources and what it takes in."""
    return [fused.positions, fused.rollback, fused.memory_id, fused.child_composite_ids]


def _anchor(found: Candidate) -> tuple[int, ...]:
    return found.offsets[::-1]


def _fields(taught: Taught, found: Candidate) -> dict[str, Any]:
    """What a candidate says, as fields of a :class:`MemorySaved` that has no id yet."""
    return {
        "memory_id": "",
        "memory_type": found.memory_type,
        "text": found.text,
        "normalized_text": normalize(found.text),
        "trust": found.trust,
        "topic": found.topic,
        "role": found.role,
        "entities": list(found.entities),
        "temporal": found.temporal,
        "tags": found.tags,
        "confidence": found.confidence,
        **_learnt(taught, found.offsets, "rules" if found.model is None else "model", found.model),
    }


def _learnt(
    taught: Taught, offsets: Sequence[int], origin: Origin, model: str | None
) -> dict[str, Any]:
    """What every event of these says, as fields of a :class:`Learnt`."""
    return {
        "user": taught.user,
        "channel": taught.channel,
        "positions": [taught.position(offset) for offset in offsets],
        "origin": origin,
        "model": model,
        "rollback": None if taught.rollback is None else taught.position(taught.rollback),
    }


def _flat(kind: str, key: Key, data: Learnt, time: str | None) -> dict[str, Any]:
    """A flat event with an id that follows from its log and data."""
    fields: dict[str, Any] = msgspec.to_builtins(data)
    flat = {"type": kind, "id": _id_of([kind, str(key), fields, time]), **fields}
    # Another producer's time may be none.
    return flat if parse_micros(time) is None else {**flat, "time": time}


def _id_of(named: object) -> str:
    """The id of an event that such things name."""
    encoded = msgspec.json.encode(named, order="deterministic")
    return f"learnt-{sha256(encoded).hexdigest()[:32]}"
