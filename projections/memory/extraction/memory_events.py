"""Candidates as events of the log that taught them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from projections.events.memories import MemoryFused, MemorySaved, Origin
from projections.events.times import parse_micros
from projections.memory.extraction.candidate import Candidate
from projections.memory.extraction.fusion import clusters, composite
from projections.memory.identity import id_of, normalize
from projections.names import Key, Position


class Taught(msgspec.Struct, frozen=True):
    """Whose memory a log teaches at this moment: ``rollback`` is its latest one."""

    key: Key
    partition: int
    user: str | None
    channel: str | None
    rollback: int | None

    def position(self, offset: int) -> str:
        """A position of the log."""
        return str(Position(self.partition, offset))


def memory_events(
    taught: Taught,
    candidates: Sequence[Candidate],
    origin: Origin = "rules",
    model: str | None = None,
) -> Iterator[dict[str, Any]]:
    """The flat events that say what was found, and then what it is fused to.

    Their ids follow from what they say and from the rollback that they know: the same span that is
    read twice gives the same events, and what a rollback made void is said anew after it.
    """
    for found in candidates:
        data = MemorySaved(**_fields(taught, found, origin, model))
        if data.normalized_text:
            data.memory_id = id_of(taught.key, data) or ""
            yield _flat("memory.saved", taught.key, data, found.time)
    for sources in clusters(candidates):
        found = composite(sources)
        records = [MemorySaved(**_fields(taught, one, origin, model)) for one in sources]
        fused = MemoryFused(
            **_fields(taught, found, origin, model),
            source_record_ids=sorted({id_of(taught.key, one) or "" for one in records}),
        )
        fused.memory_id = id_of(taught.key, fused) or ""
        yield _flat("memory.fused", taught.key, fused, found.time)


def _fields(taught: Taught, found: Candidate, origin: Origin, model: str | None) -> dict[str, Any]:
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
        "user": taught.user,
        "channel": taught.channel,
        "positions": [taught.position(offset) for offset in found.offsets],
        "origin": origin,
        "model": model,
        "rollback": None if taught.rollback is None else taught.position(taught.rollback),
    }


def _flat(kind: str, key: Key, data: MemorySaved, time: str | None) -> dict[str, Any]:
    """A flat event with an id that follows from its log and data."""
    fields: dict[str, Any] = msgspec.to_builtins(data)
    named = msgspec.json.encode([kind, str(key), fields, time], order="deterministic")
    flat = {"type": kind, "id": f"learnt-{sha256(named).hexdigest()[:32]}", **fields}
    # Another producer's time may be none.
    return flat if parse_micros(time) is None else {**flat, "time": time}
