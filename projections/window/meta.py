"""What of a window is neither its tail nor its recent ids: the lanes before the tail, the summary
in force, counters.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from projections.window.conversation_state import ConversationState
from projections.window.due import Due
from projections.window.turns import Turns

VERSION = 5
"""Raised whenever windows are stored in another form, or the fold makes something else of the same
events.
"""


class ActiveSummary(Struct, array_like=True):
    """The accepted summary a window stands on. ``offset`` is the summary event's own, ``to`` the
    last one it covers.
    """

    summary_id: str
    offset: int
    text: str
    tokens: int
    to: int
    trust: str
    previous: str | None = None
    previous_offset: int | None = None


class Parked(Struct, array_like=True):
    """At which event a window is parked, and what waits behind it
    (``projections.fold.quarantine``).

    ``offset`` is that event's, ``count`` how many later ones wait, ``last`` the latest of them;
    ``waiting`` are the offsets of the first of them, each as the difference to the one before.
    """

    offset: int
    cause: str
    count: int = 0
    last: int = -1
    waiting: list[int] = []


class Meta(Struct, array_like=True):
    """The part of a window that is neither tail nor recent ids. Its size does not depend on the
    conversation's length.

    ``last`` is the offset of the last event that conditions see
    (``projections.fold.conditions.moves``); ``turns`` is None where there are none.
    ``parked`` is None for a window that folds on.
    """

    version: int = VERSION
    position: int = -1
    count: int = 0
    digest: bytes = bytes(32)
    base: ConversationState = msgspec.field(default_factory=ConversationState)
    summary: ActiveSummary | None = None
    rollback: int | None = None
    due: Due | None = None
    unknown: int = 0
    duplicates: int = 0
    skipped: int = 0
    erased: bool = False
    last: int = -1
    turns: Turns | None = None
    parked: Parked | None = None
