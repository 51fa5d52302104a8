"""Timers: when a conversation has to be looked at because time passed, and which events that calls
for. All pure: time is an argument.

The fold knows no clock, so time enters a conversation as an event of its log: ``session.closed``
when nobody has spoken for the policy's ``idle_close_seconds`` and nothing is suspended, a
``resolution`` with outcome ``expired`` when a suspension's ``expires_at`` has passed, and
``turn.ended`` when the lease of the turn in force has run out. What a store keeps of it (one time
in ms for each conversation that waits for one) is delivery state: it is no part of a window and is
never compared.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from projections.events.times import parse_micros
from projections.window.entry import Kind
from projections.window.window import Window

KEEP_TIMER = -1
"""In place of a time: the one that is stored stays as it is."""
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


class Timed(NamedTuple):
    """What a window's timer follows from: when any of it changes, the stored time is set anew.

    ``last`` is the offset of the last message, or of a resolution that came after it, and
    ``idle_ms`` how long after it the session closes (-1 and 0 when it does not, or is closed, or
    waits for a resolution); ``expires`` is the earliest expiry of an open
    suspension in ms, None without one; ``turn`` is the offset from whose time on a turn's lease
    runs, and ``turn_ms`` for how long (-1 and 0 without one).
    """

    last: int = -1
    idle_ms: int = 0
    expires: int | None = None
    turn: int = -1
    turn_ms: int = 0


NO_TIMER = Timed()


def timed(window: Window) -> Timed:
    """What the timer of this window follows from."""
    idle, state, live = (
        window.policy.idle_close_seconds,
        window.state,
        window.meta.turns.live if window.meta.turns else None,
    )
    if window.meta.quarantine is not None or (not idle and not state.suspensions and live is None):
        # What time calls for would only wait behind the event at which it is quarantined, and be
        # said again and again.
        return NO_TIMER
    turn = (live.since, live.seconds * 1000) if live is not None and live.seconds else (-1, 0)
    ends = [end for s in state.suspensions if (end := expiry_ms(s.expires_at)) is not None]
    expires = min(ends, default=None)
    if not idle or state.last_message < 0 or state.closed is not None or state.suspensions:
        # A session that waits for a person is not idle, however long it takes.
        return Timed(-1, 0, expires, *turn)
    return Timed(_idle_since(window), idle * 1000, expires, *turn)


def _idle_since(window: Window) -> int:
    """The offset of the last message, or of a resolution that came after it: what was suspended
    goes on from there.
    """
    last = window.state.last_message
    for entry in reversed(window.tail):
        if entry.offset <= last:
            break
        if entry.kind == Kind.RESOLUTION:
            return entry.offset
    return last


@lru_cache(maxsize=4096)
def expiry_ms(expires_at: str | None) -> int | None:
    """An RFC 3339 time as ms since 1970 (0 for all before it); None for what is not one: such a
    suspension never expires by itself.
    """
    if expires_at is None or not _RFC3339.fullmatch(expires_at):
        return None
    micros = parse_micros(expires_at)
    return None if micros is None else max(0, micros // 1000)


def next_timer(now: Timed, last_ms: int, turn_from_ms: int = 0) -> int | None:
    """When something happens next, in ms, None when nothing will.

    ``last_ms`` is the time of ``now.last`` by the broker's clock, ``turn_from_ms`` that of the
    event from which on a lease runs.
    """
    closes = last_ms + now.idle_ms if now.idle_ms else None
    ends = turn_from_ms + now.turn_ms if now.turn_ms else None
    return min((at for at in (closes, now.expires, ends) if at is not None), default=None)


def changed_timer(before: Timed, now: Timed, at_ms: int) -> int | None:
    """The time to store with a window's write: :data:`KEEP_TIMER` when nothing changed, None when
    there is none (any more).

    Args:
        before: what the stored time follows from.
        at_ms: no earlier than the window's last message, by the broker's clock: the time of the
            record that the write ends with, or of the write itself where that is not known (windows
            put back by healing). So a stored time may be late by what lies between.

    A stored time says when to *look*, not that anything happened: :func:`fired` is asked then, with
    the true time of ``last``. Where that is the one from before (a policy changed), that is at
    once.
    """
    if now == before:
        return KEEP_TIMER
    last_ms = at_ms if now.last != before.last else at_ms - now.idle_ms
    return next_timer(now, last_ms, at_ms if now.turn != before.turn else at_ms - now.turn_ms)


def fired(
    window: Window, last_ms: int | None, now_ms: int, turn_from_ms: int | None = None
) -> list[dict[str, Any]]:
    """The events that time calls for in this window, flat as callers append them, suspensions
    first.

    Args:
        last_ms: the time by the broker's clock of what the session is idle since; None when it is
            not known: it is not closed then.
        now_ms: the present.
        turn_from_ms: the time from which on the turn in force holds its lease; None when it is not
            known: it is not ended then.

    Ids derive from the conversation, what ends (``now.last``, the suspension's event) and the
    last rollback, so an event that is said again is a duplicate, while one that a rollback took
    back can be said anew. ``session.closed`` names the last message: when another one came first,
    the fold rejects it.
    """
    said: list[dict[str, Any]] = []
    for suspension in window.state.suspensions:
        end = expiry_ms(suspension.expires_at)
        if end is not None and end <= now_ms:
            id_ = _event_id(window, "expired", suspension.offset)
            said.append(
                {
                    "type": "resolution",
                    "id": id_,
                    "suspension_id": suspension.suspension_id,
                    "outcome": "expired",
                }
            )
    now = timed(window)
    if now.idle_ms and last_ms is not None and last_ms + now.idle_ms <= now_ms:
        id_ = _event_id(window, "idle", now.last)
        after = window.position_of(window.state.last_message)
        said.append({"type": "session.closed", "id": id_, "reason": "idle", "after": after})
    live = window.meta.turns.live if window.meta.turns else None
    if (
        live is not None
        and now.turn_ms
        and turn_from_ms is not None
        and turn_from_ms + now.turn_ms <= now_ms
    ):
        lease = {"reason": "expired", "since": window.position_of(live.since)}
        name = f"{window.key} {live.turn_id} {live.since}".encode("utf-8", "surrogatepass")
        id_ = f"turn-{sha256(name).hexdigest()[:32]}"
        said.append({"type": "turn.ended", "id": id_, "turn_id": live.turn_id, "lease": lease})
    return said


def _event_id(window: Window, what: str, offset: int) -> str:
    about = (str(window.key), what, window.position_of(offset), window.meta.rollback)
    return f"{what}-{sha256(msgspec.json.encode(about)).hexdigest()[:32]}"
