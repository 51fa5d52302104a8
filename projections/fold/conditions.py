"""Conditions that an event may carry in its envelope, and that the fold checks in the log's order,
where no race can pass them by.

``expect`` is the position (or the id) of an event: nothing may have been appended after it, but for
what threadfold itself appends and for the begin and end of turns (``Handler.visible``); empty:
nothing at all may have been appended yet. The events of one list expect the list's event before
them. ``fence`` is a turn's fencing token: the turn must still be in force. An event whose condition
is not met is rejected, and stays in the log.

What an operator takes out is taken out whatever came before: the conditions of an ``event.dropped``
count for nothing. A rollback passes over the events that it abandons, drops among them, and so does
not know which of their conditions were met.
"""

from __future__ import annotations

from projections.errors import InvalidPosition
from projections.events import types as events
from projections.fold.outcomes import id_hash_of
from projections.names import parse_position
from projections.window.window import Window

UNCONDITIONAL: frozenset[type] = frozenset({events.EventDroppedEvent})
"""The types of events whose conditions count for nothing."""


def not_met(window: Window, event: events.AnyEvent) -> str | None:
    """Why an event's conditions are not met by the window before it, None when they are."""
    if type(event) in UNCONDITIONAL:
        return None
    if isinstance(event.fence, int):
        turns = window.meta.turns
        token = None if turns is None else turns.token
        if token != event.fence:
            return f"fencing token {event.fence} is not that of the active turn" + (
                "" if token is None else f", which is {token}"
            )
    return _not_expected(window, event.expect) if isinstance(event.expect, str) else None


def _not_expected(window: Window, expect: str) -> str | None:
    last = window.meta.last
    if not expect:
        return (
            None
            if last < 0
            else f"the conversation is not empty: an event came at {window.position_of(last)}"
        )
    try:
        position = parse_position(expect)
    except InvalidPosition:
        seen = window.recent_ids.find(id_hash_of(expect))
        if seen is None or seen.rejected:
            return "the expected event is not in the window"
        offset = seen.offset
    else:
        if position.partition != window.partition:
            return f"position {expect} is not one of this conversation"
        offset = position.offset
    return None if last <= offset else f"another event came at {window.position_of(last)}"
