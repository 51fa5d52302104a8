"""The routes that read: the context, the log, the ledger of model calls, and a tenant's lists."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta
from starlette.responses import Response

from threadfold.gateway.access import Caller
from threadfold.gateway.answers import (
    Context,
    Conversations,
    History,
    LoggedEvent,
    Render,
    Summaries,
    Suspensions,
)
from threadfold.gateway.declaration import Answer, Routes
from threadfold.gateway.parameters import Path, Query
from threadfold.gateway.routes.common import (
    CONVERSATION,
    DIGEST,
    ID,
    POSITION,
    Before,
    C,
    Conversation,
    answer,
)
from threadfold.service import lists
from threadfold.service.documents import FORMATS
from threadfold.service.pages import MAX_PAGE
from threadfold.service.spill import MAX_PAGE_CHARS, PAGE_CHARS

routes = Routes("Reading")
_CURSOR = "AAAAAAAAABH__________zG3mJ4Qh1dS"
_RENDER = "AAAAAwAAAAAAAAARkDcrvJ9jZJbB"
_GONE = (404, 410)
_Limit = Annotated[int, Query(example=50), Meta(ge=1, le=lists.MAX_LISTED)]
_MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "You help customers of a shop."},
    {"role": "user", "content": "Where is my order 1182?"},
]
_CONTEXT: dict[str, Any] = {
    "messages": _MESSAGES,
    "positions": ["3-16", POSITION],
    "tokens": 23,
    "budget": 30000,
    "ceiling": 92160,
    "utilization": 0.00025,
    "position": POSITION,
    "count": 2,
    "digest": DIGEST,
    "render_digest": DIGEST,
    "summary": None,
    "suspensions": [],
    "state": "active",
    "guard": None,
    "trace": [],
}
_EVENT: dict[str, Any] = {
    "id": ID,
    "type": "message",
    "time": "2026-01-31T12:00:00.000Z",
    "position": POSITION,
    "role": "user",
    "content": "Where is my order 1182?",
}
_CALLED: dict[str, Any] = {
    "model": "gpt-5-mini",
    "render_digest": DIGEST,
    "position": POSITION,
    "format": "openai",
    "tokens": 23,
    "generation": 1,
}
_SUSPENSION: dict[str, Any] = {
    "conversation": CONVERSATION,
    "suspension_id": "refund-1",
    "kind": "approval",
    "tool_call_id": "call_2",
    "prompt": "Refund 40 EUR?",
    "expires_at": None,
    "position": "3-19",
}
_SUMMARY: dict[str, Any] = {
    "id": "c0ffee00c0ffee00c0ffee00c0ffee00",
    "type": "summary",
    "time": "2026-01-31T12:05:00.000Z",
    "position": "3-60",
    "summary_id": "c0ffee00c0ffee00c0ffee00c0ffee00",
    "text": "The customer asked where order 1182 is; it was shipped by post.",
    "tokens": 16,
    "span": {
        "from": POSITION,
        "to": "3-41",
        "count": 3,
        "positions": [17, 12, 12],
        "digest": DIGEST,
    },
    "previous": None,
    "reason": "budget",
    "summarizer": "extractive",
    "trust": "tool",
    "tokens_before": 30400,
    "tokens_after": 12100,
    "policy": "0f1e2d3c4b5a6978",
}


@routes.add(
    "GET",
    f"{C}/context",
    scope="read",
    summary="Read the context",
    answers={200: Answer(Context, _CONTEXT, "The messages that a model is sent.")},
    problems=_GONE,
)
async def get_context(
    caller: Caller,
    conversation: Conversation,
    format: Annotated[str, Query(", ".join(f"`{name}`" for name in FORMATS), "openai")] = "openai",  # noqa: A002 (the contract's name)
    max_tokens: Annotated[int | None, Query(example=8000), Meta(ge=1, le=1 << 31)] = None,
    after: Annotated[
        str | None,
        Query("a position that the window must include; waits for it up to 10 s", POSITION),
    ] = None,
) -> Response:
    """The messages that a model is sent: the system lane, the summary and the tail, within the
    policy's ceiling and `max_tokens`.

    `anthropic` has `system` apart. `events` has the window's own events, with their positions, as
    `messages`.
    """
    document = await caller.backend.context(
        caller.tenant, conversation, fmt=format, max_tokens=max_tokens, after=after
    )
    return Response(document, media_type="application/json")


@routes.add(
    "GET",
    f"{C}/history",
    scope="read",
    summary="Read a page of history",
    answers={
        200: Answer(History, {"events": [_EVENT], "next_before": _CURSOR}, "A page, newest first.")
    },
    problems=_GONE,
)
async def get_history(
    caller: Caller,
    conversation: Conversation,
    before: Annotated[str | None, Query("`next_before` of the page before", _CURSOR)] = None,
    limit: Annotated[int, Query(example=50), Meta(ge=1, le=MAX_PAGE)] = 50,
) -> Response:
    """A page of events from the log, newest first."""
    return answer(
        await caller.backend.history(caller.tenant, conversation, before=before, limit=limit)
    )


@routes.add(
    "GET",
    f"{C}/events/{{position}}",
    scope="read",
    summary="Read one event whole",
    answers={
        200: Answer(LoggedEvent, _EVENT, "The event; with `offset` or `limit`, a page of its text.")
    },
    problems=(*_GONE, 500),
)
async def get_event(
    caller: Caller,
    conversation: Conversation,
    position: Annotated[str, Path(example=POSITION)],
    offset: Annotated[
        int | None, Query("the first character of a page of its text", 0), Meta(ge=0, le=1 << 40)
    ] = None,
    limit: Annotated[
        int | None,
        Query(f"characters of the page; {PAGE_CHARS} with `offset` alone", 4000),
        Meta(ge=1, le=MAX_PAGE_CHARS),
    ] = None,
) -> Response:
    """One event, whole: the text of a spilled result is joined again. With `offset` or `limit`,
    `content` is that page of the text.
    """
    return answer(
        await caller.backend.event_at(
            caller.tenant, conversation, position, offset=offset, limit=limit
        )
    )


@routes.add(
    "GET",
    "/v1/renders/{render_id}",
    scope="read",
    tag="Model calls",
    summary="Render a recorded call again",
    answers={
        200: Answer(
            Render,
            {
                "id": _RENDER,
                "conversation": CONVERSATION,
                "time": "2026-01-31T12:00:01.000Z",
                "record": _CALLED,
                "messages": _MESSAGES,
                "render_digest": DIGEST,
                "agrees": True,
                "why": [],
            },
            "The record, rendered again from the log.",
        )
    },
    problems=_GONE,
)
async def get_render(caller: Caller, render_id: Annotated[str, Path(example=_RENDER)]) -> Response:
    """A recorded model call, rendered again from the log as it was then. The answer says whether
    the digest agrees, and if not, why.
    """
    return answer(await caller.backend.ledger.show(render_id, caller.tenant))


@routes.add(
    "GET",
    "/v1/conversations",
    scope="read",
    summary="List conversations",
    answers={
        200: Answer(
            Conversations,
            {
                "conversations": [
                    {
                        "conversation": CONVERSATION,
                        "active_at": "2026-01-31T12:00:00.000Z",
                        "state": "active",
                        "position": POSITION,
                        "count": 2,
                        "tokens": 23,
                    }
                ],
                "next_before": None,
            },
            "The tenant's active and recent ones.",
        )
    },
)
async def get_conversations(caller: Caller, before: Before = None, limit: _Limit = 50) -> Response:
    """The tenant's conversations with their state, the latest active first."""
    return answer(
        await lists.conversations(caller.backend, caller.tenant, before=before, limit=limit)
    )


@routes.add(
    "GET",
    f"{C}/summaries",
    scope="read",
    summary="List a conversation's summaries",
    answers={
        200: Answer(Summaries, {"summaries": [_SUMMARY], "next_before": None}, "Newest first.")
    },
    problems=_GONE,
)
async def get_summaries(
    caller: Caller, conversation: Conversation, before: Before = None, limit: _Limit = 20
) -> Response:
    """The active summary and those that it continues, newest first."""
    return answer(
        await lists.summaries(
            caller.backend, caller.tenant, conversation, before=before, limit=limit
        )
    )


@routes.add(
    "GET",
    "/v1/suspensions",
    scope="read",
    summary="List open suspensions",
    answers={
        200: Answer(
            Suspensions,
            {"suspensions": [_SUSPENSION], "next_before": None},
            "What waits for somebody, of all the tenant's conversations.",
        )
    },
)
async def get_suspensions(caller: Caller, before: Before = None, limit: _Limit = 50) -> Response:
    """The tenant's open suspensions; the conversation that began to wait last comes first.

    `limit` is a number of conversations; each comes with all that is open in it.
    """
    return answer(
        await lists.suspensions(caller.backend, caller.tenant, before=before, limit=limit)
    )
