"""The positions that events name, given other ones: what a copy of a log at other offsets needs.

An event names others of its own conversation: a rollback its target, a summary its
span, a record of the memory what taught it. Only these fields change; every other byte of a value
stays. What is no event stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from projections.errors import InvalidPosition
from projections.events.codec import MEMORY
from projections.events.types import PREFIX, absolute, delta
from projections.events.untrusted import Undecodable, json_decoder
from projections.names import Position, parse_position

NOWHERE = Position(999_999_999, 10**18 - 1)
"""A position that no event has: what named no event of its conversation still names none."""


class Moved(Protocol):
    """Where the events of one conversation stand in the copy."""

    @property
    def partition(self) -> int:
        """The conversation's partition in the original."""

    def event(self, position: Position) -> Position:
        """Where an event is; :data:`NOWHERE` for a position that none of them had."""

    def until(self, position: Position) -> Position:
        """Where the last event at or before a position is: what compares as the position did."""


_Fields = dict[str, msgspec.Raw]
_decode = json_decoder(_Fields)
_any = json_decoder()
_string = json_decoder(str)
_strings = json_decoder(list[str])
_offsets = json_decoder(list[int])
_encode = msgspec.json.Encoder().encode


def names_positions(type_: str) -> bool:
    """Whether the payload of an event of this type may name positions; of any version of it."""
    return _kind(type_) in _PAYLOADS


def _kind(type_: str) -> str:
    return type_.removeprefix(PREFIX).rpartition(".v")[0]


def relocate_envelope(value: bytes, moved: Moved) -> bytes:
    """A record's value with its conditions, ``expect`` and ``fence``, given new positions; its
    payload may be sealed.
    """
    if b'"expect"' not in value and b'"fence"' not in value:
        return value
    try:
        fields = _decode(value)
        changed = _text(fields, "expect", moved.until)
        if "fence" in fields:
            token = _any(fields["fence"])
            if type(token) is int:
                token = moved.event(Position(moved.partition, token)).offset
                fields["fence"] = msgspec.Raw(_encode(token))
                changed = True
    except Undecodable:
        return value
    return _encode(fields) if changed else value


def relocate_payload(value: bytes, moved: Moved) -> bytes:
    """A readable value with the positions in its payload given new ones."""
    try:
        fields = _decode(value)
        change = _PAYLOADS.get(_kind(_string(fields["type"])))
        if change is None:
            return value
        data = _decode(fields["data"])
        if not change(data, moved):
            return value
    except (Undecodable, KeyError):
        return value
    fields["data"] = msgspec.Raw(_encode(data))
    return _encode(fields)


# -- fields


def _text(fields: _Fields, name: str, place: Callable[[Position], Position]) -> bool:
    """Change a field that is a position; an id or null stays."""
    if name not in fields:
        return False
    text = _any(fields[name])
    try:
        position = parse_position(text)
    except InvalidPosition:
        return False
    fields[name] = msgspec.Raw(_encode(str(place(position))))
    return True


def _texts(fields: _Fields, name: str, moved: Moved) -> bool:
    if name not in fields:
        return False
    found = _strings(fields[name])
    try:
        changed = [str(moved.event(parse_position(text))) for text in found]
    except InvalidPosition:
        return False
    fields[name] = msgspec.Raw(_encode(changed))
    return bool(found)


def _steps(fields: _Fields, name: str, moved: Moved) -> bool:
    if name not in fields:
        return False
    offsets = absolute(_offsets(fields[name]))
    changed = [moved.until(Position(moved.partition, offset)).offset for offset in offsets]
    fields[name] = msgspec.Raw(_encode(delta(changed)))
    return bool(offsets)


def _within(fields: _Fields, name: str, change: Callable[[_Fields], Iterable[bool]]) -> bool:
    """Change fields of a field that is an object; anything else stays."""
    try:
        inner = _decode(fields[name])
    except (KeyError, Undecodable):
        return False
    if not any(list(change(inner))):
        return False
    fields[name] = msgspec.Raw(_encode(inner))
    return True


def _rollback(data: _Fields, moved: Moved) -> bool:
    return _text(data, "to", moved.event)


def _closed(data: _Fields, moved: Moved) -> bool:
    return _text(data, "after", moved.until)


def _dropped(data: _Fields, moved: Moved) -> bool:
    return _text(data, "position", moved.event)


def _result(data: _Fields, moved: Moved) -> bool:
    return _within(data, "spill", lambda spill: [_texts(spill, "chunks", moved)])


def _turn(data: _Fields, moved: Moved) -> bool:
    return _within(data, "lease", lambda lease: [_text(lease, "since", moved.event)])


def _summary(data: _Fields, moved: Moved) -> bool:
    def span(fields: _Fields) -> list[bool]:
        ends = [_text(fields, name, moved.event) for name in ("from", "to")]
        return ends + [_steps(fields, name, moved) for name in ("positions", "kept", "apart")]

    named = [_text(data, name, moved.event) for name in ("previous_position", "rollback")]
    return any([*named, _within(data, "span", span)])


def _learnt(data: _Fields, moved: Moved) -> bool:
    return any([_texts(data, "positions", moved), _text(data, "rollback", moved.event)])


_PAYLOADS: dict[str, Callable[[_Fields, Moved], bool]] = {
    "rollback": _rollback,
    "session.closed": _closed,
    "event.dropped": _dropped,
    "tool.result": _result,
    "turn.ended": _turn,
    "summary": _summary,
    **dict.fromkeys(MEMORY, _learnt),
}
"""What of a type's payload names positions."""
