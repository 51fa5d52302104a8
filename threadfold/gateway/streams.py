"""The routes of streams under ``/v1``: a conversation's events as they come, and the tenant's summaries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import Response

from threadfold.gateway.access import Caller, caller_with
from threadfold.gateway.event_stream import EventStream
from threadfold.gateway.problems import NotConnected
from threadfold.live import Live

router = APIRouter(prefix="/v1")
Subscriber = Annotated[Caller, Depends(caller_with("subscribe"))]
LastEventId = Annotated[str | None, Header(max_length=16_384, description="the id of the last event received: go on after it")]


@router.get("/conversations/{conversation}/stream", response_class=EventStream)
async def get_stream(
    request: Request,
    conversation: str,
    caller: Subscriber,
    after: Annotated[str | None, Query(description="a position to go on after; without it, from now on")] = None,
    last_event_id: LastEventId = None,
) -> Response:
    """The conversation as it goes on, as server-sent events: `event`, `summary`, `partial` and `state` (docs/streams.md)."""
    allowed = still_allowed(request, caller, "subscribe")
    subscription = await live_of(request).open(caller.tenant, conversation, last_event_id or after, allowed)
    return EventStream(subscription.batches(), subscription.close)


def live_of(request: Request) -> Live:
    """The gateway's streams; raises :class:`NotConnected` before they are there."""
    live: Live | None = getattr(request.app.state, "live", None)
    if live is None:
        raise NotConnected("the gateway is not connected yet: try again shortly")
    return live


def still_allowed(request: Request, caller: Caller, scope: str) -> Callable[[], bool]:
    """A function that tells whether the request's key still lets its caller in; it looks in memory only."""
    key = request.headers.get("authorization", "").partition(" ")[2].strip()

    def allowed() -> bool:
        found = caller.backend.control.state.key_of(key)
        return found is not None and found.tenant == caller.tenant and scope in found.scopes

    return allowed
