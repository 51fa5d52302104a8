"""What of a window is neither its tail nor its recent ids: progress, the state before the tail, the
active summary.
"""

from __future__ import annotations

from msgspec import Struct

from projections.window.conversation_state import ConversationState
from projections.window.turns import Turns

VERSION = 13
"""Raised whenever windows are stored in another form, or the fold makes something else of the same
events.
"""


class Due(Struct, array_like=True, frozen=True):
    """A span that waits for its summary: first and last offset (both included), why, the offset at
    which it was marked, and what is kept.

    ``kept`` are offsets of entries in between that are not covered.
    """

    first: int
    last: int
    reason: str
    at: int = -1
    kept: tuple[int, ...] = ()


class ActiveSummary(Struct, array_like=True):
    """The accepted summary a window stands on. ``offset`` is the summary event's own, ``to`` the
    last one it covers; ``waited`` is where the latest stands, of this one and those before it, that
    covers a call which may have waited at the end of its span.
    """

    summary_id: str
    offset: int
    text: str
    tokens: int
    to: int
    trust: str
    previous: str | None = None
    previous_offset: int | None = None
    waited: int | None = None


class Quarantine(Struct, array_like=True):
    """At which event a window is quarantined, and what waits behind it
    (``projections.fold.quarantine``).

    ``offset`` is that event's, ``count`` how many later ones wait, ``last`` the latest of them;
    ``waiting`` are the offsets of the first of them, each as the difference to the one before.
    """

    offset: int
    cause: str
    count: int = 0
    last: int = -1
    waiting: list[int] = []


class Counters(Struct, array_like=True):
    """What every store keeps of a window first; :class:`Progress` goes on."""

    version: int
    position: int
    count: int
    digest: bytes
    rollback: int | None
    due: Due | None
    unknown: int
    duplicates: int
    skipped: int
    erased: bool

    @property
    def events(self) -> int:
        """Of how many different events the window is, those that were refused included."""
        return self.count + self.skipped


class Progress(Counters, array_like=True, kw_only=True):
    """How far a window is in its log, and what holds it up.

    ``last`` is the offset of the last event that conditions see (``projections.fold.handlers.
    Handler.visible``); ``turns`` is None where there are none. ``quarantine`` is None for a window
    that folds on. ``memory_users`` are the users (``projections.names.user_tag``) whose long-term
    memory this log has taught, None where it has taught nobody.
    """

    # Keyword-only fields are stored last: subclasses put theirs between the counters and these.
    last: int
    turns: Turns | None
    quarantine: Quarantine | None = None
    memory_users: tuple[str, ...] | None = None


class Meta(Progress, array_like=True):
    """The part of a window that is neither tail nor recent ids: its progress, the state before the
    tail, and the active summary. Its size does not depend on the conversation's length.
    """

    base: ConversationState
    summary: ActiveSummary | None

    @classmethod
    def empty(cls, version: int = VERSION, position: int = -1, *, erased: bool = False) -> Meta:
        """The meta of a window that holds nothing."""
        return cls(
            version,
            position,
            count=0,
            digest=bytes(32),
            rollback=None,
            due=None,
            unknown=0,
            duplicates=0,
            skipped=0,
            erased=erased,
            base=ConversationState(),
            summary=None,
            last=-1,
            turns=None,
        )


PROGRESS = Progress.__struct_fields__
"""The names of the fields that every stored form of a window has."""
