"""The events of a conversation: their types, the CloudEvents envelope, and reading them back from
the log.

Each type of the contract is a struct for ``data`` and a struct for the whole event, joined in one
tagged union, so that msgspec decodes and validates a record in a single pass (measured beside
orjson in ``docs/decisions/0002-msgspec.md``). What is read is tolerant (fields that a newer version
added are ignored); what is appended is strict (see ``projections.events.validation``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Literal, get_args

import msgspec
from msgspec import UNSET, Struct, UnsetType

from projections.events.content import Content as Content
from projections.events.content import FilePart as FilePart
from projections.events.content import ImagePart as ImagePart
from projections.events.content import ImageUrl as ImageUrl
from projections.events.content import Number as Number
from projections.events.content import Part as Part
from projections.events.content import ReasoningPart as ReasoningPart
from projections.events.content import TextPart as TextPart
from projections.events.content import ToolCall as ToolCall
from projections.events.content import Usage as Usage
from projections.events.json_depth import nested_beyond
from projections.events.json_limits import why_not_kept
from projections.events.upcasters import Upcaster, UpcastFailed
from projections.events.versions import PREFIX as PREFIX
from projections.events.versions import EventTypes

MAX_NESTING = 128
"""Levels of arrays and objects in a whole record."""
CONTENT_TYPE = "application/cloudevents+json"


class Opened(Struct, omit_defaults=True):
    policy: dict[str, Any] | None = None
    channel: str | None = None
    user: str | None = None
    tools: list[dict[str, Any]] | None = None
    metadata: dict[str, Any] | None = None


class Message(Struct, omit_defaults=True):
    """A message. ``usage``, of an assistant's, is what its model reported of the call: the window's
    counts are set right by it.
    """

    role: Literal["system", "developer", "user", "assistant"]
    content: Content = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    model: str | None = None
    status: Literal["complete", "interrupted"] | None = None
    usage: Usage | None = None

    def __post_init__(self) -> None:
        if self.tool_calls and self.role != "assistant":
            raise ValueError(
                f"tool_calls: they belong to an assistant's message, not to role {self.role!r}"
            )
        if self.content is None and not (self.role == "assistant" and self.tool_calls):
            raise ValueError("content: may be null only in an assistant's message with tool_calls")


class Spill(Struct, omit_defaults=True):
    """Where the whole text of a spilled result is: ``chunks`` are the positions of its pieces, in
    order.

    ``size`` are the characters of each piece but the last. ``parts`` is there where the content was
    a list: for each of its parts the characters of its text, null for a part of another kind, which
    stays in the result's own content.
    """

    chars: Number
    bytes: Number
    sha256: str
    size: Number
    chunks: list[str]
    parts: list[Number | None] | None = None


class ToolResult(Struct, omit_defaults=True):
    tool_call_id: str
    content: Content = None
    name: str | None = None
    is_error: bool = False
    pinned: bool = False
    spill: Spill | None = None


class ToolResultChunk(Struct, omit_defaults=True):
    """A piece of a result's text (``index`` of ``count``, from 0): it stands in the log only,
    before the result that names it.
    """

    spill_id: str
    index: int
    count: int
    content: str


class Suspension(Struct, omit_defaults=True):
    suspension_id: str
    kind: Literal["approval", "input", "external"]
    tool_call_id: str | None = None
    prompt: str | None = None
    expires_at: str | None = None


class Resolution(Struct, omit_defaults=True):
    suspension_id: str
    outcome: Literal["approved", "rejected", "answered", "expired", "cancelled"]
    content: Content = None


class Rollback(Struct, omit_defaults=True):
    to: str


class SessionClosed(Struct, omit_defaults=True):
    reason: Literal["idle", "explicit"]
    after: str | None = None


class TurnStarted(Struct, omit_defaults=True):
    turn_id: str
    model: str | None = None
    lease: Any = None


class TurnEnded(Struct, omit_defaults=True):
    turn_id: str
    model: str | None = None
    lease: Any = None


class CompactionRequested(Struct, omit_defaults=True):
    """Somebody wants a summary now: of all that may leave the window's tail, whatever the policy's
    marks say.
    """


class LoopDetected(Struct, omit_defaults=True):
    tool: str
    arguments_sha256: str
    count: int


class Span(Struct, omit_defaults=True):
    """The run of events a summary covers.

    ``from`` and ``to`` are positions, both included. ``positions`` are the offsets of its events,
    the first absolute and each later one as the difference to the one before. ``digest`` is the
    SHA-256 over the SHA-256 of each event id, in order. ``kept`` are, in the same form, the offsets
    of events in between that it does not cover: they are still in the window.
    """

    from_: str = msgspec.field(name="from")
    to: str
    count: int
    positions: list[int]
    digest: str
    kept: list[int] = []


class Summary(Struct, omit_defaults=True):
    """A summary of a span. ``previous_position`` and ``rollback`` are threadfold's own: the way
    back, and the last rollback known.
    """

    summary_id: str
    text: str
    tokens: int
    span: Span
    previous: str | None
    reason: Literal["budget", "idle", "explicit"]
    summarizer: str
    trust: Literal["user", "model", "tool"]
    tokens_before: int
    tokens_after: int
    policy: str
    previous_position: str | None = None
    rollback: str | None = None
    model: str | None = None
    cost: float | None = None


class EventDropped(Struct, omit_defaults=True):
    position: str
    reason: str | None = None


class Erased(Struct, omit_defaults=True):
    reason: str | None = None


class Tokens(Struct, omit_defaults=False):
    """What the producer counted: a claim the fold checks for plausibility (see
    ``projections.events.tokenizer``).
    """

    count: int
    encoding: str
    exact: bool = True


class Event(Struct, tag_field="type", kw_only=True):
    """The envelope every event shares; subclasses give ``data`` its type.

    ``expect`` and ``fence`` are conditions that the fold checks
    (``projections.fold.conditions``).
    """

    specversion: Literal["1.0"]
    id: str
    source: str
    time: str | None = None
    traceparent: str | None = None
    tokens: Tokens | None = None
    expect: str | None = None
    fence: int | None = None
    data: Any


class OpenedEvent(Event, tag="threadfold.conversation.opened.v1"):
    data: Opened


class MessageEvent(Event, tag="threadfold.message.v1"):
    data: Message


class ToolResultEvent(Event, tag="threadfold.tool.result.v1"):
    data: ToolResult


class ToolResultChunkEvent(Event, tag="threadfold.tool.result.chunk.v1"):
    data: ToolResultChunk


class SuspensionEvent(Event, tag="threadfold.suspension.v1"):
    data: Suspension


class ResolutionEvent(Event, tag="threadfold.resolution.v1"):
    data: Resolution


class RollbackEvent(Event, tag="threadfold.rollback.v1"):
    data: Rollback


class SessionClosedEvent(Event, tag="threadfold.session.closed.v1"):
    data: SessionClosed


class TurnStartedEvent(Event, tag="threadfold.turn.started.v1"):
    data: TurnStarted


class TurnEndedEvent(Event, tag="threadfold.turn.ended.v1"):
    data: TurnEnded


class CompactionRequestedEvent(Event, tag="threadfold.compaction.requested.v1"):
    data: CompactionRequested


class LoopDetectedEvent(Event, tag="threadfold.loop.detected.v1"):
    data: LoopDetected


class SummaryEvent(Event, tag="threadfold.summary.v1"):
    data: Summary


class EventDroppedEvent(Event, tag="threadfold.event.dropped.v1"):
    data: EventDropped


class ErasedEvent(Event, tag="threadfold.conversation.erased.v1"):
    data: Erased


class OtherEvent(Struct, kw_only=True):
    """An event of a type, or a version of a type, that this release does not know: kept in the log,
    counted, skipped.
    """

    specversion: Literal["1.0"]
    id: str
    type: str
    source: str
    time: str | None = None
    tokens: Any = None
    expect: Any = None
    fence: Any = None
    data: msgspec.Raw | UnsetType = UNSET


KnownEvent = (
    OpenedEvent
    | MessageEvent
    | ToolResultEvent
    | ToolResultChunkEvent
    | SuspensionEvent
    | ResolutionEvent
    | RollbackEvent
    | SessionClosedEvent
    | TurnStartedEvent
    | TurnEndedEvent
    | CompactionRequestedEvent
    | LoopDetectedEvent
    | SummaryEvent
    | EventDroppedEvent
    | ErasedEvent
)
AnyEvent = KnownEvent | OtherEvent

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
_known: msgspec.json.Decoder[KnownEvent] = msgspec.json.Decoder(KnownEvent)
_other = msgspec.json.Decoder(OtherEvent)
_QUOTED = re.compile(r" value ['\"].*['\"](?= - at `\$|$)", re.DOTALL)


class Undecodable(ValueError):
    """A record's value is not an event; the message says what is wrong. It is a dead letter, never
    an exception to a user.
    """


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
    # Objects alone take five bytes a level: most records are shorter than that, and their brackets
    # need not be counted.
    if (len(value) > 5 * MAX_NESTING or b"[" in value) and nested_beyond(value, MAX_NESTING):
        # Python's own limit would depend on the caller's stack: the same record would be an event
        # here and none there.
        raise Undecodable(f"it is nested more than {MAX_NESTING} levels deep")
    try:
        event = _known.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as known_error:
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
        other = _other.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Undecodable(_without_text(known_error)) from None
    if TYPES.is_present(other.type):
        raise Undecodable(_without_text(known_error)) from None
    if not TYPES.is_outdated(other.type):
        return other
    try:
        return TYPES.read_outdated(value)
    except UpcastFailed as error:
        raise Undecodable(_without_text(error)) from error


def decode_opaque(value: bytes) -> OtherEvent:
    """Decode a record's envelope alone, whatever its type: an event whose payload nobody can read
    is one of a type that nobody knows.

    Raises:
        Undecodable: the value is not JSON, or lacks an envelope field.
    """
    try:
        return _other.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Undecodable(_without_text(error)) from None


def _without_text(error: Exception) -> str:
    """A decoder's complaint without what it quotes of the payload: dead letters and logs outlive an
    erasure.
    """
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 ({error.reason})"
    return _QUOTED.sub(" value", str(error))


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


def absolute(steps: list[int]) -> list[int]:
    """The ascending offsets that :func:`delta` encoded."""
    return list(accumulate(steps))


def delta(offsets: list[int]) -> list[int]:
    """Ascending offsets as the first one and then the differences (the form of :class:`Span`
    ``positions``).
    """
    return [offset - before for offset, before in zip(offsets, [0, *offsets[:-1]], strict=False)]
