"""Conditions on an append, as request headers. The fold checks them when it reaches the events."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta

from projections.errors import Conflict, InvalidPosition, InvalidRequest
from projections.names import POSITION_PATTERN, make_key, one_line, parse_position
from threadfold.gateway.parameters import Header, HeaderGroup, Parameter
from threadfold.service.append_result import Applied
from threadfold.service.conversations import ConversationService
from threadfold.service.drafts import UNCONDITIONED, Conditions
from threadfold.service.turns import stale_fence

_FENCE = re.compile(r"[0-9]{1,18}")
_NAMES = ("if-match", "if-none-match", "fencing-token")
_TOKEN = Annotated[int, Meta(ge=0, lt=10**18)]
_FENCED = (
    "the number that the turn was given when it began (`fencing_token`); 409 if that turn is not"
    " the active one"
)


def _conditions_of(headers: Mapping[str, str]) -> Conditions:
    """The conditions that a request's headers make.

    Raises:
        InvalidRequest: a header is malformed, or If-Match and If-None-Match come together.
    """
    expect, absent = headers.get("if-match"), headers.get("if-none-match")
    fence = headers.get("fencing-token")
    if absent is not None:
        if expect is not None:
            raise InvalidRequest("header If-None-Match: it excludes If-Match")
        if absent.strip() != "*":
            raise InvalidRequest(
                "header If-None-Match: only * is supported, for a conversation that must be new"
            )
        expect = ""
    elif expect is not None:
        expect = expect.strip().removeprefix('"').removesuffix('"')
        if not expect or expect == "*":
            raise InvalidRequest("header If-Match: expected the position of the last known event")
        try:
            parse_position(expect)
        except InvalidPosition as error:
            raise InvalidRequest(f"header If-Match: {error}") from None
    if fence is not None and not _FENCE.fullmatch(fence.strip()):
        raise InvalidRequest("header Fencing-Token: expected the fencing token of a turn")
    return Conditions(expect, None if fence is None else int(fence))


def _fence_of(headers: Mapping[str, str]) -> int | None:
    return _conditions_of(headers).fence


def _refused(headers: Mapping[str, str]) -> Conditions:
    if headers:
        raise InvalidRequest(
            "headers If-Match, If-None-Match and Fencing-Token apply to one conversation: append to"
            " it by its own route"
        )
    return UNCONDITIONED


def _without_positions(headers: Mapping[str, str]) -> int | None:
    if "if-match" in headers or "if-none-match" in headers:
        raise InvalidRequest(
            "headers If-Match and If-None-Match: text in progress has no position; they belong to"
            " its message"
        )
    return _fence_of(headers)


_FENCE_SHOWN = Parameter("Fencing-Token", "header", _TOKEN, description=_FENCED)
Conditional = Annotated[
    Conditions,
    HeaderGroup(
        _NAMES,
        _conditions_of,
        (
            Parameter(
                "If-Match",
                "header",
                Annotated[str, Meta(pattern=f'^({POSITION_PATTERN}|"{POSITION_PATTERN}")$')],
                description=(
                    "a position, quoted or not: 409 if other events than summaries and turns were"
                    " appended after it"
                ),
            ),
            Parameter(
                "If-None-Match",
                "header",
                Literal["*"],
                description="`*`: 409 unless the conversation is new. Not beside `If-Match`",
            ),
            _FENCE_SHOWN,
        ),
    ),
]
"""An append's conditions."""
Unconditional = Annotated[Conditions, HeaderGroup(_NAMES, _refused)]
"""None: the headers are refused."""
PartialFence = Annotated[int | None, HeaderGroup(_NAMES, _without_positions, (_FENCE_SHOWN,))]
"""The token of the turn that text in progress belongs to."""
TurnFence = Annotated[int | None, Header(_FENCED, 18, "Fencing-Token"), Meta(ge=0, lt=10**18)]
RequiredFence = Annotated[int, Header(_FENCED, 18, "Fencing-Token"), Meta(ge=0, lt=10**18)]
"""The token of the turn that a route of turns is about."""


def refused_before(conversation: str, first: Applied) -> Conflict:
    """The error for the repeat of an event that the fold rejected where its id came first."""
    return Conflict(
        f"conversation {conversation}: event {one_line(first.id)} was refused at"
        f" {first.position}, and a repeat of it changes nothing: read the context again, and give"
        " the event another id"
    )


async def conflict(
    backend: ConversationService, tenant: str, conversation: str, conditions: Conditions
) -> Conflict:
    """The reason why the fold rejected events with these conditions, by the window as it is now."""
    head = await backend.head(make_key(tenant, conversation))
    token = None if head.turns is None else head.turns.token
    if conditions.fence in (None, token) and _is_last(head.last, conditions.expect):
        return Conflict(
            f"conversation {conversation}: the first event was refused, but not because of the"
            " condition: its suspension, turn or target may be unknown. Others expect the one"
            " before them: nothing was changed"
        )
    return _conflict(conversation, conditions, token)


def _is_last(last: int, expect: str | None) -> bool:
    """Whether nothing that conditions see came after what is expected."""
    if not expect:
        return expect is None or last < 0
    return last <= parse_position(expect).offset


def once_opened(conversation: str, conditions: Conditions, opening: str) -> Conditions:
    """The conditions of events that go into a conversation right after the event that opens it,
    with the id ``opening``.

    Raises:
        Conflict: they do not hold in a new conversation.
    """
    if conditions.expect or conditions.fence is not None:
        raise _conflict(conversation, conditions, None)
    return conditions if conditions.expect is None else Conditions(opening)


def _conflict(conversation: str, conditions: Conditions, token: int | None) -> Conflict:
    """The error for conditions that do not hold, where ``token`` is the active turn's."""
    if conditions.fence is not None and token != conditions.fence:
        return stale_fence(conditions.fence, token)
    reason = (
        "there are events already"
        if conditions.expect == ""
        else f"other events came after {one_line(conditions.expect)}"
    )
    return Conflict(
        f"conversation {conversation}: {reason}: nothing was changed; read the context again"
    )
