"""When the long-term memory is to learn from a conversation: at accepted summaries and at closed
sessions, as the policy's ``memory_auto`` says.

It changes nothing in a window. The live generation asks for it, once an event, before its
checkpoint passes the event.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from projections.events.types import AnyEvent, RollbackEvent, SessionClosedEvent
from projections.fold.outcomes import Outcome, Status
from projections.window.window import Window

Reason = Literal["summary", "session", "tail"]


class Extraction(NamedTuple):
    """What there is to learn from: the span of the summary at ``offset``, or what came before the
    close at ``offset``: of the whole ``session``, or what no summary covers (``tail``).

    ``gists``: also from messages that state nothing a rule knows, as they leave the window one by
    one (profile ``sliding``). ``again``: where the rollback stands that brought it back: it may
    have been learnt from while it was abandoned, and taught nothing.
    """

    offset: int
    reason: Reason
    gists: bool
    again: int | None = None

    @property
    def cause(self) -> int:
        """The offset of the event that gives it."""
        return self.offset if self.again is None else self.again


def extraction_due(window: Window, event: AnyEvent, outcome: Outcome) -> list[Extraction]:
    """What an event that ``window`` took gives to learn from, nothing for most events."""
    policy = window.policy
    if policy.memory_auto == "off" or outcome.status is not Status.APPLIED or window.key.of_user:
        return []
    offset, summaries = outcome.offset, policy.memory_auto == "summaries"
    gists = policy.profile == "sliding"
    if isinstance(event, SessionClosedEvent):
        if not summaries:
            return [Extraction(offset, "session", gists)]
        return [Extraction(offset, "tail", gists)] if _is_left(window, offset) else []
    if isinstance(event, RollbackEvent):
        reason: Reason = "tail" if summaries else "session"
        found = [Extraction(at, reason, gists, offset) for at in outcome.closes]
        if summaries:
            found += [Extraction(one.offset, "summary", gists, offset) for one in outcome.accepted]
        return found
    accepted = outcome.accepted and outcome.accepted[-1].offset == offset
    return [Extraction(offset, "summary", gists)] if accepted and summaries else []


def _is_left(window: Window, close: int) -> bool:
    """Whether a close leaves anything that no summary is asked for. What one is asked for is learnt
    from with that summary. In profile ``sliding`` all of it leaves, and one is asked for it, if not
    now, after the one that is under way.
    """
    due = window.meta.due
    if due is not None and window.policy.profile == "sliding":
        return False
    if due is None or due.kept:
        return True
    return any(due.last < entry.offset < close for entry in reversed(window.tail))
