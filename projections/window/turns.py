"""Turns: at most one run at a time writes to a conversation, as far as its runs ask for that.

A run that begins with ``turn.started`` and a ``lease`` holds the conversation until its
``turn.ended``, or until its lease has expired (which is an event, too: time enters a log only as
one). The fold decides, in the log's order, who holds it: what is true live is true on replay. The
*fencing token* of a turn is the offset of the event that put it in force, so later holders have
larger ones; events that carry another turn's token are rejected
(``projections.fold.conditions``).

Turns without a lease are only noted: they keep nobody out.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from projections.events import types as events

MAX_WAITING = 32
"""Turns that may wait for one conversation."""
MAX_SECONDS = 86_400
POLICIES = ("queue", "reject", "interrupt")


class Lease(Struct):
    """What a ``turn.started`` asks for: what to do when another turn is in force, and how long this
    one may be without a word (0: ever).
    """

    policy: Literal["queue", "reject", "interrupt"]
    seconds: int = 0


class Turn(Struct, array_like=True, frozen=True):
    """A turn in force. ``token`` is its fencing token, ``since`` the offset from whose time on its
    ``seconds`` run (a renewal moves it).
    """

    turn_id: str
    token: int
    seconds: int
    since: int


class Waiting(Struct, array_like=True, frozen=True):
    """A turn that waits for those before it."""

    turn_id: str
    seconds: int


class Turns(Struct, array_like=True, frozen=True):
    """The turn in force, and those that wait for it, first come first."""

    live: Turn | None = None
    waiting: tuple[Waiting, ...] = ()

    @property
    def token(self) -> int | None:
        """The fencing token in force."""
        return None if self.live is None else self.live.token


NONE = Turns()


class Change(Struct, frozen=True):
    """What a turn's event makes of the turns; ``what`` says how the tail shows it.

    ``started`` and ``ended`` are as they say, ``taken``: it started and ended the one before,
    ``passed``: it ended and the next one that waits is in force, ``noted``: nothing that the tail
    shows.
    """

    turns: Turns
    what: Literal["started", "ended", "taken", "passed", "noted"]


def lease_of(data: events.TurnStarted) -> Lease | None:
    """The lease a turn asks for, None for a turn that is only noted; what is no lease of ours is
    none.
    """
    if not isinstance(data.lease, dict):
        return None
    try:
        lease = msgspec.convert(data.lease, Lease)
    except msgspec.ValidationError:
        return None
    return lease if 0 <= lease.seconds <= MAX_SECONDS else None


def begin(
    turns: Turns, offset: int, data: events.TurnStarted, *, fenced: bool = False
) -> Change | str:
    """What a ``turn.started`` at ``offset`` makes of the turns, or why it is rejected.

    ``fenced``: it carries the token in force, so the turn in force may renew its lease by it.
    """
    lease = lease_of(data)
    if lease is None:
        return Change(turns, "started")
    live, waiting = turns.live, turns.waiting
    if live is None:
        return Change(Turns(Turn(data.turn_id, offset, lease.seconds, offset), waiting), "started")
    if live.turn_id == data.turn_id:
        if not fenced:
            return f"turn {live.turn_id} is already active"
        return Change(
            Turns(Turn(live.turn_id, live.token, lease.seconds, offset), waiting), "noted"
        )
    if any(turn.turn_id == data.turn_id for turn in waiting):
        return "the turn is already waiting"
    if lease.policy == "interrupt":
        return Change(Turns(Turn(data.turn_id, offset, lease.seconds, offset), waiting), "taken")
    if lease.policy == "reject":
        return f"turn {live.turn_id} is active"
    if len(waiting) >= MAX_WAITING:
        return f"{len(waiting)} turns are already waiting"
    return Change(Turns(live, (*waiting, Waiting(data.turn_id, lease.seconds))), "noted")


def end(turns: Turns, offset: int, data: events.TurnEnded, since: int | None) -> Change | str:
    """What a ``turn.ended`` at ``offset`` makes of the turns, or why it is rejected.

    ``since`` is that of the turn which an expiry means (:func:`expired_since`): a turn that was
    renewed meanwhile goes on.
    """
    live, waiting = turns.live, turns.waiting
    if live is not None and live.turn_id == data.turn_id:
        if since is not None and since != live.since:
            return "the turn was renewed"
        if not waiting:
            return Change(NONE, "ended")
        first, *rest = waiting
        return Change(
            Turns(Turn(first.turn_id, offset, first.seconds, offset), tuple(rest)), "passed"
        )
    if since is not None:
        return "the turn has already ended"
    left = tuple(turn for turn in waiting if turn.turn_id != data.turn_id)
    if len(left) < len(waiting):
        return Change(Turns(live, left), "noted")
    return "that turn is not active" if live is not None else Change(turns, "ended")


def expired_since(data: events.TurnEnded) -> str | None:
    """The position that a ``turn.ended`` of an expired lease names."""
    lease: Any = data.lease
    since = (
        lease.get("since") if isinstance(lease, dict) and lease.get("reason") == "expired" else None
    )
    return since if isinstance(since, str) else None
