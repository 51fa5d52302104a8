"""The routes of streams: a conversation's events, the tenant's summaries, and text in progress."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from starlette.responses import Response

from projections.names import check_name
from threadfold.gateway.access import Caller
from threadfold.gateway.answers import Count
from threadfold.gateway.conditions import PartialFence
from threadfold.gateway.declaration import EVENT_STREAM, Answer, Cost, Routes
from threadfold.gateway.end_users import own_batches
from threadfold.gateway.event_stream import EventStream
from threadfold.gateway.examples import POSITION
from threadfold.gateway.parameters import Header, Query
from threadfold.gateway.request import Body, Request
from threadfold.gateway.routes.common import C, Conversation
from threadfold.schemas.structs import NAME
from threadfold.schemas.structs import POSITION as POSITION_SCHEMA

routes = Routes("Streams")
_stream = partial(routes.add, "GET", scope="subscribe", cost=Cost.STREAM)
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
_LAST_EVENT = Header(
    "the id of the last event received: the stream begins after it", name="Last-Event-ID"
)
_IS_POSITION = Meta(extra_json_schema=POSITION_SCHEMA)


class Piece(Struct, forbid_unknown_fields=True):
    """A piece of the assistant's text in progress. `offset` counts the characters before it."""

    turn_id: Annotated[str, Meta(extra_json_schema=NAME)]
    delta: str
    offset: Annotated[int, Meta(ge=0, le=1 << 40)] | None = None


class TextInProgress(Struct):
    """`offset` is the number of characters of the turn's text so far."""

    turn_id: str
    offset: Count


@_stream(
    f"{C}/stream",
    "Follow a conversation",
    Answer(
        str,
        "Server-sent events `event`, `summary`, `partial` and `state`, until the caller leaves.",
        _EVENTS,
        EVENT_STREAM,
    ),
    end_users=True,
)
async def get_stream(
    request: Request,
    caller: Caller,
    conversation: Conversation,
    after: Annotated[
        str | None,
        Query("the stream begins after this position; without it, now", POSITION),
        _IS_POSITION,
    ] = None,
    last_event_id: Annotated[str | None, _LAST_EVENT, _IS_POSITION] = None,
) -> Response:
    """The conversation's new events as server-sent events: `event`, `summary`, `partial` (text in
    progress) and `state` (docs/streams.md).

    An end user's token may be in the query (`token`) or in the cookie `threadfold_token`, because a
    browser's `EventSource` sends no header.
    """

    async def opened() -> EventStream:
        subscription = await request.state.streams().open(
            caller.tenant, conversation, last_event_id or after, request.still_allowed()
        )
        batches = subscription.batches()
        if caller.end_user is not None:
            try:
                batches = await own_batches(caller, caller.end_user, conversation, batches)
            except BaseException:
                subscription.close()
                raise
        return EventStream(batches, subscription.close, on_cut=subscription.on_cut)

    return await _opened_while_here(caller, opened())


@_stream(
    "/v1/summaries/stream",
    "Follow the tenant's summaries",
    Answer(
        str,
        "Server-sent events `summary`, `voided`, `erased` and `missing`, until the caller leaves.",
        _SUMMARIES,
        EVENT_STREAM,
    ),
)
async def get_summaries_stream(
    request: Request,
    caller: Caller,
    cursor: Annotated[
        str | None,
        Query("the id of an event of this stream: the stream begins after it"),
        Meta(max_length=16_384),
    ] = None,
    begin: Annotated[
        Literal["beginning"] | None,
        Query("`beginning`: all earlier summaries come first", "beginning", "from"),
    ] = None,
    last_event_id: Annotated[str | None, _LAST_EVENT, Meta(max_length=16_384)] = None,
) -> Response:
    """The summaries of all the tenant's conversations: accepted (`summary`), voided by a rollback
    (`voided`), or erased with their conversation (`erased`). `missing`: the topic has lost records
    that the stream was to give.

    Delivery is at least once: dedupe on `summary_id`. A conversation's summaries come in order. One
    that a rollback puts in force again comes again after its `voided`.
    """

    async def opened() -> EventStream:
        subscription = await request.state.streams().open_summaries(
            caller.tenant,
            last_event_id or cursor,
            beginning=begin is not None,
            still_allowed=request.still_allowed(),
        )
        return EventStream(subscription.batches(), subscription.close, on_cut=subscription.on_cut)

    return await _opened_while_here(caller, opened())


async def _opened_while_here(caller: Caller, opening: Awaitable[EventStream]) -> EventStream:
    """The stream; it is closed if the client leaves while it is opened."""
    made: list[EventStream] = []

    async def open_it() -> None:
        made.append(await opening)

    try:
        await caller.while_here(open_it())
    except BaseException:
        for stream in made:
            stream.close()
        raise
    return made[0]


@routes.add(
    "POST",
    f"{C}/partial",
    "Add to a message in progress",
    TextInProgress,
    status=202,
    scope="append",
    cost=Cost.PARTIAL,
    # 1 MiB of text if JSON escapes every character.
    body=Body(
        Piece, {"a word": {"turn_id": "t-1", "delta": "Your order ", "offset": 0}}, limit=8 << 20
    ),
    problems=(404, 409),
)
async def post_partial(
    request: Request,
    caller: Caller,
    body: Piece,
    conversation: Conversation,
    fence: PartialFence = None,
) -> dict[str, Any]:
    """Add to the assistant's text in progress: `turn_id`, `delta`, and `offset`, the number of
    characters before it, which makes repeats safe.

    The answer has the number of characters so far. The text is never in the log: append the message
    once it is complete. Text that does not grow for some time (the setting `partial_timeout`)
    becomes an interrupted message. With `Fencing-Token`: 409 if that turn is over.
    """
    turn = check_name("turn_id", body.turn_id)
    held = await request.state.streams().partial(
        caller.tenant, conversation, turn, body.delta, body.offset, fence
    )
    return {"turn_id": turn, "offset": held}
