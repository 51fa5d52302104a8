"""The routes of turns: one run at a time on a conversation, with a fencing token for what it
appends.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins
from starlette.responses import Response

from projections.window.turns import MAX_SECONDS
from threadfold.gateway.access import Caller
from threadfold.gateway.answers import Count, Position
from threadfold.gateway.conditions import RequiredFence, TurnFence
from threadfold.gateway.declaration import Answer, Cost, Routes
from threadfold.gateway.parameters import Path
from threadfold.gateway.request import Body
from threadfold.gateway.routes.common import USUAL, C, Conversation, answer
from threadfold.service import turns

routes = Routes("Turns")
_TURNS = f"{C}/turns"
_TURN: dict[str, Any] = {
    "turn_id": "t-1",
    "status": "started",
    "fencing_token": 18,
    "position": "3-18",
}
_Seconds = Annotated[
    int, Meta(ge=1, le=MAX_SECONDS, description="how long the lease holds without a renewal")
]
TurnId = Annotated[str, Path(example="t-1")]


class NewTurn(Struct, forbid_unknown_fields=True):
    """A turn to begin. `policy` says what to do while another is in force; `wait` is the seconds to
    wait for a queued turn.
    """

    turn_id: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    model: str | None = None
    policy: Literal["queue", "reject", "interrupt"] = "reject"
    seconds: _Seconds = turns.SECONDS
    wait: Annotated[float, Meta(ge=0, le=turns.MAX_WAIT)] = 0


class Renewal(Struct):
    """How long a lease is to hold from now."""

    seconds: _Seconds = turns.SECONDS


class Turn(Struct):
    """A turn. `fencing_token` grows with every turn of the conversation and is null while the turn
    waits; `place` is how many turns are before it.
    """

    turn_id: str
    status: Literal["started", "queued"]
    fencing_token: int | None
    position: Position
    place: Count | UnsetType = UNSET


class LiveTurn(Struct):
    """The turn in force, and the seconds of its lease."""

    turn_id: str
    fencing_token: int
    seconds: float


class TurnsOfConversation(Struct):
    """The turn in force, and the ids of those that wait."""

    live: LiveTurn | None
    waiting: list[str]


class EndedTurn(Struct):
    """A turn that is over."""

    turn_id: str
    position: Position


@routes.add(
    "POST",
    _TURNS,
    scope="append",
    cost=Cost.APPEND,
    summary="Begin a turn",
    body=Body(
        NewTurn,
        {"queued": {"turn_id": "t-1", "model": "gpt-5-mini", "policy": "queue", "seconds": 60}},
        required=False,
        noun="a turn",
    ),
    answers={202: Answer(Turn, _TURN, "The turn is in force (`started`) or waits (`queued`).")},
    problems=USUAL,
)
async def post_turn(caller: Caller, body: NewTurn, conversation: Conversation) -> Response:
    """Begin a turn. Its `policy` says what to do while another is in force: `reject` (409), `queue`
    (wait for it) or `interrupt` (end it).

    The answer has `status` started and the `fencing_token` to send with appends as `Fencing-Token`,
    or status queued. Ask again with the same `turn_id` to see its status now; with `wait` (up to 30
    s) a queued turn is waited for. The lease holds for `seconds` (60) unless it is renewed.
    """
    begun = await turns.begin(
        caller.backend, caller.tenant, conversation, to_builtins(body), caller.charge
    )
    return answer(begun, 202)


@routes.add(
    "GET",
    _TURNS,
    scope="read",
    summary="Which turn is in force",
    answers={
        200: Answer(
            TurnsOfConversation,
            {"live": {"turn_id": "t-1", "fencing_token": 18, "seconds": 60}, "waiting": ["t-2"]},
            "The turn in force, and those that wait.",
        )
    },
    problems=(404, 410),
)
async def get_turns(caller: Caller, conversation: Conversation) -> Response:
    """The turn in force, and those that wait for it."""
    return answer(await turns.shown(caller.backend, caller.tenant, conversation))


@routes.add(
    "POST",
    f"{_TURNS}/{{turn_id}}/renew",
    scope="append",
    cost=Cost.APPEND,
    summary="Renew a turn's lease",
    body=Body(Renewal, {"a minute": {"seconds": 60}}, required=False),
    answers={202: Answer(Turn, _TURN, "The lease runs on.")},
    problems=(404, *USUAL),
)
async def post_renewal(
    caller: Caller, body: Renewal, conversation: Conversation, turn_id: TurnId, fence: RequiredFence
) -> Response:
    """Renew the lease of the turn in force: it holds for `seconds` (60) from now. 409 if the turn
    is over.
    """
    renewed = await turns.renew(
        caller.backend, caller.tenant, conversation, turn_id, body.seconds, fence, caller.charge
    )
    return answer(renewed, 202)


@routes.add(
    "POST",
    f"{_TURNS}/{{turn_id}}/end",
    scope="append",
    summary="End a turn",
    body=Body({"type": "object"}, {"nothing": {}}, required=False),
    answers={
        202: Answer(
            EndedTurn,
            {"turn_id": "t-1", "position": "3-19"},
            "Over; the next turn that waits is in force.",
        )
    },
    problems=(404, *USUAL),
)
async def post_end(
    caller: Caller,
    body: object,
    conversation: Conversation,
    turn_id: TurnId,
    fence: TurnFence = None,
) -> Response:
    """End a turn, or take it out of the queue; then the next one that waits is in force. 409 if
    another one is in force. The body is ignored.
    """
    ended = await turns.end(
        caller.backend, caller.tenant, conversation, turn_id, fence, caller.charge
    )
    return answer(ended, 202)
