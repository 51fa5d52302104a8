"""The types of the routes' answers. The OpenAPI document's schemas and examples are made from them.

A field without a default is always there. Newer versions may add fields.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from threadfold.schemas.structs import POSITION as POSITION_SCHEMA

Count = Annotated[int, Meta(ge=0)]
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Position = Annotated[str, Meta(extra_json_schema=POSITION_SCHEMA)]
State = Literal["active", "awaiting_input", "awaiting_approval", "idle", "closed"]
KeyScope = Literal["append", "read", "subscribe", "tokens", "admin", "erase"]


_COMPONENTS = "#/components/schemas/"
LoggedEvent = Annotated[Any, Meta(extra_json_schema={"$ref": f"{_COMPONENTS}LoggedEvent"})]
LoggedSummary = Annotated[Any, Meta(extra_json_schema={"$ref": f"{_COMPONENTS}LoggedSummary"})]
ModelCalled = Annotated[Any, Meta(extra_json_schema={"$ref": f"{_COMPONENTS}ModelCalled"})]
RenderedMessage = Annotated[Any, Meta(extra_json_schema={"$ref": f"{_COMPONENTS}RenderedMessage"})]


class Problem(Struct):
    """An RFC 9457 problem document."""

    type: str
    title: str
    status: int
    detail: str


# -- appending


class AppendedEvent(Struct):
    """One appended event. `status` is what the fold decided, with `wait` or a condition. Without,
    it is `unknown` if the id was given (it may be a repeat), else it is not there. `position` is
    where this event is, but of a repeat where its id came first.
    """

    id: str
    position: Position
    status: Literal["applied", "duplicate", "rejected", "parked", "unknown"] | UnsetType = UNSET


class Appended(Struct):
    """Ids and positions in the order of the request. `position` is the last: use it as `after`."""

    events: list[AppendedEvent]
    position: Position


class AppendedEventOfSeveral(AppendedEvent, kw_only=True):
    """One appended event, with its conversation."""

    conversation: str


class AppendedOfSeveral(Struct):
    """Ids and positions in the order of the request. `positions` has each conversation's last."""

    events: list[AppendedEventOfSeveral]
    positions: dict[str, Position]


class RecordedCall(Struct):
    """A recorded model call. `id` is null if the tenant's policy has `renders` off."""

    id: str | None
    recorded: bool


# -- reading


class OpenAIFunction(Struct):
    """The function of a call, with its arguments as JSON text."""

    name: str
    arguments: str


class OpenAIToolCall(Struct):
    """A call of a tool in OpenAI's chat format."""

    id: str
    function: OpenAIFunction
    type: Literal["function"] = "function"


class OpenAIMessage(Struct):
    """A message in OpenAI's chat format."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | UnsetType | None = UNSET
    name: str | UnsetType = UNSET
    tool_calls: list[OpenAIToolCall] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET


class AnthropicMessage(Struct):
    """A message in Anthropic's format. Send `system` as a first message with that role."""

    role: Literal["system", "user", "assistant"]
    content: str | list[dict[str, Any]]


class ContextSummary(Struct):
    """The active summary."""

    summary_id: str
    position: Position
    text: str
    tokens: Count
    trust: str
    to: Position
    previous: str | None


class WindowSummary(ContextSummary, tag_field="type", tag="summary"):
    """The active summary among a window's own events."""


class WindowHeld(Struct, tag_field="type", tag="held", rename={"from_": "from"}):
    """A run of events of which the window keeps only where they are in the log."""

    from_: Position
    to: Position
    count: Count
    tokens: Count
    position: Position


class OpenSuspension(Struct):
    """An open suspension."""

    suspension_id: str
    kind: Literal["approval", "input", "external"]
    tool_call_id: str | None
    prompt: str | None
    expires_at: str | None
    position: Position


class Step(Struct):
    """What one reducer did to the messages."""

    reducer: str
    messages_before: Count
    messages_after: Count
    tokens_before: Count
    tokens_after: Count


class Parked(Struct):
    """Where a conversation is parked: at the position of the event that could not be applied, with
    the cause, and how many events wait behind it.
    """

    position: Position
    cause: str
    waiting: Count


class Context(Struct):
    """The messages to send to a model. Send `messages` (and `system`, for Anthropic) unchanged."""

    messages: list[RenderedMessage]
    tokens: Count
    budget: Count
    ceiling: Count
    utilization: Annotated[float, Meta(ge=0)]
    position: Position | None
    count: Count
    digest: Digest
    render_digest: Digest
    summary: ContextSummary | None
    suspensions: list[OpenSuspension]
    state: State
    awaits: Literal["user", "model", "tool", "approval"]
    guard: Any
    trace: list[Step]
    positions: list[Position | None] | UnsetType = UNSET
    system: str | UnsetType = UNSET
    parked: Parked | UnsetType = UNSET
    stale: Annotated[float, Meta(ge=0)] | UnsetType = UNSET
    halted_since: str | UnsetType = UNSET
    background_context: str | UnsetType | None = UNSET
    recalled: list[str] | UnsetType = UNSET
    away: dict[str, str] | UnsetType = UNSET


class WorkingMemory(Struct):
    """The summary's text, the messages that are there word for word, and the tokens of both."""

    compressed_history: str
    raw_recent_turns: list[OpenAIMessage]
    tokens: Count
    threshold: Literal["none", "background", "before_answer"]


class History(Struct):
    """A page of events, newest first. `next_before` is null on the last page."""

    events: list[LoggedEvent]
    next_before: str | None


class LastMessage(Struct):
    """The last message with text: the begin of its text, in one line."""

    role: Literal["user", "assistant", "system", "developer"]
    text: str
    position: Position


class ListedConversation(Struct):
    """A conversation of a list. `count` is of its events, `tokens` of what its window holds.
    In the state `unreadable` its window cannot be read now: it has no `position`, and counts of 0.
    """

    conversation: str
    active_at: str
    state: Literal[State, "unreadable"]
    position: Position | None
    count: Count
    tokens: Count
    user: str | None
    channel: str | None
    title: str | None
    metadata: dict[str, Any] | None
    metadata_cut: bool
    last_message: LastMessage | None


class Conversations(Struct):
    """A page of conversations. The one that was active last comes first."""

    conversations: list[ListedConversation]
    next_before: str | None


class Summaries(Struct):
    """A page of summaries, newest first."""

    summaries: list[LoggedSummary]
    next_before: str | None


class ListedSuspension(OpenSuspension, kw_only=True):
    """An open suspension, with its conversation."""

    conversation: str


class Suspensions(Struct):
    """A page of open suspensions. `unreadable` names conversations of this page whose windows
    cannot be read now: what they wait for is not known.
    """

    suspensions: list[ListedSuspension]
    unreadable: list[str]
    next_before: str | None


class Render(Struct):
    """A recorded model call, rendered again. `why` has the reasons if the digest is another one."""

    id: str
    conversation: str
    time: str | None
    record: ModelCalled
    messages: list[dict[str, Any]] | None
    render_digest: Digest | None
    agrees: bool
    why: list[str]
    system: str | UnsetType = UNSET
