"""The routes under ``/v1``: appending events and messages, reading context, history and single
events, and the ledger of model calls.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import Response

from projections.errors import InvalidEvent, InvalidRequest, ThreadfoldError
from projections.formats.anthropic_input import from_anthropic
from projections.window.bodies import to_flat
from threadfold.gateway.access import Caller, caller_with
from threadfold.gateway.bodies import MAX_ITEMS, as_list, read_json
from threadfold.gateway.conditions import HEADERS, conditions_of, conflict
from threadfold.service.appended import Appended, Applied
from threadfold.service.conversations import MAX_PAGE
from threadfold.service.documents import FORMATS, check_format
from threadfold.service.drafts import UNCONDITIONED, Conditions
from threadfold.service.spill import MAX_PAGE_CHARS, PAGE_CHARS

router = APIRouter(prefix="/v1")
Appender = Annotated[Caller, Depends(caller_with("append"))]
Reader = Annotated[Caller, Depends(caller_with("read"))]
Wait = Annotated[
    Literal["applied"] | None,
    Query(description="`applied`: answer 200 once the window holds the events, with a status each"),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        description="derives the ids of events that have none: a repeat is a duplicate",
    ),
]
MessageFormat = Annotated[str, Query(description="`openai` or `anthropic`")]
ContextFormat = Annotated[str, Query(description=f"{', '.join(f'`{name}`' for name in FORMATS)}")]


# The OpenAPI document changes them in place, so each module that names them has its own.
_CONDITIONS: dict[str, Any] = {
    "parameters": [{**header, "schema": dict(header["schema"])} for header in HEADERS]
}


def _takes(noun: str, *, array: bool = True) -> dict[str, Any]:
    """The request body's place in the OpenAPI document; the bodies themselves are read and checked
    by hand.
    """
    one: dict[str, Any] = {"type": "object", "description": noun}
    schema = (
        {"oneOf": [one, {"type": "array", "items": one, "minItems": 1, "maxItems": 500}]}
        if array
        else one
    )
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


@router.post(
    "/conversations/{conversation}/events",
    status_code=202,
    openapi_extra=_takes("an event: type and its fields") | _CONDITIONS,
)
async def post_events(
    request: Request,
    conversation: str,
    caller: Appender,
    wait: Wait = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Append one event, or a list of at most 500, to a conversation; checked whole before anything
    is appended, landing in order.
    """
    flats = as_list(await read_json(request), "event")
    for i, flat in enumerate(flats, 1):
        named = flat.get("conversation", conversation) if isinstance(flat, dict) else conversation
        if named != conversation:
            raise InvalidEvent(
                f"event {i}: field conversation: this route appends to {conversation} only, POST"
                " /v1/events to several"
            )
    return await append(
        caller, conversation, flats, "event", wait, idempotency_key, conditions_of(request)
    )


@router.post(
    "/conversations/{conversation}/messages",
    status_code=202,
    openapi_extra=_takes("a message in the given format") | _CONDITIONS,
)
async def post_messages(
    request: Request,
    conversation: str,
    caller: Appender,
    format: MessageFormat = "openai",  # noqa: A002 (the contract's name)
    wait: Wait = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Append one message, or a list of at most 500, in OpenAI's chat format or in Anthropic's.

    Anthropic's messages may become several events each (at most 500 in all), which are answered one
    by one, in order; their `system` is given as a first message with the role system.
    """
    check_format(format, ("openai", "anthropic"))
    messages = as_list(await read_json(request), "message")
    if format == "anthropic":
        return await _append_anthropic(
            caller, conversation, messages, wait, idempotency_key, conditions_of(request)
        )
    flats = [to_flat(message, f"message {i}") for i, message in enumerate(messages, 1)]
    return await append(
        caller, conversation, flats, "message", wait, idempotency_key, conditions_of(request)
    )


@router.post("/events", status_code=202, openapi_extra=_takes("an event with its `conversation`"))
async def post_events_of_several(
    request: Request, caller: Appender, wait: Wait = None, idempotency_key: IdempotencyKey = None
) -> Response:
    """Append events of several conversations, each with `conversation`; in order within each.

    Answers `positions` with the last position of each conversation, to be used as `after`.
    """
    if conditions_of(request) != UNCONDITIONED:
        raise InvalidRequest(
            "headers If-Match, If-None-Match and Fencing-Token are of one conversation: append to"
            " it by its own route"
        )
    items: list[tuple[str, object]] = []
    for i, flat in enumerate(as_list(await read_json(request), "event"), 1):
        if not isinstance(flat, dict):
            raise InvalidEvent(f"event {i}: expected an object with its conversation")
        named = flat.get("conversation")
        if not isinstance(named, str):
            raise InvalidEvent(
                f"event {i}: field conversation: "
                + ("missing" if named is None else "expected a string")
            )
        items.append((named, flat))
    appended = await caller.backend.append(caller.tenant, items, id_seed=idempotency_key)
    caller.charge(appended)
    by_conversation: dict[str, list[Appended]] = {}
    for (conversation, _), item in zip(items, appended, strict=True):
        by_conversation.setdefault(conversation, []).append(item)
    results: Sequence[Appended | Applied] = appended
    if wait:
        waited = await asyncio.gather(
            *(
                caller.backend.wait_applied(caller.tenant, name, of_one)
                for name, of_one in by_conversation.items()
            )
        )
        told = {name: iter(applied) for name, applied in zip(by_conversation, waited, strict=True)}
        results = [next(told[conversation]) for conversation, _ in items]
    listed = [
        {"conversation": name, **_shown(item)}
        for (name, _), item in zip(items, results, strict=True)
    ]
    last = {name: str(of_one[-1].position) for name, of_one in by_conversation.items()}
    return _json({"events": listed, "positions": last}, 200 if wait else 202)


@router.post(
    "/conversations/{conversation}/rollback",
    status_code=202,
    openapi_extra=_takes("`to`: the last that stays", array=False) | _CONDITIONS,
)
async def post_rollback(
    request: Request,
    conversation: str,
    caller: Appender,
    wait: Wait = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Go back to a position, or to one of the last 1,024 events by its id; what came after stays in
    the log.
    """
    flat = _control("rollback", await read_json(request))
    return await append(
        caller, conversation, [flat], "rollback", wait, idempotency_key, conditions_of(request)
    )


@router.post("/conversations/{conversation}/close", status_code=202, openapi_extra=_CONDITIONS)
async def post_close(
    request: Request,
    conversation: str,
    caller: Appender,
    wait: Wait = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Close the conversation's session; the next message opens it again. The request has no
    body.
    """
    flat = {"type": "session.closed", "reason": "explicit"}
    return await append(
        caller, conversation, [flat], "close", wait, idempotency_key, conditions_of(request)
    )


@router.post("/conversations/{conversation}/compact", status_code=202, openapi_extra=_CONDITIONS)
async def post_compact(
    request: Request,
    conversation: str,
    caller: Appender,
    wait: Wait = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Ask for a summary of all that may leave the window's tail now, whatever the policy's marks
    say. The request has no body.

    The summary comes later (the streams tell). The last group of messages stays, and so does what
    waits for somebody.
    """
    flat = {"type": "compaction.requested"}
    return await append(
        caller, conversation, [flat], "compaction", wait, idempotency_key, conditions_of(request)
    )


@router.get("/conversations/{conversation}/context")
async def get_context(
    conversation: str,
    caller: Reader,
    format: ContextFormat = "openai",  # noqa: A002 (the contract's name)
    max_tokens: Annotated[int | None, Query(ge=1, le=1 << 31)] = None,
    after: Annotated[
        str | None, Query(description="a position the window shall include; waited for up to 10 s")
    ] = None,
) -> Response:
    """What a model is sent: the system lane, the summary, the tail, within the policy's ceiling and
    `max_tokens`.

    `anthropic` has `system` apart; `events` has the window's own events, with their positions, as
    `messages`.
    """
    document = await caller.backend.context(
        caller.tenant, conversation, fmt=format, max_tokens=max_tokens, after=after
    )
    return Response(document, media_type="application/json")


@router.get("/conversations/{conversation}/history")
async def get_history(
    conversation: str,
    caller: Reader,
    before: Annotated[str | None, Query(description="`next_before` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
) -> Response:
    """A page of events from the log, newest first."""
    return _json(
        await caller.backend.history(caller.tenant, conversation, before=before, limit=limit)
    )


@router.get("/conversations/{conversation}/events/{position}")
async def get_event(
    conversation: str,
    position: str,
    caller: Reader,
    offset: Annotated[
        int | None, Query(ge=0, le=1 << 40, description="the first character of a page of its text")
    ] = None,
    limit: Annotated[
        int | None,
        Query(
            ge=1,
            le=MAX_PAGE_CHARS,
            description=f"characters of the page, {PAGE_CHARS} if only offset",
        ),
    ] = None,
) -> Response:
    """One event, whole: a spilled result's text is put together again. With `offset` or `limit`,
    that page of its text as `content`.
    """
    return _json(
        await caller.backend.event_at(
            caller.tenant, conversation, position, offset=offset, limit=limit
        )
    )


@router.post(
    "/conversations/{conversation}/renders",
    status_code=202,
    openapi_extra=_takes("a model call", array=False),
)
async def post_render(request: Request, conversation: str, caller: Appender) -> Response:
    """Record a call of a model: `model`, `render_digest`, `position`, `format`, `tokens`, as the
    context gave them; and, as far as known, `summary_id`, `policy`, `max_tokens` (that the context
    was asked with), `reported_usage`, `latency_ms`.

    Answers the record's id, or null with `"recorded": false` where the tenant's policy has
    `renders` off.
    """
    render_id = await caller.backend.ledger.record(
        caller.tenant, conversation, await read_json(request)
    )
    return _json({"id": render_id, "recorded": render_id is not None}, 202)


@router.get("/renders/{render_id}")
async def get_render(render_id: str, caller: Reader) -> Response:
    """A recorded model call, rendered again from the log as it stood then: whether the digest
    agrees, and if not, why.
    """
    return _json(await caller.backend.ledger.show(render_id, caller.tenant))


async def _append_anthropic(
    caller: Caller,
    conversation: str,
    messages: list[object],
    wait: str | None,
    id_seed: str | None,
    conditions: Conditions,
) -> Response:
    lists = [from_anthropic(message, f"message {i}") for i, message in enumerate(messages, 1)]
    flats = [flat for of_one in lists for flat in of_one]
    if len(flats) > MAX_ITEMS:
        raise InvalidRequest(
            f"the messages are {len(flats)} events: at most {MAX_ITEMS} go in one request"
        )
    owners = [i for i, of_one in enumerate(lists, 1) for _ in of_one]
    try:
        return await append(caller, conversation, flats, "event", wait, id_seed, conditions)
    except ThreadfoldError as error:
        # The caller knows its messages, not the events that were made of them.
        named = re.sub(
            r"^event ([0-9]+):", lambda match: f"message {owners[int(match[1]) - 1]}:", str(error)
        )
        raise type(error)(named) from None


async def append(
    caller: Caller,
    conversation: str,
    flats: Sequence[object],
    noun: str,
    wait: str | None,
    id_seed: str | None,
    conditions: Conditions = UNCONDITIONED,
) -> Response:
    """Append flat events to a conversation and answer for each; with conditions, once the fold has
    judged them (then like ``wait``).
    """
    backend, tenant = caller.backend, caller.tenant
    items = [(conversation, flat) for flat in flats]
    appended = await backend.append(
        tenant, items, noun=noun, id_seed=id_seed, conditions=conditions
    )
    caller.charge(appended)
    results: Sequence[Appended | Applied] = appended
    if wait or conditions != UNCONDITIONED:
        results = applied = await backend.wait_applied(tenant, conversation, appended)
        if conditions != UNCONDITIONED and applied[0].status == "rejected":
            raise await conflict(backend, tenant, conversation, conditions)
        wait = "applied"
    document = {
        "events": [_shown(item) for item in results],
        "position": str(appended[-1].position),
    }
    return _json(document, 200 if wait else 202)


def _shown(item: Appended | Applied) -> dict[str, str]:
    partition, offset = item.position
    shown = {"id": item.id, "position": f"{partition}-{offset}"}
    if isinstance(item, Applied):
        shown["status"] = item.status
    return shown


def _control(kind: str, body: object) -> dict[str, object]:
    if not isinstance(body, dict):
        raise InvalidRequest(f"the body of a {kind} is an object of its fields")
    return {**body, "type": kind}


def _json(document: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(document), status, media_type="application/json")
