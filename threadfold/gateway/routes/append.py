"""The routes that append, and the one that records a model call."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins
from starlette.responses import Response

from projections.errors import InvalidEvent, InvalidRequest, ThreadfoldError
from projections.formats.anthropic_input import from_anthropic
from projections.window.bodies import to_flat
from threadfold.gateway.access import Caller
from threadfold.gateway.answers import Appended, AppendedOfSeveral, RecordedCall
from threadfold.gateway.conditions import Conditional, Unconditional, conflict
from threadfold.gateway.declaration import Answer, Cost, Routes
from threadfold.gateway.parameters import Query
from threadfold.gateway.request import MAX_ITEMS, Body, as_list
from threadfold.gateway.routes.common import (
    CONVERSATION,
    DIGEST,
    ID,
    POSITION,
    USUAL,
    C,
    Conversation,
    IdempotencyKey,
    Wait,
    answer,
)
from threadfold.schemas.structs import ID as ID_SCHEMA
from threadfold.schemas.structs import TIME, TRACEPARENT
from threadfold.service import append_result as service
from threadfold.service.documents import check_format
from threadfold.service.drafts import UNCONDITIONED, Conditions

routes = Routes("Appending")
_append_route = partial(routes.add, "POST", scope="append", cost=Cost.APPEND)
_ONE: dict[str, Any] = {"id": ID, "position": POSITION}
_STATED: dict[str, Any] = {**_ONE, "status": "applied"}
_MESSAGE = {"type": "message", "role": "user", "content": "Where is my order 1182?"}
_CALL = {"id": "call_1", "name": "find_order", "arguments": '{"order":1182}'}
_RESULT = {
    "type": "tool.result",
    "tool_call_id": "call_1",
    "content": '{"state":"shipped","carrier":"post"}',
}
_EVENTS = Body(
    {"$ref": "#/components/schemas/OneOrMoreEvents"},
    {
        "one": _MESSAGE,
        "several": [
            {"type": "message", "role": "assistant", "content": None, "tool_calls": [_CALL]},
            _RESULT,
        ],
        "opened": {"type": "conversation.opened", "user": "u-7", "metadata": {"shop": "nord"}},
    },
)
_OPENAI_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "find_order", "arguments": '{"order":1182}'},
}
_MESSAGES = Body(
    {"$ref": "#/components/schemas/OneOrMoreMessages"},
    {
        "one": {"role": "user", "content": "Where is my order 1182?"},
        "several": [
            {"role": "assistant", "content": None, "tool_calls": [_OPENAI_CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": '{"state":"shipped"}'},
        ],
    },
)
_EVENTS_OF_SEVERAL = Body(
    {"$ref": "#/components/schemas/OneOrMoreEventsOfSeveral"},
    {
        "several": [
            {"conversation": CONVERSATION, **_MESSAGE},
            {"conversation": "support-43", **_MESSAGE},
        ]
    },
)


class Rollback(Struct, forbid_unknown_fields=True):
    """Where to go back to."""

    to: Annotated[
        str,
        Meta(
            description="the last event that stays: a position, or the id of one of the last 1,024"
        ),
    ]
    id: Annotated[str | UnsetType, Meta(extra_json_schema=ID_SCHEMA)] = UNSET
    time: Annotated[str | UnsetType, Meta(extra_json_schema=TIME)] = UNSET
    traceparent: Annotated[str | UnsetType, Meta(extra_json_schema=TRACEPARENT)] = UNSET


def _answers(safe: str = "Safe in the log.") -> dict[int, Answer]:
    """An append's two answers: 202 once it is safe, 200 (with ``wait=applied``) once the window
    holds it.
    """
    return {
        202: Answer(Appended, {"events": [_ONE], "position": POSITION}, safe),
        200: Answer(
            Appended,
            {"events": [_STATED], "position": POSITION},
            "With `wait=applied`: the window holds them.",
        ),
    }


def _of_several(event: dict[str, Any], about: str) -> Answer:
    example = {
        "events": [{"conversation": CONVERSATION, **event}],
        "positions": {CONVERSATION: POSITION},
    }
    return Answer(AppendedOfSeveral, example, about)


@_append_route(
    f"{C}/events",
    summary="Append events",
    body=_EVENTS,
    answers=_answers(),
    problems=USUAL,
)
async def post_events(
    caller: Caller,
    body: object,
    conversation: Conversation,
    wait: Wait = None,
    idempotency_key: IdempotencyKey = None,
    conditions: Conditional = UNCONDITIONED,
) -> Response:
    """Append one event, or a list of at most 500, to a conversation. All are checked before any is
    appended; they land in order.
    """
    flats = as_list(body, "event")
    for i, flat in enumerate(flats, 1):
        named = flat.get("conversation", conversation) if isinstance(flat, dict) else conversation
        if named != conversation:
            raise InvalidEvent(
                f"event {i}: field conversation: this route appends to {conversation} only, POST"
                " /v1/events to several"
            )
    return await _append(caller, conversation, flats, "event", wait, idempotency_key, conditions)


@_append_route(
    f"{C}/messages",
    summary="Append messages",
    body=_MESSAGES,
    answers=_answers(),
    problems=USUAL,
)
async def post_messages(
    caller: Caller,
    body: object,
    conversation: Conversation,
    format: Annotated[str, Query("`openai` or `anthropic`", "openai")] = "openai",  # noqa: A002 (the contract's name)
    wait: Wait = None,
    idempotency_key: IdempotencyKey = None,
    conditions: Conditional = UNCONDITIONED,
) -> Response:
    """Append one message, or a list of at most 500, in OpenAI's chat format or in Anthropic's.

    A message of Anthropic's may become several events (at most 500 in all); the answer lists each,
    in order. Give Anthropic's `system` as a first message with the role system.
    """
    check_format(format, ("openai", "anthropic"))
    messages = as_list(body, "message")
    if format == "anthropic":
        return await _append_anthropic(
            caller, conversation, messages, wait, idempotency_key, conditions
        )
    flats = [to_flat(message, f"message {i}") for i, message in enumerate(messages, 1)]
    return await _append(caller, conversation, flats, "message", wait, idempotency_key, conditions)


@_append_route(
    "/v1/events",
    summary="Append events of several conversations",
    body=_EVENTS_OF_SEVERAL,
    answers={
        202: _of_several(_ONE, "Safe in the log."),
        200: _of_several(_STATED, "With `wait=applied`: the windows hold them."),
    },
    problems=USUAL,
)
async def post_events_of_several(
    caller: Caller,
    body: object,
    wait: Wait = None,
    idempotency_key: IdempotencyKey = None,
    conditions: Unconditional = UNCONDITIONED,
) -> Response:
    """Append events of several conversations, each with `conversation`; in order within each.

    `positions` has the last position of each conversation, to use as `after`.
    """
    items: list[tuple[str, object]] = []
    for i, flat in enumerate(as_list(body, "event"), 1):
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
    of_conversation: dict[str, list[service.Appended]] = {}
    for (name, _), item in zip(items, appended, strict=True):
        of_conversation.setdefault(name, []).append(item)
    results: Sequence[service.Appended | service.Applied] = appended
    if wait:
        waited = await asyncio.gather(
            *(
                caller.backend.wait_applied(caller.tenant, name, of_one)
                for name, of_one in of_conversation.items()
            )
        )
        applied = {name: iter(one) for name, one in zip(of_conversation, waited, strict=True)}
        results = [next(applied[name]) for name, _ in items]
    listed = [
        {"conversation": name, **_shown(item)}
        for (name, _), item in zip(items, results, strict=True)
    ]
    last = {name: str(of_one[-1].position) for name, of_one in of_conversation.items()}
    return answer({"events": listed, "positions": last}, 200 if wait else 202)


@_append_route(
    f"{C}/rollback",
    summary="Roll back",
    body=Body(Rollback, {"by position": {"to": POSITION}}),
    answers=_answers(),
    problems=USUAL,
)
async def post_rollback(
    caller: Caller,
    body: Rollback,
    conversation: Conversation,
    wait: Wait = None,
    idempotency_key: IdempotencyKey = None,
    conditions: Conditional = UNCONDITIONED,
) -> Response:
    """Go back to a position, or to one of the last 1,024 events by its id; what came after stays in
    the log.
    """
    flat = {"type": "rollback", **to_builtins(body)}
    return await _append(
        caller, conversation, [flat], "rollback", wait, idempotency_key, conditions
    )


@_append_route(
    f"{C}/close",
    summary="Close the session",
    answers=_answers(),
    problems=(400, *USUAL),
)
async def post_close(
    caller: Caller,
    conversation: Conversation,
    wait: Wait = None,
    idempotency_key: IdempotencyKey = None,
    conditions: Conditional = UNCONDITIONED,
) -> Response:
    """Close the conversation's session; the next message opens it again. There is no body."""
    flat = {"type": "session.closed", "reason": "explicit"}
    return await _append(caller, conversation, [flat], "close", wait, idempotency_key, conditions)


@_append_route(
    f"{C}/compact",
    summary="Ask for a summary",
    answers=_answers("Asked for; the stream has the summary once the window accepted it."),
    problems=(400, *USUAL),
)
async def post_compact(
    caller: Caller,
    conversation: Conversation,
    wait: Wait = None,
    idempotency_key: IdempotencyKey = None,
    conditions: Conditional = UNCONDITIONED,
) -> Response:
    """Ask for a summary of all that may leave the window's tail now, whatever the policy's marks
    say. The request has no body.

    The summary comes later, on the streams. The last group of messages stays, and so does what
    waits for somebody.
    """
    flat = {"type": "compaction.requested"}
    return await _append(
        caller, conversation, [flat], "compaction", wait, idempotency_key, conditions
    )


@routes.add(
    "POST",
    f"{C}/renders",
    scope="append",
    tag="Model calls",
    summary="Record a call of a model",
    body=Body(
        {"$ref": "#/components/schemas/NewModelCall"},
        {
            "a call": {
                "model": "gpt-5-mini",
                "render_digest": DIGEST,
                "position": POSITION,
                "format": "openai",
                "tokens": 11,
                "reported_usage": {"prompt_tokens": 12, "completion_tokens": 40},
                "latency_ms": 812.5,
            }
        },
    ),
    answers={
        202: Answer(
            RecordedCall,
            {"id": "AAAAAwAAAAAAAAARkDcrvJ9jZJbB", "recorded": True},
            "Recorded; `id` is null where the tenant's policy has `renders` off.",
        )
    },
    problems=(410,),
)
async def post_render(caller: Caller, body: object, conversation: Conversation) -> Response:
    """Record a call of a model: `model`, and `render_digest`, `position`, `format` and `tokens` as
    the context had them. Add what is known of `summary_id`, `policy`, `max_tokens` (of the request
    for the context), `reported_usage` and `latency_ms`.

    The answer has the record's id, or null and `"recorded": false` where the tenant's policy has
    `renders` off.
    """
    render_id = await caller.backend.ledger.record(caller.tenant, conversation, body)
    return answer({"id": render_id, "recorded": render_id is not None}, 202)


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
        return await _append(caller, conversation, flats, "event", wait, id_seed, conditions)
    except ThreadfoldError as error:
        # The caller knows its messages, not the events that were made of them.
        named = re.sub(
            r"^event ([0-9]+):", lambda match: f"message {owners[int(match[1]) - 1]}:", str(error)
        )
        raise type(error)(named) from None


async def _append(
    caller: Caller,
    conversation: str,
    flats: Sequence[object],
    noun: str,
    wait: str | None,
    id_seed: str | None,
    conditions: Conditions,
) -> Response:
    """Append flat events to a conversation and answer for each; with conditions, once the fold has
    judged them (as with ``wait``).
    """
    backend, tenant = caller.backend, caller.tenant
    items = [(conversation, flat) for flat in flats]
    appended = await backend.append(
        tenant, items, noun=noun, id_seed=id_seed, conditions=conditions
    )
    caller.charge(appended)
    results: Sequence[service.Appended | service.Applied] = appended
    waits = wait is not None or conditions != UNCONDITIONED
    if waits:
        results = applied = await backend.wait_applied(tenant, conversation, appended)
        if conditions != UNCONDITIONED and applied[0].status == "rejected":
            raise await conflict(backend, tenant, conversation, conditions)
    document = {
        "events": [_shown(item) for item in results],
        "position": str(appended[-1].position),
    }
    return answer(document, 200 if waits else 202)


def _shown(item: service.Appended | service.Applied) -> dict[str, str]:
    partition, offset = item.position
    shown = {"id": item.id, "position": f"{partition}-{offset}"}
    if isinstance(item, service.Applied):
        shown["status"] = item.status
    return shown
