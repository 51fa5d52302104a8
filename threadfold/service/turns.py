"""Turns: begin, renew and end a run on a conversation, with a fencing token for its appends.

A turn is an event. The fold decides in the log's order which turn is active
(``projections.window.turns``). Here the event is appended, and the fold's decision is returned.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from projections.errors import Conflict, InvalidEvent, InvalidName
from projections.names import NAME_PATTERN, Key, Position, check_name, make_key, one_line
from projections.window.turns import MAX_SECONDS, NONE, Turns
from threadfold.service.append_result import Appended, Applied
from threadfold.service.conversations import ConversationService
from threadfold.service.drafts import UNCONDITIONED, Conditions, derived_id, new_id

SECONDS = 60
"""Seconds that a turn's lease lasts without a renewal, by default."""
MAX_WAIT = 30
_LOOK, _LAST_LOOK = 0.05, 0.5
WAITED_PART = 10
"""A queued turn is looked at again after such a part of the time that it has waited: hundreds that
only wait would take half a processor.
"""


Charge = Callable[[Sequence[Appended]], None]
"""Called with what was appended, which counts against quotas."""


def _free(appended: Sequence[Appended]) -> None:
    del appended


Seconds = Annotated[
    int, Meta(ge=1, le=MAX_SECONDS, description="how long the lease lasts without a renewal")
]


class NewTurn(Struct, forbid_unknown_fields=True):
    """A turn to begin. `policy` decides while another turn is active. `wait` is how many seconds to
    wait for a queued turn.
    """

    turn_id: (
        Annotated[
            str,
            Meta(min_length=1, max_length=128, extra_json_schema={"pattern": f"^{NAME_PATTERN}$"}),
        ]
        | None
    ) = None
    model: str | None = None
    policy: Literal["queue", "reject", "interrupt"] = "reject"
    seconds: Seconds = SECONDS
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT)] = 0


async def begin(
    backend: ConversationService,
    tenant: str,
    conversation: str,
    request: NewTurn,
    charge: Charge = _free,
    *,
    once: str | None = None,
) -> dict[str, Any]:
    """Begin a turn, or wait in the queue for it.

    Returns ``{"turn_id", "status": "started" | "queued", "fencing_token", "position", "place"}``:
    the token is an integer that grows with every turn of the conversation, None while the turn
    waits; ``place`` counts the turns before it. A repeat with the same ``turn_id`` returns the
    present status: repeat the request if its answer was lost, or to follow a queued turn.

    Args:
        once: a key. Requests with the same one begin the turn once, and not after an :func:`end`
            with it, in whatever order they come.

    Raises:
        InvalidName: the turn's id is invalid.
        Conflict: another turn is active and the policy is to reject, too many turns wait, this
            one was interrupted at once, it has ended (``once``), or the conversation is parked: no
            turn begins later then.
        KafkaUnavailable, WaitTimedOut, Healing, RedisUnavailable: the turn may have begun; repeat
            the request with the same ``turn_id``.
    """
    if request.turn_id is not None:
        turn_id = _named(request.turn_id)
    else:
        turn_id = new_id() if once is None else _id_of_begin(tenant, "", once)
    lease = {"policy": request.policy, "seconds": request.seconds}
    flat = {"type": "turn.started", "turn_id": turn_id, "lease": lease}
    if request.model is not None:
        flat["model"] = request.model
    if once is not None:
        flat["id"] = _id_of_begin(tenant, turn_id, once)
    since = time.monotonic()
    turns, applied = await _asked(backend, tenant, conversation, flat, charge)
    answer = _standing(turns, turn_id)
    while answer is not None and answer["status"] == "queued":
        waited = time.monotonic() - since
        if waited >= request.wait:
            break
        await asyncio.sleep(
            min(max(_LOOK, waited / WAITED_PART), _LAST_LOOK, request.wait - waited)
        )
        answer = _standing(await standing(backend, tenant, conversation), turn_id)
    if answer is None:
        used = "" if once is None else ": its key was used: give another one"
        why = ": it has ended" if applied.status == "duplicate" else _holder(turns) or used
        raise Conflict(f"{_not_begun(turn_id, conversation)}{why}")
    return {**answer, "position": str(applied.position)}


async def renew(
    backend: ConversationService,
    tenant: str,
    conversation: str,
    turn_id: str,
    seconds: int,
    fence: int,
    charge: Charge = _free,
) -> dict[str, Any]:
    """Renew the active turn's lease by ``seconds`` from now; like :func:`begin`."""
    _check_length(turn_id)
    lease = {"policy": "reject", "seconds": seconds}
    flat = {"type": "turn.started", "turn_id": turn_id, "lease": lease}
    turns, (applied,) = await _appended(
        backend, tenant, conversation, [flat], Conditions(fence=fence), charge
    )
    answer = _standing(turns, turn_id)
    if answer is None or answer["fencing_token"] != fence:
        raise Conflict(
            f"turn {one_line(turn_id)} of conversation {conversation} is over{_holder(turns)}"
        )
    return {**answer, "position": str(applied.position)}


async def end(
    backend: ConversationService,
    tenant: str,
    conversation: str,
    turn_id: str,
    fence: int | None = None,
    charge: Charge = _free,
    *,
    once: str | None = None,
) -> dict[str, Any]:
    """End a turn, or remove it from the queue; the next waiting turn becomes active. Returns
    ``{"turn_id", "position"}``.

    Args:
        once: the key of the requests to begin it. Those that come later begin nothing, also if this
            raises Conflict.

    Raises:
        Conflict: another turn is active.
        KafkaUnavailable, WaitTimedOut, Healing, RedisUnavailable: the turn may have ended; end it
            again.
    """
    _check_length(turn_id)
    flats = [{"type": "turn.ended", "turn_id": turn_id}]
    if once is not None:
        # With the id of the begin: after it a duplicate, while before it the begin becomes one.
        flats.insert(0, {**flats[0], "id": _id_of_begin(tenant, turn_id, once)})
    turns, applied = await _appended(
        backend, tenant, conversation, flats, Conditions(fence=fence), charge
    )
    if {one.status for one in applied} <= {"rejected", "duplicate"}:
        raise Conflict(
            f"turn {one_line(turn_id)} of conversation {conversation} is not active{_holder(turns)}"
        )
    return {"turn_id": turn_id, "position": str(applied[-1].position)}


async def shown(backend: ConversationService, tenant: str, conversation: str) -> dict[str, Any]:
    """The active turn and the waiting ones: ``{"live": {"turn_id", "fencing_token", "seconds"} |
    None, "waiting": [turn ids]}``.
    """
    turns = await standing(backend, tenant, conversation)
    live = turns.live
    answer = (
        None
        if live is None
        else {"turn_id": live.turn_id, "fencing_token": live.token, "seconds": live.seconds}
    )
    return {"live": answer, "waiting": [turn.turn_id for turn in turns.waiting]}


async def standing(backend: ConversationService, tenant: str, conversation: str) -> Turns:
    """The conversation's turns; raises like ``ConversationService.head``."""
    return (await backend.head(make_key(tenant, conversation))).turns or NONE


async def _appended(
    backend: ConversationService,
    tenant: str,
    conversation: str,
    flats: Sequence[dict[str, Any]],
    conditions: Conditions,
    charge: Charge,
) -> tuple[Turns, list[Applied]]:
    """Append a turn's events; returns the turns after them, and what the fold did with each."""
    items = [(conversation, flat) for flat in flats]
    appended = await backend.append(tenant, items, noun="turn", conditions=conditions)
    charge(appended)
    applied = await backend.wait_applied(tenant, conversation, appended)
    return await standing(backend, tenant, conversation), applied


async def _asked(
    backend: ConversationService,
    tenant: str,
    conversation: str,
    flat: dict[str, Any],
    charge: Charge,
) -> tuple[Turns, Applied]:
    """Append the begin of a turn; returns the turns after it, and what the fold did with it.

    While the conversation is parked nothing is appended: the turn would begin once it goes on, and
    nobody would know of it. One that holds the conversation already, or waits, stays as it is.

    Raises:
        Conflict: it is parked.
        Others: as ``ConversationService.append`` and ``wait_applied`` say.
    """
    key, turn_id = make_key(tenant, conversation), flat["turn_id"]
    refused = f"{_not_begun(turn_id, conversation)}: the conversation"
    if (parked := await _parked_at(backend, key)) is not None:
        turns = await standing(backend, tenant, conversation)
        if _standing(turns, turn_id) is None:
            raise Conflict(f"{refused} is parked at {parked}: nothing was appended")
        return turns, Applied(turn_id, parked, "parked")
    turns, (applied,) = await _appended(
        backend, tenant, conversation, [flat], UNCONDITIONED, charge
    )
    if applied.status == "parked" and _standing(turns, turn_id) is None:
        over = {"type": "turn.ended", "turn_id": turn_id}
        charge(await backend.append(tenant, [(conversation, over)], noun="turn"))
        at = await _parked_at(backend, key) or applied.position
        raise Conflict(f"{refused} was parked at {at} meanwhile: its end was appended, too")
    return turns, applied


def _not_begun(turn_id: str, conversation: str) -> str:
    return f"turn {one_line(turn_id)} of conversation {conversation} did not begin"


async def _parked_at(backend: ConversationService, key: Key) -> Position | None:
    """Where the conversation is parked; None: it is not. One that sleeps stays asleep."""
    owner = await backend.owner(key)
    return None if owner is None else owner.parked


def _id_of_begin(tenant: str, turn_id: str, once: str) -> str:
    return derived_id(tenant, f"turn {turn_id}\n{once}", 0)


def _check_length(turn_id: str) -> None:
    if len(turn_id) > 256:
        raise InvalidEvent("turn: field turn_id: it must have 1 to 256 characters")


def _named(turn_id: str) -> str:
    """The id of a turn that begins; a URL's path must be able to name it."""
    check_name("turn_id", turn_id)
    if turn_id in (".", ".."):
        raise InvalidName(
            f"turn_id {turn_id!r} cannot be named in a URL: the turn could not be ended"
        )
    return turn_id


def stale_fence(fence: int, token: int | None) -> Conflict:
    """The error for token ``fence`` if ``token`` is the current one (None: no turn)."""
    now = "no turn is" if token is None else f"that of token {token} is"
    return Conflict(
        f"header Fencing-Token: the turn of token {fence} is not active, {now}: nothing was changed"
    )


def _standing(turns: Turns, turn_id: str) -> dict[str, Any] | None:
    place, token = 0, None
    if turns.live is not None and turns.live.turn_id == turn_id:
        token = turns.live.token
    else:
        names = [turn.turn_id for turn in turns.waiting]
        if turn_id not in names:
            return None
        place = names.index(turn_id) + 1
    status = "queued" if place else "started"
    return {"turn_id": turn_id, "status": status, "fencing_token": token, "place": place}


def _holder(turns: Turns) -> str:
    return "" if turns.live is None else f": turn {one_line(turns.live.turn_id)} is active"
