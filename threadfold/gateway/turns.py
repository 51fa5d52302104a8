"""The routes of turns: one run at a time on a conversation, with a fencing token for what it
appends.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from projections.errors import InvalidRequest
from threadfold.gateway.access import Caller, caller_with
from threadfold.gateway.bodies import decode, read_body
from threadfold.gateway.conditions import FENCE, conditions_of
from threadfold.service import turns

router = APIRouter(prefix="/v1/conversations/{conversation}/turns")
Appender = Annotated[Caller, Depends(caller_with("append"))]
Reader = Annotated[Caller, Depends(caller_with("read"))]
_WANTED = {
    "type": "object",
    "description": (
        "turn_id, model, policy queue|reject|interrupt, seconds, wait; all of them optional"
    ),
}


@router.post(
    "",
    status_code=202,
    openapi_extra={"requestBody": {"content": {"application/json": {"schema": _WANTED}}}},
)
async def post_turn(request: Request, conversation: str, caller: Appender) -> Response:
    """Begin a turn. Its `policy` says what to do while another is in force: `reject` (409), `queue`
    (wait for it) or `interrupt` (end it).

    Answers `status` started with the `fencing_token` to send with appends as `Fencing-Token`, or
    queued. Asking again with the same `turn_id` tells how it stands now; with `wait` (up to 30 s) a
    queued turn is waited for. The lease holds for `seconds` (60) unless it is renewed.
    """
    return _json(
        await turns.begin(
            caller.backend, caller.tenant, conversation, await _body(request), caller.charge
        )
    )


@router.get("")
async def get_turns(conversation: str, caller: Reader) -> Response:
    """The turn in force, and those that wait for it."""
    return _json(await turns.shown(caller.backend, caller.tenant, conversation), 200)


@router.post(
    "/{turn_id}/renew",
    status_code=202,
    openapi_extra={"parameters": [{**FENCE[0], "required": True}]},
)
async def post_renewal(
    request: Request, conversation: str, turn_id: str, caller: Appender
) -> Response:
    """Let the lease of the turn in force run on: for `seconds` (60) from now. 409 when the turn is
    over.
    """
    fence = conditions_of(request).fence
    if fence is None:
        raise InvalidRequest(
            "header Fencing-Token: missing: a lease is renewed with the token that the turn was"
            " given"
        )
    body = await _body(request)
    seconds = body.get("seconds", turns.SECONDS) if isinstance(body, dict) else turns.SECONDS
    return _json(
        await turns.renew(
            caller.backend, caller.tenant, conversation, turn_id, seconds, fence, caller.charge
        )
    )


@router.post("/{turn_id}/end", status_code=202, openapi_extra={"parameters": FENCE})
async def post_end(request: Request, conversation: str, turn_id: str, caller: Appender) -> Response:
    """End a turn, or take it out of the queue; the next one that waits is in force then. 409 when
    another one is in force.
    """
    await _body(request)
    return _json(
        await turns.end(
            caller.backend,
            caller.tenant,
            conversation,
            turn_id,
            conditions_of(request).fence,
            caller.charge,
        )
    )


async def _body(request: Request) -> Any:
    body = await read_body(request)
    return decode(body) if body else None


def _json(document: object, status: int = 202) -> Response:
    return Response(msgspec.json.encode(document), status, media_type="application/json")
