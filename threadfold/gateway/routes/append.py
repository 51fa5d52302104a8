"""The routes that append, and the one that records a model call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins
from starlette.responses import Response

from projections.errors import InvalidRequest
from projections.names import quoted
from threadfold.gateway.access import Caller
from threadfold.gateway.answers import (
    Appended,
    AppendedEvent,
    AppendedEventOfSeveral,
    AppendedOfSeveral,
    RecordedCall,
)
from threadfold.gateway.conditions import Unconditional, conflict, once_opened, refused_before
from threadfold.gateway.declaration import Answer, Cost, Routes
from threadfold.gateway.end_users import begin, own_seed
from threadfold.gateway.examples import CALL, CONVERSATION, POSITION, QUESTION, example_of
from threadfold.gateway.parameters import Query
from threadfold.gateway.request import Body
from threadfold.gateway.routes.common import (
    NO_BODY,
    NO_OPTIONS,
    AppendOptions,
    C,
    Conversation,
    IdempotencyKey,
    Nothing,
    Wait,
    answer,
)
from threadfold.schemas.structs import ID as ID_SCHEMA
from threadfold.schemas.structs import TIME, TRACEPARENT
from threadfold.service import append_result as service
from threadfold.service.append_body import AppendBody, Form, RawBody
from threadfold.service.documents import check_format
from threadfold.service.drafts import UNCONDITIONED, new_id

routes = Routes("Appending")
_append_route = partial(routes.add, "POST", scope="append", cost=Cost.APPEND)
MESSAGE_FORMATS = ("openai", "anthropic")
UNKNOWN = ("refuse", "ignore")
_SAFE = (
    "The events are safe in the log. An event that came with an id has the status `unknown`: it may"
    " be a repeat, whose `position` is its own here."
)
_APPLIED = "With `wait=applied` or a condition: the window has the events, too."
_MESSAGE = {"type": "message", **QUESTION}
_CALL = {"id": "call_1", "name": "find_order", "arguments": '{"order":1182}'}
_RESULT = {
    "type": "tool.result",
    "tool_call_id": "call_1",
    "content": '{"state":"shipped","carrier":"post"}',
}
_MAX_LIST = 64 << 20
"""Bytes of a list to append. A result of 8 MiB of text, the most by default, takes up to 48 MiB
where JSON escapes every character.
"""
_AppendedBody = partial(Body, raw=True, limit=_MAX_LIST)
_EVENTS = _AppendedBody(
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
_MESSAGES = _AppendedBody(
    {"$ref": "#/components/schemas/OneOrMoreMessages"},
    {
        "one": QUESTION,
        "several": [
            {"role": "assistant", "content": None, "tool_calls": [_OPENAI_CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": '{"state":"shipped"}'},
        ],
    },
)
_EVENTS_OF_SEVERAL = _AppendedBody(
    {"$ref": "#/components/schemas/OneOrMoreEventsOfSeveral"},
    {
        "several": [
            {"conversation": CONVERSATION, **_MESSAGE},
            {"conversation": "support-43", **_MESSAGE},
        ]
    },
)
_MODEL_CALL = {
    **CALL,
    "reported_usage": {"prompt_tokens": 24, "completion_tokens": 40},
    "latency_ms": 812.5,
}


class RollbackTarget(Struct, forbid_unknown_fields=True):
    """Where to go back to."""

    to: Annotated[
        str,
        Meta(description="the last event that stays: its position, or its id (of the last 1,024)"),
    ]
    id: Annotated[str | UnsetType, Meta(extra_json_schema=ID_SCHEMA)] = UNSET
    time: Annotated[str | UnsetType, Meta(extra_json_schema=TIME)] = UNSET
    traceparent: Annotated[str | UnsetType, Meta(extra_json_schema=TRACEPARENT)] = UNSET


def _answers(
    kind: type[Struct] = Appended, event: type[Struct] = AppendedEvent, safe: str = _SAFE
) -> dict[int, Answer]:
    """An append's two answers: 202 once it is safe, and 200 once the fold has decided on it."""
    applied = example_of(kind, events=[example_of(event, status="applied")])
    return {202: Answer(kind, safe), 200: Answer(kind, _APPLIED, applied)}


@_append_route(f"{C}/events", "Append events", _answers(), body=_EVENTS, end_users=True)
async def post_events(
    caller: Caller, body: RawBody, conversation: Conversation, options: AppendOptions = NO_OPTIONS
) -> Response:
    """Append one event, or a list of at most 500, to a conversation. All are checked before any is
    appended. They land in order.
    """
    return await _append_body(caller, AppendBody(body, Form.EVENTS, conversation), options)


@_append_route(f"{C}/messages", "Append messages", _answers(), body=_MESSAGES, end_users=True)
async def post_messages(
    caller: Caller,
    body: RawBody,
    conversation: Conversation,
    format: Annotated[  # noqa: A002 (the contract's name)
        str,
        Query("`openai` or `anthropic`", "openai"),
        Meta(extra_json_schema={"enum": list(MESSAGE_FORMATS)}),
    ] = "openai",
    unknown: Annotated[
        str,
        Query(
            "`refuse` or `ignore`: what to do with fields that the format does not have", "refuse"
        ),
        Meta(extra_json_schema={"enum": list(UNKNOWN)}),
    ] = "refuse",
    options: AppendOptions = NO_OPTIONS,
) -> Response:
    """Append one message, or a list of at most 500, in OpenAI's chat format or in Anthropic's.

    One Anthropic message may become several events, at most 500 in all. The answer lists each
    event, in order. Send Anthropic's `system` as a first message with the role system.
    """
    check_format(format, MESSAGE_FORMATS)
    form = Form.ANTHROPIC if format == "anthropic" else Form.OPENAI
    if unknown not in UNKNOWN:
        raise InvalidRequest(f"unknown is {quoted(unknown)}: give refuse or ignore")
    lenient = unknown == "ignore"
    return await _append_body(caller, AppendBody(body, form, conversation, lenient), options)


@_append_route(
    "/v1/events",
    "Append events of several conversations",
    _answers(AppendedOfSeveral, AppendedEventOfSeveral),
    body=_EVENTS_OF_SEVERAL,
)
async def post_events_of_several(
    caller: Caller,
    body: RawBody,
    wait: Wait = None,
    idempotency_key: IdempotencyKey = None,
    conditions: Unconditional = UNCONDITIONED,
) -> Response:
    """Append events of several conversations. Each event names its `conversation`. They land in
    order within each conversation.

    `positions` has the last position of each conversation: use it as `after`.
    """
    names, appended = await caller.backend.append_body(
        caller.tenant, AppendBody(body, Form.EVENTS_OF_SEVERAL), id_seed=idempotency_key
    )
    caller.charge(appended)
    of_conversation: dict[str, list[service.Appended]] = {}
    for name, item in zip(names, appended, strict=True):
        of_conversation.setdefault(name, []).append(item)
    results: Sequence[service.Appended | service.Applied] = appended
    if wait:
        waits = [
            caller.backend.wait_applied(caller.tenant, name, of_one)
            for name, of_one in of_conversation.items()
        ]
        waited = await caller.while_here(asyncio.gather(*waits))
        applied = {name: iter(one) for name, one in zip(of_conversation, waited, strict=True)}
        results = [next(applied[name]) for name in names]
    listed = [
        {"conversation": name, **_shown(item)} for name, item in zip(names, results, strict=True)
    ]
    last = {name: str(of_one[-1].position) for name, of_one in of_conversation.items()}
    return answer({"events": listed, "positions": last}, 200 if wait else 202)


@_append_route(
    f"{C}/rollback",
    "Roll back",
    _answers(),
    body=Body(RollbackTarget, {"by position": {"to": POSITION}}),
)
async def post_rollback(
    caller: Caller,
    body: RollbackTarget,
    conversation: Conversation,
    options: AppendOptions = NO_OPTIONS,
) -> Response:
    """Go back to a position, or to one of the last 1,024 events by its id. Later events stay in the
    log and leave the window.
    """
    flat = {"type": "rollback", **to_builtins(body)}
    return await _append(caller, conversation, [flat], "rollback", options)


@_append_route(f"{C}/close", "Close the session", _answers(), body=NO_BODY)
async def post_close(
    caller: Caller,
    body: Nothing,
    conversation: Conversation,
    options: AppendOptions = NO_OPTIONS,
) -> Response:
    """Close the conversation's session. The next message or tool result opens it again. The
    request needs no body.
    """
    flat = {"type": "session.closed", "reason": "explicit"}
    return await _append(caller, conversation, [flat], "close", options)


@_append_route(
    f"{C}/compact",
    "Ask for a summary",
    _answers(safe="The request is safe in the log. The summary comes on the streams."),
    body=NO_BODY,
)
async def post_compact(
    caller: Caller,
    body: Nothing,
    conversation: Conversation,
    options: AppendOptions = NO_OPTIONS,
) -> Response:
    """Ask for a summary of all that may leave the window's tail now, whatever the policy's limits
    are. The request needs no body.

    The last group of messages stays, and so do open suspensions. The summary comes later, on the
    streams.
    """
    flat = {"type": "compaction.requested"}
    return await _append(caller, conversation, [flat], "compaction", options)


@routes.add(
    "POST",
    f"{C}/renders",
    "Record a model call",
    RecordedCall,
    status=202,
    scope="append",
    tag="Model calls",
    body=Body({"$ref": "#/components/schemas/NewModelCall"}, {"a call": _MODEL_CALL}),
)
async def post_render(caller: Caller, body: object, conversation: Conversation) -> dict[str, Any]:
    """Record a model call: `model`, and `render_digest`, `position`, `format` and `tokens` of the
    context that the model was sent.

    Add what is known of `summary_id`, `policy`, `max_tokens` (of the request for the context),
    `reported_usage` and `latency_ms`. If the tenant's policy has `renders` off, nothing is
    recorded: `id` is null and `recorded` is false.
    """
    render_id = await caller.backend.ledger.record(caller.tenant, conversation, body)
    return {"id": render_id, "recorded": render_id is not None}


async def _append_body(caller: Caller, body: AppendBody, options: AppendOptions) -> Response:
    """Append what a body holds to its conversation, and answer for each event."""
    first, conditions = None, options.conditions
    if caller.end_user is not None:
        opening = new_id()
        if caller.opens:
            conditions = once_opened(body.conversation, conditions, opening)
        first = partial(begin, caller, caller.end_user, body.conversation, opening)
        body = body._replace(by_user=True)
    _, appended = await caller.backend.append_body(
        caller.tenant,
        body,
        id_seed=own_seed(caller.end_user, options.idempotency_key),
        conditions=conditions,
        first=first,
    )
    return await _answer(caller, body.conversation, appended, options)


async def _append(
    caller: Caller, conversation: str, flats: Sequence[object], noun: str, options: AppendOptions
) -> Response:
    """Append flat events to a conversation, and answer for each."""
    appended = await caller.backend.append(
        caller.tenant,
        [(conversation, flat) for flat in flats],
        noun=noun,
        id_seed=options.idempotency_key,
        conditions=options.conditions,
    )
    return await _answer(caller, conversation, appended, options)


async def _answer(
    caller: Caller,
    conversation: str,
    appended: list[service.Appended],
    options: AppendOptions,
) -> Response:
    """Answer for each event. With conditions, wait for the fold to decide on them, as with
    ``wait``.
    """
    backend, tenant, conditions = caller.backend, caller.tenant, options.conditions
    caller.charge(appended)
    results: Sequence[service.Appended | service.Applied] = appended
    waits = options.wait is not None or conditions != UNCONDITIONED
    if waits:
        applied = await caller.while_here(backend.wait_applied(tenant, conversation, appended))
        results = applied
        if conditions != UNCONDITIONED and applied[0].status == "rejected":
            if applied[0].position != appended[0].position:
                raise refused_before(conversation, applied[0])
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
    elif not item.fresh:
        # Whether it is a repeat is decided when it is folded.
        shown["status"] = "unknown"
    return shown
