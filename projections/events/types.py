"""The events of a conversation: their types and the CloudEvents envelope.

Each type of the contract is a struct for ``data`` and a struct for the whole event, joined in one
tagged union, which ``projections.events.codec`` reads from the log. The first paragraph of a data
struct's docstring describes its type in the published schemas.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any, Literal

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
from projections.events.envelope import Event as Event
from projections.events.envelope import Tokens as Tokens
from projections.events.memories import MEMORY_TYPES as MEMORY_TYPES
from projections.events.memories import Learnt as Learnt
from projections.events.memories import MemoryDeleted as MemoryDeleted
from projections.events.memories import MemoryDeletedEvent as MemoryDeletedEvent
from projections.events.memories import MemoryEvent as MemoryEvent
from projections.events.memories import MemoryFused as MemoryFused
from projections.events.memories import MemoryFusedEvent as MemoryFusedEvent
from projections.events.memories import MemoryOutcome as MemoryOutcome
from projections.events.memories import MemoryOutcomeEvent as MemoryOutcomeEvent
from projections.events.memories import MemoryRetrieved as MemoryRetrieved
from projections.events.memories import MemoryRetrievedEvent as MemoryRetrievedEvent
from projections.events.memories import MemorySaved as MemorySaved
from projections.events.memories import MemorySavedEvent as MemorySavedEvent
from projections.events.memories import MemorySuperseded as MemorySuperseded
from projections.events.memories import MemorySupersededEvent as MemorySupersededEvent
from projections.events.memories import MemoryTags as MemoryTags
from projections.events.memories import MemoryTime as MemoryTime
from projections.events.memories import MemoryVoided as MemoryVoided
from projections.events.memories import RetrievedRecord as RetrievedRecord
from projections.events.memories import SkillSaved as SkillSaved
from projections.events.memories import SkillSavedEvent as SkillSavedEvent
from projections.events.versions import PREFIX as PREFIX


class Opened(Struct, omit_defaults=True):
    """Opens a conversation with its own policy, tools and metadata. Optional: a first message opens
    by itself.
    """

    policy: dict[str, Any] | None = None
    channel: str | None = None
    user: str | None = None
    tools: list[dict[str, Any]] | None = None
    metadata: dict[str, Any] | None = None


class Message(Struct, omit_defaults=True):
    """A message. ``tool_calls`` belong to an assistant's; ``content`` may be null only there,
    beside ``tool_calls``.

    ``usage``, of an assistant's, is what its model reported of the call: the window's counts are
    set right by it.
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
    """What a tool answered; it belongs to the first unanswered call of that id. ``spill`` is
    threadfold's own.
    """

    tool_call_id: str
    content: Content = None
    name: str | None = None
    is_error: bool = False
    pinned: bool = False
    spill: Spill | None = None


class ToolResultChunk(Struct, omit_defaults=True):
    """A piece of a long result's text, written by threadfold itself, before the result that names
    it.

    It is piece ``index`` of ``count``, from 0, and stands in the log only.
    """

    spill_id: str
    index: int
    count: int
    content: str


class Suspension(Struct, omit_defaults=True):
    """The run waits for somebody: an approval, an input, or something outside."""

    suspension_id: str
    kind: Literal["approval", "input", "external"]
    tool_call_id: str | None = None
    prompt: str | None = None
    expires_at: str | None = None


class Resolution(Struct, omit_defaults=True):
    """What became of a suspension."""

    suspension_id: str
    outcome: Literal["approved", "rejected", "answered", "expired", "cancelled"]
    content: Content = None


class Rollback(Struct, omit_defaults=True):
    """Go back: ``to`` is a position, or the id of one of the last 1,024 events, and the last that
    stays.
    """

    to: str


class SessionClosed(Struct, omit_defaults=True):
    """The session is over; the next message or tool result opens it again. ``after`` is the last
    message's position: void if another came.
    """

    reason: Literal["idle", "explicit"]
    after: str | None = None


class TurnStarted(Struct, omit_defaults=True):
    """A run begins. ``lease`` says what to do while another is in force, and for how many seconds
    it holds.
    """

    turn_id: str
    model: str | None = None
    lease: Any = None


class TurnEnded(Struct, omit_defaults=True):
    """A run is over: calls it left open are dead."""

    turn_id: str
    model: str | None = None
    lease: Any = None


class CompactionRequested(Struct, omit_defaults=True):
    """A summary is wanted now, of all that may leave the window's tail.

    The policy's marks do not matter.
    """


class LoopDetected(Struct, omit_defaults=True):
    """Identical calls in a row reached the policy's ``loop_guard``."""

    tool: str
    arguments_sha256: str
    count: int


class Span(Struct, omit_defaults=True):
    """The run of events a summary covers.

    ``from`` and ``to`` are positions, both included. ``positions`` are the offsets of its events,
    the first absolute and each later one as the difference to the one before. ``digest`` is the
    SHA-256 over the SHA-256 of each event id, in order. ``kept`` are, in the same form, the offsets
    of events in between that it does not cover: they are still in the window. ``stands`` has for
    each of ``positions`` a ``1`` where that event was summarised, and a ``0`` where a rollback
    abandoned it, an operator dropped it, it was rejected, or it says nothing to a window; it is
    missing where the writer does not say. ``survives_rollbacks``: a summary of it may be accepted
    after rollbacks that it does not know, where the window holds exactly these positions. ``apart``
    are, in the form of ``positions``, results in the span that had come before their calls and were
    left out before these came: they belong to no call.
    """

    from_: str = msgspec.field(name="from")
    to: str
    count: int
    positions: list[int]
    digest: str
    kept: list[int] = []
    stands: str | None = None
    survives_rollbacks: bool = False
    apart: list[int] = []


class Summary(Struct, omit_defaults=True):
    """A summary of a span of events; it is in force once the fold accepted it.

    ``previous_position`` and ``rollback`` are threadfold's own: the way back, and the last rollback
    known."""

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
    """An operator took an event out, by its position."""

    position: str
    reason: str | None = None


class Erased(Struct, omit_defaults=True):
    """The conversation was erased. This is final."""

    reason: str | None = None


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
    | MemoryEvent
)
AnyEvent = KnownEvent | OtherEvent


def absolute(steps: list[int]) -> list[int]:
    """The ascending offsets that :func:`delta` encoded."""
    return list(accumulate(steps))


def delta(offsets: list[int]) -> list[int]:
    """Ascending offsets as the first one and then the differences (the form of :class:`Span`
    ``positions``).
    """
    return [offset - before for offset, before in zip(offsets, [0, *offsets[:-1]], strict=False)]
