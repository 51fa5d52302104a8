"""Reading events back from the log.

msgspec decodes and validates a record in a single pass (measured beside orjson in
``docs/decisions/0002-msgspec.md``). What is read is tolerant: fields that a newer version added are
ignored. What is appended is strict (see ``projections.events.validation``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import msgspec
from msgspec import Struct

from projections.events.content import FilePart
from projections.events.json_limits import why_not_kept
from projections.events.types import (
    AnyEvent,
    KnownEvent,
    Learnt,
    LoopDetected,
    Message,
    Opened,
    OtherEvent,
    ToolResult,
    TurnEnded,
    TurnStarted,
)
from projections.events.untrusted import (
    DECODE_ERRORS,
    Undecodable,
    check_nesting,
    refusing,
    without_text,
)
from projections.events.upcasters import Upcaster, UpcastFailed
from projections.events.versions import EventTypes

CONTENT_TYPE = "application/cloudevents+json"
UPCASTERS: tuple[Upcaster, ...] = ()
"""From outdated versions to the present ones; every type is at its first version yet
(``docs/events-versions.md``).
"""

TYPES: EventTypes[KnownEvent] = EventTypes(KnownEvent, UPCASTERS)
DATA_TYPES: dict[str, type[Struct]] = {
    TYPES.short(str(event.__struct_config__.tag)): field.type
    for event in get_args(KnownEvent)
    for field in msgspec.structs.fields(event)
    if field.name == "data"
}
"""The short name of each type and the struct of its ``data``."""
MEMORY = frozenset(name for name, data in DATA_TYPES.items() if issubclass(data, Learnt))
"""The types of the long-term memory."""
MEMORY_NAMES: dict[type, str] = {DATA_TYPES[name]: name for name in MEMORY}
"""The short name of each of their structs."""
_known: msgspec.json.Decoder[KnownEvent] = msgspec.json.Decoder(KnownEvent)
_other = refusing(msgspec.json.Decoder(OtherEvent).decode)


def full_type(name: str) -> str:
    """``message`` → ``threadfold.message.v1``, the version that this release writes."""
    return TYPES.full(name)


def is_known(full: str) -> bool:
    """Whether this release knows the type and version, an outdated one included."""
    return TYPES.is_present(full) or TYPES.is_outdated(full)


def is_outdated(full: str) -> bool:
    """Whether it is a version that this release reads by its upcaster."""
    return TYPES.is_outdated(full)


def short_type(full: str) -> str:
    """``threadfold.message.v1`` → ``message``; a type of another family, or another version than
    the present one, is returned whole.
    """
    return TYPES.short(full)


def present_form(envelope: dict[str, Any]) -> dict[str, Any]:
    """A decoded envelope as ``EventTypes.present_form`` makes it present; :func:`decode_event`
    refuses one of which it cannot.
    """
    return TYPES.present_form(envelope)


def decode_event(value: bytes) -> AnyEvent:
    """Decode a record's value into its typed event.

    Returns one of the known events, or :class:`OtherEvent` for a type or version this release does
    not know.

    Raises:
        Undecodable: the value is not JSON, lacks an envelope field, or is of a known type with data
            of the wrong form.
    """
    check_nesting(value)
    try:
        event = _known.decode(value)
    except DECODE_ERRORS as known_error:
        found = _not_present(value, known_error)
        if isinstance(found, OtherEvent):
            return found
        event = found
    data = event.data
    if (type(data) is Message or type(data) is ToolResult) and type(data.content) is not list:
        return event
    for field, free in _free_form(data):
        reason = why_not_kept(free)
        if reason is not None:
            raise Undecodable(f"field {field}: {reason}")
    return event


def _not_present(value: bytes, known_error: Exception) -> AnyEvent:
    """The event of a value that the present types do not read: of an outdated version, or of a type
    nobody knows.
    """
    try:
        other = _other(value)
    except Undecodable:
        raise Undecodable(without_text(known_error)) from None
    if TYPES.is_present(other.type):
        raise Undecodable(without_text(known_error)) from None
    if not TYPES.is_outdated(other.type):
        return other
    try:
        return TYPES.read_outdated(value)
    except UpcastFailed as error:
        raise Undecodable(without_text(error)) from error


def decode_opaque(value: bytes) -> OtherEvent:
    """Decode a record's envelope alone, whatever its type: an event whose payload nobody can read
    is one of a type that nobody knows.

    Raises:
        Undecodable: the value is not JSON, or lacks an envelope field.
    """
    return _other(value)


def _free_form(data: object) -> Iterator[tuple[str, object]]:
    """The fields of an event that may hold any JSON and are kept in a window, with their names;
    integers of any size among them.
    """
    if isinstance(data, Message | ToolResult):
        if isinstance(data.content, list):
            yield from (
                ("content.file", part.file) for part in data.content if isinstance(part, FilePart)
            )
    elif isinstance(data, Opened):
        yield from (("policy", data.policy), ("metadata", data.metadata))
    elif isinstance(data, TurnStarted | TurnEnded):
        yield "lease", data.lease
    elif isinstance(data, LoopDetected):
        yield "count", data.count
