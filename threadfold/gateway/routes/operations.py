"""The routes of dead letters, for the platform's operator."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from projections.names import check_name
from threadfold.gateway.access import Caller
from threadfold.gateway.answers import Count, Parked, Position
from threadfold.gateway.declaration import Answer, Cost, Routes
from threadfold.gateway.examples import CONVERSATION, POSITION
from threadfold.gateway.parameters import Path, Query
from threadfold.gateway.request import Body
from threadfold.gateway.routes.common import NO_BODY, Nothing
from threadfold.schemas.structs import NAME
from threadfold.schemas.structs import POSITION as POSITION_SCHEMA
from threadfold.service import letters

routes = Routes("Operations")
_admin = partial(routes.add, scope="admin", cost=Cost.ADMINISTRATION)


_LETTERS = "/v1/dead-letters"
_At = Annotated[str, Path(example=POSITION), Meta(extra_json_schema=POSITION_SCHEMA)]


class HaltedPartition(Struct):
    """A partition in which nothing new is folded, since when, and what to do."""

    partition: Count
    since: str
    what: str


class ParkedConversation(Struct):
    """A conversation that is parked at an event that could not be applied: its position, the cause,
    and how many events wait behind it.
    """

    position: Position
    tenant: str
    conversation: str
    cause: str
    waiting: Count


class OpenRecord(Struct):
    """A record of the log that is nobody's event."""

    position: Position
    key: str
    cause: str


class DeadLetters(Struct):
    """What could not be applied. `all`: there is no more of it."""

    halted: list[HaltedPartition]
    parked: list[ParkedConversation]
    records: list[OpenRecord]
    all: bool


class InspectedRecord(Struct):
    """A record without its text. `kind`: `poison` (a conversation is parked at it), `waiting`
    (behind such a one), `record` (nobody's event) or `folded`. `now`: why this release cannot fold
    it, or that it can.
    """

    position: Position
    key: str | None
    bytes: Count | None
    kind: Literal["poison", "waiting", "record", "folded"]
    type: str | UnsetType = UNSET
    id: str | UnsetType | None = UNSET
    source: str | UnsetType | None = UNSET
    time: str | UnsetType | None = UNSET
    parked: Parked | UnsetType = UNSET
    now: str | UnsetType = UNSET
    cause: str | UnsetType = UNSET


class Retried(Struct):
    """How many events of the conversation were folded, and where it is parked now (null: it goes
    on).
    """

    tenant: str
    conversation: str
    folded: Count
    parked: Parked | None


class Reason(Struct, forbid_unknown_fields=True):
    """Why, kept in the log."""

    reason: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None


class Dropped(Struct):
    """The position of the event that drops it (null for a record: it is off the list); whether the
    fold has come to it; and where the conversation is parked then.
    """

    event: Position | None
    applied: bool
    parked: Parked | None


_FOUND = {
    "halted": [],
    "parked": [
        {
            "position": POSITION,
            "tenant": "nord",
            "conversation": CONVERSATION,
            "cause": "the value is not an event",
            "waiting": 2,
        }
    ],
    "records": [],
    "all": True,
}


@_admin("GET", _LETTERS, "List dead letters", Answer(DeadLetters, example=_FOUND))
async def get_dead_letters(
    caller: Caller,
    tenant: Annotated[
        str | None, Query("only this tenant's", "nord"), Meta(extra_json_schema=NAME)
    ] = None,
    limit: Annotated[int, Query(example=50), Meta(ge=1, le=500)] = 200,
) -> dict[str, Any]:
    """Halted partitions, parked conversations, and records that are nobody's event. A conversation
    is listed while it is parked, a record while the topic keeps its letter.
    """
    if tenant is not None:
        check_name("tenant", tenant)
    return await letters.listed(caller.backend, tenant, limit)


@_admin(
    "GET",
    f"{_LETTERS}/{{position}}",
    "Inspect a dead letter",
    Answer(
        InspectedRecord,
        example={
            "position": POSITION,
            "key": f"nord/{CONVERSATION}",
            "bytes": 312,
            "kind": "folded",
            "type": "message",
        },
    ),
    problems=(410,),
)
async def get_dead_letter(caller: Caller, position: _At) -> dict[str, Any]:
    """The record at a position, how it stands, and why. Its text is not shown (`threadfold
    dead-letters inspect` shows it), but the error in `now` may quote it. 410 if it is of an erased
    conversation.
    """
    return await letters.inspected(caller.backend, position)


@_admin(
    "POST",
    f"{_LETTERS}/{{position}}/retry",
    "Retry a dead letter",
    Answer(
        Retried,
        example={"tenant": "nord", "conversation": CONVERSATION, "folded": 3, "parked": None},
    ),
    body=NO_BODY,
)
async def post_retry(caller: Caller, body: Nothing, position: _At) -> dict[str, Any]:
    """Fold the conversation of this record on, with the code of this gateway's release. What is not
    parked does not change, nor does a conversation whose event still fails.
    """
    return await letters.retry(caller.backend, position)


@_admin(
    "POST",
    f"{_LETTERS}/{{position}}/drop",
    "Drop a dead letter",
    Answer(Dropped, example={"event": "3-41", "applied": True, "parked": None}),
    body=Body(Reason, {"with a reason": {"reason": "a broken producer"}}, required=False),
)
async def post_drop(caller: Caller, body: Reason, position: _At) -> dict[str, Any]:
    """Drop the event at which a conversation is parked: the fold skips it and goes on with those
    that wait. The record stays in the log. A record of no event leaves the list.

    The answer waits up to 10 s for the fold, and not for a halted partition. 422 if the event parks
    no conversation.
    """
    return await letters.drop(caller.backend, position, body.reason)
