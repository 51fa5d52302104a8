"""What the topic of memories says, decoded: facts, rollbacks, dropped events, erasures.

Each says all that its meaning depends on, so the order in which news comes makes no difference.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, TypeAlias

import msgspec

from projections.errors import InvalidPosition
from projections.events.codec import decode_event
from projections.events.times import parse_micros, stated_at
from projections.events.types import (
    ErasedEvent,
    Learnt,
    MemoryFused,
    MemoryRetrieved,
    MemoryVoided,
    OtherEvent,
)
from projections.events.untrusted import Undecodable, json_decoder
from projections.events.versions import PREFIX
from projections.memory.identity import Scope, scope_of
from projections.names import Key, parse_key, parse_position

VOIDED = f"{PREFIX}memory.voided.v1"


class Fact(NamedTuple):
    """An accepted memory event: what a log says of one record.

    ``at`` is its own time in microseconds since 1970, never later than the broker's of it.
    ``learnt_from`` are the offsets of the events that taught it, in order.
    """

    log: Key
    offset: int
    at: int
    learnt_from: tuple[int, ...]
    data: Learnt

    @property
    def anchor(self) -> int:
        """The last event that it was learnt from, or its own: it stands as long as that one
        does.
        """
        return self.learnt_from[-1] if self.learnt_from else self.offset

    @property
    def memory_id(self) -> str:
        """The record that it is about."""
        found: str = self.data.memory_id  # type: ignore[attr-defined]
        return found

    @property
    def scope(self) -> Scope:
        """Whose the record is."""
        return scope_of(self.log, self.data.user, self.data.channel)


class Used(NamedTuple):
    """How often records of a scope were given out: ``(memory_id, retrieved, hits)`` each."""

    log: Key
    offset: int
    at: int
    scope: Scope
    counts: tuple[tuple[str, int, int], ...]


class WentBack(NamedTuple):
    """A log's rollback at offset ``by``: ``to`` is the last event that stays."""

    log: Key
    by: int
    to: int
    at: int


class Dropped(NamedTuple):
    """An operator took an event out of a log."""

    log: Key
    offset: int


class LogErased(NamedTuple):
    """A log was erased, for good."""

    log: Key


News: TypeAlias = Fact | Used | WentBack | Dropped | LogErased


class _Place(msgspec.Struct):
    source: str
    position: str
    recordedtime: str
    time: str | None = None


_place = json_decoder(_Place)
_voided = json_decoder(MemoryVoided)


class _Sourced(msgspec.Struct):
    source: str


_sourced = json_decoder(_Sourced)


def log_of(value: bytes) -> Key | None:
    """Whose log a record of the topic is of, by its source; None where it names none. The payload
    may be sealed.
    """
    try:
        return _log_named(_sourced(value).source)
    except Undecodable:
        return None


@lru_cache(maxsize=4096)
def _log_named(source: str) -> Key | None:
    parts = source.split("/")
    key = parse_key(f"{parts[2]}/{parts[4]}".encode()) if len(parts) == 5 else None
    return key if key is not None and key.source == "/".join(parts) else None


def read_news(log: Key, value: bytes) -> News | None:
    """What a record of the topic says of a log; None for what this release does not know, and for a
    payload whose key is deleted.

    Args:
        log: whose event it is (:func:`log_of`).
        value: the record's value, its payload opened.

    Raises:
        Undecodable: it is no such record.
    """
    event = decode_event(value)
    try:
        place = _place(value)
        position = parse_position(place.position)
        recorded = parse_micros(place.recordedtime)
        if place.source != log.source or recorded is None:
            raise Undecodable("its source or recordedtime is not one")
        at = stated_at(place.time, recorded)
        if isinstance(event, ErasedEvent):
            return LogErased(log)
        if isinstance(event, OtherEvent):
            return _void(log, event, at) if event.type == VOIDED else None
        data = event.data
        if not isinstance(data, Learnt):
            return None
        if isinstance(data, MemoryFused):
            data = _without_text(data)
        if isinstance(data, MemoryRetrieved):
            return _used(log, position.offset, at, data)
        learnt_from = tuple(parse_position(one).offset for one in data.positions)
    except InvalidPosition as error:
        raise Undecodable(f"it is not of the topic of memories: {error}") from None
    return Fact(log, position.offset, at, learnt_from, data)


def _without_text(data: MemoryFused) -> MemoryFused:
    """What fuses, without what former releases wrote of its sources into it."""
    return msgspec.structs.replace(
        data, text="", normalized_text="", entities=[], tags=None, temporal=None
    )


def _used(log: Key, offset: int, at: int, data: MemoryRetrieved) -> Used:
    counts: dict[str, tuple[int, int]] = {}
    for one in data.records:
        retrieved, hits = counts.get(one.memory_id, (0, 0))
        counts[one.memory_id] = retrieved + one.retrieved, hits + one.hits
    scope = Scope(log.tenant, data.user, data.channel, data.taught_by)
    return Used(log, offset, at, scope, tuple((name, *both) for name, both in counts.items()))


def _void(log: Key, event: OtherEvent, at: int) -> News | None:
    data = _voided(event.data if event.data is not msgspec.UNSET else b"")
    if data.to is not None:
        return WentBack(log, parse_position(data.by).offset, parse_position(data.to).offset, at)
    if data.position is not None:
        return Dropped(log, parse_position(data.position).offset)
    return None
