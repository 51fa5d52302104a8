"""When the long-term memory is to learn from a conversation: at accepted summaries and at closed
sessions, as the policy's ``memory_auto`` says.

It changes nothing in a window. The live generation asks for it, once an event, before its
checkpoint passes the event.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from projections.events.types import AnyEvent, SessionClosedEvent
from projections.fold.outcomes import Outcome, Status
from projections.window.window import Window

Reason = Literal["summary", "session", "tail"]


class Extraction(NamedTuple):
    """What there is to learn from: the span of the summary at ``offset``, or what came before the
    close at ``offset``: of the whole ``session``, or what no summary covers (``tail``).

    ``gists``: also from messages that state nothing a rule knows, as they leave the window one by
    one (profile ``sliding``).
    """

    offset: int
    reason: Reason
    gists: bool


def extraction_due(window: Window, event: AnyEvent, outcome: Outcome) -> Extraction | None:
    """What an event that ``window`` took gives to learn from, None for most events."""
    policy = window.policy
    if policy.memory_auto == "off" or outcome.status is not Status.APPLIED or window.key.of_user:
        return None
    offset = outcome.offset
    gists = policy.profile == "sliding"
    if isinstance(event, SessionClosedEvent):
        if policy.memory_auto == "sessions":
            return Extraction(offset, "session", gists)
        return Extraction(offset, "tail", gists) if _is_left(window, offset) else None
    accepted = outcome.accepted and outcome.accepted[-1].offset == offset
    if accepted and policy.memory_auto == "summaries":
        return Extraction(offset, "summary", gists)
    return None


def _is_left(window: Window, close: int) -> bool:
    """Whether a close leaves anything that no summary is asked for. What one is asked for is learnt
    from with that summary.
    """
    due = window.meta.due
    if due is None or due.kept:
        return True
    return any(due.last < entry.offset < close for entry in reversed(window.tail))
