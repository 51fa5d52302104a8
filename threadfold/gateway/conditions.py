"""Conditions on an append, as request headers: what has to hold where its events reach the fold."""

from __future__ import annotations

import re
from typing import Any

from fastapi import Request

from projections.errors import Conflict, InvalidPosition, InvalidRequest
from projections.names import parse_position
from threadfold.service.conversations import ConversationService
from threadfold.service.drafts import UNCONDITIONED, Conditions
from threadfold.service.turns import not_in_force

_FENCE = re.compile(r"[0-9]{1,18}")
HEADERS: list[dict[str, Any]] = [
    {
        "name": "If-Match",
        "in": "header",
        "schema": {"type": "string"},
        "description": (
            "a position (quoted or not): 409 when anything was appended after it, but for summaries"
            " and turns"
        ),
    },
    {
        "name": "If-None-Match",
        "in": "header",
        "schema": {"type": "string", "enum": ["*"]},
        "description": "`*`: 409 unless the conversation is new",
    },
    {
        "name": "Fencing-Token",
        "in": "header",
        "schema": {"type": "integer", "minimum": 0},
        "description": "the token of a turn: 409 unless the turn is in force",
    },
]
"""The headers' place in the OpenAPI document."""
_NAMES = frozenset(header["name"].lower().encode() for header in HEADERS)
FENCE = [header for header in HEADERS if header["name"] == "Fencing-Token"]
"""The same where only this one has a meaning."""


def conditions_of(request: Request) -> Conditions:
    """The conditions that a request's headers make.

    Raises:
        InvalidRequest: a header is malformed, or If-Match and If-None-Match come together.
    """
    if _NAMES.isdisjoint([name for name, _ in request.scope["headers"]]):
        return UNCONDITIONED  # nearly always: each look-up below costs as much
    headers = request.headers
    expect, absent, fence = (
        headers.get("if-match"),
        headers.get("if-none-match"),
        headers.get("fencing-token"),
    )
    if absent is not None:
        if expect is not None:
            raise InvalidRequest("header If-None-Match: it excludes If-Match")
        if absent.strip() != "*":
            raise InvalidRequest(
                "header If-None-Match: only * is known, for a conversation that must be new"
            )
        expect = ""
    elif expect is not None:
        expect = expect.strip().removeprefix('"').removesuffix('"')
        if not expect or expect == "*":
            raise InvalidRequest(
                "header If-Match: expected the position of the last event that was seen"
            )
        try:
            parse_position(expect)
        except InvalidPosition as error:
            raise InvalidRequest(f"header If-Match: {error}") from None
    if fence is not None and not _FENCE.fullmatch(fence.strip()):
        raise InvalidRequest("header Fencing-Token: expected the number that a turn was given")
    return Conditions(expect, None if fence is None else int(fence))


async def conflict(
    backend: ConversationService, tenant: str, conversation: str, conditions: Conditions
) -> Conflict:
    """Why events with these conditions were rejected, as the window tells now."""
    meta = (await backend.window(tenant, conversation)).meta
    token = None if meta.turns is None else meta.turns.token
    if conditions.fence is not None and token != conditions.fence:
        return not_in_force(conditions.fence, token)
    said = (
        "there are events already"
        if conditions.expect == ""
        else f"other events came after {conditions.expect}"
    )
    return Conflict(
        f"conversation {conversation}: {said}: nothing was changed; read the context again"
    )
