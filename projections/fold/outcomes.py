"""What the fold answers, and what it may ask for."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from typing import NamedTuple

from projections.events import types as events
from projections.fold.known_events import KnownEvents
from projections.fold.summary_effects import LateSummary
from projections.window.meta import ActiveSummary
from projections.window.window import Window


class Status(Enum):
    """What the fold made of an event.

    ``rejected`` changed nothing but its own trace (it is skipped for ever, on replay too).
    ``needs_history`` changed nothing at all: call :func:`apply` again with the :class:`History` at
    ``Outcome.target``, or with the events at ``Outcome.texts``.
    """

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"
    NEEDS_HISTORY = "needs_history"


class Taught(NamedTuple):
    """What an event changes in the long-term memory of ``users`` (``projections.names.user_tag``).

    ``to`` is the last offset that stays after a rollback, ``dropped`` the offset of an event that
    was taken out.
    """

    users: tuple[str, ...]
    to: int | None = None
    dropped: int | None = None


class Outcome(NamedTuple):
    """The result of one :func:`apply`.

    ``offset`` is where the event counts: its own, or for a duplicate that of its first occurrence.
    ``accepted`` and ``voided`` are summary ids that came into force or lost it, in order: the live
    generation announces them. ``loop`` is what it appends as ``loop.detected``. ``taught`` is what
    it announces to the long-term memory. ``closes`` are where sessions were closed that a rollback
    brought back. Of a ``NEEDS_HISTORY``: ``since``: the cuts after this offset are undone with all
    of the ``texts`` (``projections.fold.undone_cuts``); ``late``: makes the window of the history,
    with these ``texts`` but for those that the log has lost, which stay shortened.
    """

    status: Status
    offset: int
    reason: str | None = None
    target: int | None = None
    accepted: tuple[ActiveSummary, ...] = ()
    voided: tuple[str, ...] = ()
    texts: tuple[int, ...] = ()
    loop: events.LoopDetected | None = None
    taught: Taught | None = None
    closes: tuple[int, ...] = ()
    since: int = -1
    late: LateSummary | None = None


def id_hash_of(event_id: str) -> bytes:
    """The SHA-256 of an event's id (which may hold lone surrogates)."""
    try:
        return sha256(event_id.encode()).digest()
    except UnicodeEncodeError:
        return sha256(event_id.encode("utf-8", "surrogatepass")).digest()


@dataclass(slots=True)
class History:
    """What an event needs from the log.

    ``window`` is, for a rollback beyond the window, the fold of the conversation's events up to and
    including the target, with those later summaries that are of nothing but these events, or None
    when the target is not one of them; for a late summary the window with it. ``texts`` are events,
    for what was shortened and is to be whole again (where the log has lost one of them, it stays as
    it is), and for the summaries that a rollback goes over.
    """

    window: Window | None = None
    texts: KnownEvents = field(default_factory=KnownEvents)
