"""The routes of streams: a conversation's events as they come, the tenant's summaries, and text in
progress.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from starlette.responses import Response

from projections.names import check_name
from threadfold.gateway.access import Caller
from threadfold.gateway.answers import Count
from threadfold.gateway.conditions import PartialFence
from threadfold.gateway.declaration import EVENT_STREAM, Answer, Cost, Routes
from threadfold.gateway.event_stream import EventStream
from threadfold.gateway.parameters import Header, Query
from threadfold.gateway.request import Body, Request
from threadfold.gateway.routes.common import POSITION, C, Conversation, answer
from threadfold.schemas.structs import NAME

routes = Routes("Streams")
_EVENTS = (
    'retry: 1000\n\nevent: state\ndata: {"state":"active","position":"3-17","tokens":23,'
    '"summary":null,"suspensions":[]}\n\nevent: event\nid: 3-18\ndata: {"id":"e-18",'
    '"type":"message","time":null,"position":"3-18","role":"user","content":"hello"}\n\n'
    'event: partial\ndata: {"turn_id":"t-1","offset":0,"delta":"Your order "}\n\n: heartbeat\n\n'
)
_SUMMARIES = (
    'retry: 1000\n\nevent: summary\nid: 0-5.1-0\ndata: {"id":"s-1","type":"summary",'
    '"summary_id":"s-1","text":"The order is shipped."}\n\n'
)
_LastEventId = Annotated[
    str | None,
    Header("the id of the last event received: the stream goes on after it", name="Last-Event-ID"),
    Meta(max_length=16_384),
]


class Piece(Struct, forbid_unknown_fields=True):
    """A piece of the assistant's text in progress; `offset` is the characters before it."""

    turn_id: Annotated[str, Meta(extra_json_schema=NAME)]
    delta: str
    offset: Annotated[int, Meta(ge=0, le=1 << 40)] | None = None


class Held(Struct):
    """The characters of the turn's text so far."""

    turn_id: str
    offset: Count


def _stream(example: str, about: str) -> dict[int, Answer]:
    return {200: Answer(str, example, about, EVENT_STREAM)}


@routes.add(
    "GET",
    f"{C}/stream",
    scope="subscribe",
    cost=Cost.STREAM,
    summary="Follow a conversation",
    answers=_stream(
        _EVENTS,
        "Server-sent events `event`, `summary`, `partial` and `state`, until the caller leaves.",
    ),
    problems=(404, 410),
)
async def get_stream(
    request: Request,
    caller: Caller,
    conversation: Conversation,
    after: Annotated[
        str | None, Query("a position to go on after; without it, from now on", POSITION)
    ] = None,
    last_event_id: _LastEventId = None,
) -> Response:
    """The conversation as it goes on, as server-sent events: `event`, `summary`, `partial` and
    `state` (docs/streams.md).
    """
    subscription = await request.state.streams().open(
        caller.tenant, conversation, last_event_id or after, request.still_allowed()
    )
    return EventStream(subscription.batches(), subscription.close)


@routes.add(
    "GET",
    "/v1/summaries/stream",
    scope="subscribe",
    cost=Cost.STREAM,
    summary="Follow the tenant's summaries",
    answers=_stream(
        _SUMMARIES, "Server-sent events `summary`, `voided` and `erased`, until the caller leaves."
    ),
)
async def get_summaries_stream(
    request: Request,
    caller: Caller,
    cursor: Annotated[
        str | None,
        Query("the id of an event of this stream: the stream goes on after it"),
        Meta(max_length=16_384),
    ] = None,
    begin: Annotated[
        Literal["beginning"] | None,
        Query("`beginning`: all summaries so far come first", "beginning", "from"),
    ] = None,
    last_event_id: _LastEventId = None,
) -> Response:
    """All summaries of the tenant's conversations as they are accepted (`summary`), voided by
    rollbacks (`voided`) or `erased`.

    Delivery is at least once: dedupe on `summary_id`. A conversation's summaries come in order.
    """
    subscription, close = await request.state.streams().open_summaries(
        caller.tenant,
        last_event_id or cursor,
        beginning=begin is not None,
        still_allowed=request.still_allowed(),
    )
    return EventStream(subscription.batches(), close)


@routes.add(
    "POST",
    f"{C}/partial",
    scope="append",
    cost=Cost.PARTIAL,
    summary="Add to a message in progress",
    # 1 MiB of text where JSON escapes every character.
    body=Body(
        Piece, {"a word": {"turn_id": "t-1", "delta": "Your order ", "offset": 0}}, limit=8 << 20
    ),
    answers={
        202: Answer(Held, {"turn_id": "t-1", "offset": 11}, "The characters of the text so far.")
    },
    problems=(404, 409, 410),
)
async def post_partial(
    request: Request,
    caller: Caller,
    body: Piece,
    conversation: Conversation,
    fence: PartialFence = None,
) -> Response:
    """Add to the assistant's text in progress: `turn_id`, `delta`, and `offset`, the characters
    before it, which makes repeats safe.

    The answer has the characters so far. The text is never in the log: append the message once it
    is complete. Text that does not grow for some time (the setting `partial_timeout`) is kept as an
    interrupted message. With `Fencing-Token`: 409 once that turn is over.
    """
    turn = check_name("turn_id", body.turn_id)
    held = await request.state.streams().partial(
        caller.tenant, conversation, turn, body.delta, body.offset, fence
    )
    document: dict[str, Any] = {"turn_id": turn, "offset": held}
    return answer(document, 202)
