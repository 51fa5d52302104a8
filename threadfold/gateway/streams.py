"""The routes of streams under ``/v1``: a conversation's events as they come, and the tenant's
summaries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import Response

from projections.errors import InvalidRequest
from projections.names import check_name
from threadfold.gateway.access import PRINCIPAL, Caller, Connection, caller_with
from threadfold.gateway.bodies import read_json
from threadfold.gateway.conditions import FENCE, conditions_of
from threadfold.gateway.event_stream import EventStream
from threadfold.gateway.problems import NotConnected
from threadfold.gateway.tokens import Principal
from threadfold.streaming import Live

router = APIRouter(prefix="/v1")
Subscriber = Annotated[Caller, Depends(caller_with("subscribe"))]
Appender = Annotated[Caller, Depends(caller_with("append"))]
MAX_BODY = 8 << 20
"""Bytes of a piece's body: 1 MiB of text where JSON escapes every character."""
LastEventId = Annotated[
    str | None,
    Header(max_length=16_384, description="the id of the last event received: go on after it"),
]


@router.get("/conversations/{conversation}/stream", response_class=EventStream)
async def get_stream(
    request: Request,
    conversation: str,
    caller: Subscriber,
    after: Annotated[
        str | None, Query(description="a position to go on after; without it, from now on")
    ] = None,
    last_event_id: LastEventId = None,
) -> Response:
    """The conversation as it goes on, as server-sent events: `event`, `summary`, `partial` and
    `state` (docs/streams.md).
    """
    allowed = still_allowed(request)
    subscription = await live_of(request).open(
        caller.tenant, conversation, last_event_id or after, allowed
    )
    return EventStream(subscription.batches(), subscription.close)


@router.get("/summaries/stream", response_class=EventStream)
async def get_summaries_stream(
    request: Request,
    caller: Subscriber,
    cursor: Annotated[
        str | None,
        Query(max_length=16_384, description="the id of an event of this stream: go on after it"),
    ] = None,
    begin: Annotated[
        Literal["beginning"] | None,
        Query(alias="from", description="`beginning`: all there ever were, first"),
    ] = None,
    last_event_id: LastEventId = None,
) -> Response:
    """All summaries of the tenant's conversations as they are accepted (`summary`), voided by
    rollbacks (`voided`) or `erased`.

    Delivery is at least once: dedupe on `summary_id`. A conversation's come in order.
    """
    allowed = still_allowed(request)
    subscription, close = await live_of(request).open_summaries(
        caller.tenant, last_event_id or cursor, beginning=begin is not None, still_allowed=allowed
    )
    return EventStream(subscription.batches(), close)


@router.post(
    "/conversations/{conversation}/partial",
    status_code=202,
    openapi_extra={
        "parameters": FENCE,
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["turn_id", "delta"],
                        "additionalProperties": False,
                        "properties": {
                            "turn_id": {"type": "string", "minLength": 1, "maxLength": 128},
                            "delta": {"type": "string"},
                            "offset": {"type": "integer", "minimum": 0},
                        },
                    },
                    "example": {"turn_id": "t-1", "delta": "Hel", "offset": 0},
                }
            },
        },
    },
)
async def post_partial(request: Request, conversation: str, caller: Appender) -> Response:
    """Add to the assistant's text in progress: `turn_id`, `delta`, and `offset`, the characters
    said before it, which makes repeats safe.

    Answers the characters held now. The text is never in the log: append the message once it is
    complete. Without a word for some time (the setting `partial_timeout`) it is kept as an
    interrupted message. With `Fencing-Token`: 409 once that turn is over.
    """
    turn, delta, offset = _piece(await read_json(request, MAX_BODY))
    conditions = conditions_of(request)
    if conditions.expect is not None:
        raise InvalidRequest(
            "headers If-Match and If-None-Match: text in progress has no position; they belong to"
            " its message"
        )
    held = await live_of(request).partial(
        caller.tenant, conversation, turn, delta, offset, conditions.fence
    )
    return Response(
        msgspec.json.encode({"turn_id": turn, "offset": held}), 202, media_type="application/json"
    )


def _piece(body: object) -> tuple[str, str, int | None]:
    if not isinstance(body, dict):
        raise InvalidRequest("the body is an object of turn_id, delta and offset")
    for field in body:
        if field not in ("turn_id", "delta", "offset"):
            raise InvalidRequest(
                f"field {str(field)[:60]}: unknown (there are turn_id, delta and offset)"
            )
    turn, delta, offset = body.get("turn_id"), body.get("delta"), body.get("offset")
    if not isinstance(delta, str):
        raise InvalidRequest(
            "field delta: " + ("missing" if delta is None else "expected a string")
        )
    if offset is not None and (
        not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= 1 << 40
    ):
        raise InvalidRequest("field offset: expected a number of characters, 0 or more")
    return check_name("turn_id", turn), delta, offset


def live_of(request: Request) -> Live:
    """The gateway's streams; raises :class:`NotConnected` before they are there."""
    live: Live | None = getattr(request.app.state, "live", None)
    if live is None:
        raise NotConnected("the gateway is not connected yet: try again shortly")
    return live


def still_allowed(request: Request) -> Callable[[], bool]:
    """A function that tells whether the request's credential still lets its caller in."""
    connection: Connection = request.app.state.connection
    principal: Principal | None = request.scope.get(PRINCIPAL)
    if principal is None:
        return lambda: True  # a caller in this process
    return connection.credentials.holds(
        request.scope["headers"], lambda: connection.get().control.state, principal
    )
