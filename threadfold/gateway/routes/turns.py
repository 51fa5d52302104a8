"""The routes of turns: one run at a time on a conversation, which appends with a fencing token."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from threadfold.gateway.access import Caller
from threadfold.gateway.answers import Count, Position
from threadfold.gateway.conditions import RequiredFence, TurnFence
from threadfold.gateway.declaration import Answer, Cost, Routes
from threadfold.gateway.examples import example_of
from threadfold.gateway.parameters import Header, Path
from threadfold.gateway.request import Body
from threadfold.gateway.routes.common import NO_BODY, C, Conversation, Nothing
from threadfold.service import turns
from threadfold.service.turns import NewTurn, Seconds

routes = Routes("Turns")
_TURNS = f"{C}/turns"
TurnId = Annotated[str, Path(example="t-1")]
_KEY = "Idempotency-Key"
_KEY_LENGTH = Meta(min_length=1, max_length=255)
BeginKey = Annotated[
    str | None,
    Header(
        "requests with the same key begin the turn once, and not after an end with it",
        "t-1-begin",
        _KEY,
    ),
    _KEY_LENGTH,
]
EndKey = Annotated[
    str | None,
    Header(
        "the key of the request to begin it: if that one comes later, it is 409",
        "t-1-begin",
        _KEY,
    ),
    _KEY_LENGTH,
]


class Renewal(Struct, forbid_unknown_fields=True):
    """How long a lease lasts from now."""

    seconds: Seconds = turns.SECONDS


class Turn(Struct):
    """A turn: active (`started`), or waiting (`queued`) behind `place` other turns. `fencing_token`
    grows with every turn of the conversation; it is null while the turn waits.
    """

    turn_id: str
    status: Literal["started", "queued"]
    fencing_token: int | None
    position: Position
    place: Count | UnsetType = UNSET


class LiveTurn(Struct):
    """The active turn, and the seconds of its lease."""

    turn_id: str
    fencing_token: int
    seconds: float


class TurnsOfConversation(Struct):
    """The active turn, and the ids of those that wait."""

    live: LiveTurn | None
    waiting: list[str]


class EndedTurn(Struct):
    """The turn is over. The next one of the queue is active."""

    turn_id: str
    position: Position


@routes.add(
    "POST",
    _TURNS,
    "Begin a turn",
    Turn,
    status=202,
    scope="append",
    cost=Cost.APPEND,
    body=Body(
        NewTurn,
        {"queued": {"turn_id": "t-1", "model": "gpt-5-mini", "policy": "queue", "seconds": 60}},
        required=False,
        noun="a turn",
    ),
)
async def post_turn(
    caller: Caller, body: NewTurn, conversation: Conversation, idempotency_key: BeginKey = None
) -> dict[str, Any]:
    """Begin a turn. While another turn is active, `policy` decides: `reject` (409), `queue` (wait
    for it) or `interrupt` (end it).

    With `status` started, the answer has the `fencing_token`: send it with appends as
    `Fencing-Token`. With status queued, the turn waits: repeat the request with the same `turn_id`
    to see its status, or give `wait` (up to 30 s). The lease lasts `seconds` (60) unless it is
    renewed.
    """
    return await turns.begin(
        caller.backend, caller.tenant, conversation, body, caller.charge, once=idempotency_key
    )


@routes.add(
    "GET",
    _TURNS,
    "Show the active turn",
    Answer(TurnsOfConversation, example=example_of(TurnsOfConversation, live=example_of(LiveTurn))),
    scope="read",
)
async def get_turns(caller: Caller, conversation: Conversation) -> dict[str, Any]:
    """The active turn, and those that wait for it."""
    return await turns.shown(caller.backend, caller.tenant, conversation)


@routes.add(
    "POST",
    f"{_TURNS}/{{turn_id}}/renew",
    "Renew a turn's lease",
    Turn,
    status=202,
    scope="append",
    cost=Cost.APPEND,
    body=Body(Renewal, {"a minute": {"seconds": 60}}, required=False),
)
async def post_renewal(
    caller: Caller, body: Renewal, conversation: Conversation, turn_id: TurnId, fence: RequiredFence
) -> dict[str, Any]:
    """Renew the lease of the active turn: it lasts `seconds` (60) from now. 409 if the turn is
    over.
    """
    return await turns.renew(
        caller.backend, caller.tenant, conversation, turn_id, body.seconds, fence, caller.charge
    )


@routes.add(
    "POST",
    f"{_TURNS}/{{turn_id}}/end",
    "End a turn",
    EndedTurn,
    status=202,
    scope="append",
    body=NO_BODY,
    problems=(409,),
)
async def post_end(
    caller: Caller,
    body: Nothing,
    conversation: Conversation,
    turn_id: TurnId,
    fence: TurnFence = None,
    idempotency_key: EndKey = None,
) -> dict[str, Any]:
    """End the active turn, or take a turn out of the queue. The next turn of the queue becomes
    active. 409 if another turn is active.

    Of a turn whose begin was not answered, give the `Idempotency-Key` of that request: it may come
    after this one, and then begins nothing.
    """
    return await turns.end(
        caller.backend,
        caller.tenant,
        conversation,
        turn_id,
        fence,
        caller.charge,
        once=idempotency_key,
    )
