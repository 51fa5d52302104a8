"""The answers of the client: typed where the contract fixes the fields."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

ContextFormat = Literal["openai", "anthropic", "events", "rendered"]
MessageFormat = Literal["openai", "anthropic"]
TurnPolicy = Literal["queue", "reject", "interrupt"]
TurnStatus = Literal["active", "queued", "over"]
Verb = Literal["read", "stream", "append"]


class AppendedEvent(msgspec.Struct, frozen=True):
    """An event that is safe in the log. ``status``: what the fold decided (applied, duplicate,
    rejected, parked) if the call waited for the window, else ``unknown`` where the event came with
    an id. ``position`` is the event's own, but of a repeat that of the first with its id.
    """

    id: str
    position: str
    status: str | None = None
    conversation: str | None = None


class Appended(msgspec.Struct, frozen=True):
    """The answer to an append, in the order of its events; ``position`` is the last one's
    (``positions`` by conversation).
    """

    events: list[AppendedEvent]
    position: str | None = None
    positions: dict[str, str] = {}


class Context(msgspec.Struct, kw_only=True):
    """What a model is sent: ``messages`` in the format asked for; only Anthropic's has ``system``
    apart.

    ``positions`` is parallel to ``messages`` (in the formats ``openai`` and ``rendered``): the
    position of each message's event, None for a message of no single event, like the summary.
    ``awaits`` says who acts next: user, model, tool or approval.
    ``background_context`` is what was recalled for it, which ``messages`` have as well, and
    ``recalled`` the ids of that.
    ``position`` is None for an empty window. ``raw`` has the document's bytes, with fields that a
    newer service adds.
    """

    messages: list[dict[str, Any]]
    tokens: int
    budget: int
    ceiling: int
    utilization: float
    count: int
    digest: str
    render_digest: str
    state: str
    awaits: str = ""
    system: str | None = None
    positions: list[str | None] = []
    position: str | None = None
    summary: dict[str, Any] | None = None
    suspensions: list[dict[str, Any]] = []
    guard: Any = None
    trace: list[dict[str, Any]] = []
    background_context: str | None = None
    recalled: list[str] = []
    raw: bytes = b""
    format: ContextFormat = "openai"
    max_tokens: int | None = None


class MintedToken(msgspec.Struct, frozen=True):
    """A token of an end user, which is stored nowhere, and when it ends."""

    token: str
    expires_at: str


class HistoryPage(msgspec.Struct, frozen=True):
    """A page of events, newest first, and the cursor of the one before it (None: these are the
    oldest).
    """

    events: list[dict[str, Any]]
    next_before: str | None = None


class StreamEvent(msgspec.Struct, frozen=True):
    """One event of a subscription: ``event`` is event, summary, partial, state, voided, erased or
    missing; ``id`` resumes after it.
    """

    event: str
    id: str | None
    data: dict[str, Any]


class TurnInfo(msgspec.Struct, frozen=True):
    """How a turn stands: ``fencing_token`` is None while it waits, with ``place`` turns before
    it.
    """

    turn_id: str
    fencing_token: int | None = None
    status: str = "started"
    position: str | None = None
    place: int = 0


class LiveTurn(msgspec.Struct, frozen=True):
    """The active turn, and the seconds of its lease (0: it does not end)."""

    turn_id: str
    fencing_token: int
    seconds: int = 0


class Turns(msgspec.Struct, frozen=True):
    """The turns of a conversation: the active one, and the ids of those that wait for it."""

    live: LiveTurn | None = None
    waiting: list[str] = []

    def status_of(self, turn_id: str) -> TurnStatus:
        """How a turn stands."""
        if self.live is not None and self.live.turn_id == turn_id:
            return "active"
        return "queued" if turn_id in self.waiting else "over"


def context_of(document: bytes, fmt: ContextFormat, max_tokens: int | None) -> Context:
    """The typed form of a context document; raises ``msgspec.DecodeError`` if it is none."""
    context = msgspec.json.decode(document, type=Context)
    context.raw, context.format, context.max_tokens = document, fmt, max_tokens
    return context
