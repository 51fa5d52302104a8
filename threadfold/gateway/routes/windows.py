"""The routes that show a window to people: message by message, as it was, and the model calls that
were recorded of it.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from projections.errors import Forbidden
from threadfold.gateway.access import Caller
from threadfold.gateway.answers import (
    ContextSummary,
    Count,
    Digest,
    ModelCalled,
    OpenSuspension,
    Parked,
    Position,
    State,
    Step,
)
from threadfold.gateway.declaration import Answer, Routes
from threadfold.gateway.examples import POSITION, QUESTION, example_of
from threadfold.gateway.parameters import Query
from threadfold.gateway.routes.common import C, Conversation
from threadfold.schemas.structs import POSITION as POSITION_SCHEMA
from threadfold.service import inspection

routes = Routes("Reading")
_read = partial(routes.add, "GET", scope="read")
MOST_POSITIONS = 20_000
MOST_CALLS = 100
SEARCHED_CALLS = 20_000
"""Records of the renders topic that are searched for a conversation's."""


class Shortening(Struct):
    """One shortening of a message: the reducer, the position of the event at which it was made
    (null: it came too large), and the message's tokens since.
    """

    reducer: str
    at: Position | None
    tokens: Count


class InspectedMessage(Struct):
    """A message of a render, in OpenAI's format, with its place. `position` is null for a message
    of no single event. A `waiting` one has a call without a result. `full_tokens` are those before
    it was `shortened`.
    """

    lane: Literal["system", "summary", "pinned", "omitted", "tail", "closing"]
    tokens: Count
    position: Position | None
    waiting: bool
    message: dict[str, Any]
    full_tokens: Count | UnsetType = UNSET
    shortened: list[Shortening] | UnsetType = UNSET


class LeftOut(Struct):
    """A message that the window keeps and the render does not show."""

    lane: Literal["omitted"]
    tokens: Count
    position: Position
    waiting: bool
    full_tokens: Count
    shortened: list[Shortening]


class InspectedWindow(Struct):
    """A window's render, message by message. The messages' tokens and `tools_tokens` add up to
    `tokens`. `at` is the position that was asked for.
    """

    at: Position | None
    position: Position | None
    count: Count
    digest: Digest
    render_digest: Digest
    tokens: Count
    tools_tokens: Count
    budget: Count
    ceiling: Count
    state: State
    policy: str
    guard: Any
    summary: ContextSummary | None
    suspensions: list[OpenSuspension]
    trace: list[Step]
    messages: list[InspectedMessage]
    left_out: list[LeftOut]
    parked: Parked | UnsetType = UNSET


class Positions(Struct):
    """Positions of a conversation's events, oldest first. `all`: there are no older ones."""

    positions: list[Position]
    all: bool


class RecordedModelCall(Struct):
    """A recorded model call, as it was recorded."""

    id: str
    time: str | None
    record: ModelCalled


class RecordedCalls(Struct):
    """Recorded model calls, newest first."""

    renders: list[RecordedModelCall]


_MESSAGE = {
    "lane": "tail",
    "tokens": 23,
    "position": POSITION,
    "waiting": False,
    "message": QUESTION,
}
_WINDOW = example_of(
    InspectedWindow,
    at=None,
    tools_tokens=0,
    policy="0f1e2d3c4b5a6978",
    suspensions=[],
    messages=[_MESSAGE],
    left_out=[],
)


@_read(
    f"{C}/window",
    "Inspect the window",
    Answer(InspectedWindow, example=_WINDOW),
    end_users=True,
    large=True,
)
async def get_window(
    caller: Caller,
    conversation: Conversation,
    at: Annotated[
        str | None,
        Query("a position: the window as it was then; without it, as it is", POSITION),
        Meta(extra_json_schema=POSITION_SCHEMA),
    ] = None,
) -> dict[str, Any]:
    """The messages that a model is sent, each with its tokens, its place in the window, and how it
    was shortened.

    With `at` the window is folded from the log, up to that position, by today's rules. At most
    20,000 events and 32 MiB of them are folded, else the answer is 422. A tenant has one such fold
    at a time, so tokens of end users have none.
    """
    if at is not None and caller.end_user is not None:
        raise Forbidden("a token of an end user reads the window as it is: leave out at")
    return await inspection.inspected(caller.backend, caller.tenant, conversation, at)


@_read(
    f"{C}/positions",
    "List the positions of events",
    Answer(Positions, example={"positions": [POSITION, "3-41"], "all": True}),
)
async def get_positions(
    caller: Caller,
    conversation: Conversation,
    limit: Annotated[int, Query(example=2000), Meta(ge=1, le=MOST_POSITIONS)] = 2000,
) -> dict[str, Any]:
    """The positions of the conversation's newest events, oldest first. No event is read."""
    return await inspection.positions(caller.backend, caller.tenant, conversation, limit)


@_read(f"{C}/renders", "List recorded model calls", RecordedCalls, tag="Model calls", large=True)
async def get_renders(
    caller: Caller,
    conversation: Conversation,
    limit: Annotated[int, Query(example=20), Meta(ge=1, le=MOST_CALLS)] = 20,
) -> dict[str, Any]:
    """The conversation's newest recorded model calls, newest first. The newest 20,000 records of
    its partition are searched.
    """
    found = await caller.backend.ledger.last(
        caller.tenant, conversation, limit, most=SEARCHED_CALLS
    )
    return {"renders": found}
