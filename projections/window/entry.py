"""Entries: what a window keeps of one event of its tail, or of one range of events.

An entry records how it was shortened as a list of *variants*. A variant is
``(offset of the event at which it was cut, name, tokens)``. ``projections.reducers.variants`` lists
the names and makes the bodies; here stands what follows from a name alone.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache

from msgspec import Struct

from projections.events import types as events

EARLY = (-1, 0)
"""The link of a result whose call has not come yet."""
AT_ONCE = -1
"""The cut of what came too large to be kept whole at all."""
LEFT_OUT = "leave_out_oldest"
"""The reducer of what a tail over its limit leaves out: one line of the render names it."""

CLOSED = "session_closed"
"""The reducer of what a closed session empties its tail of."""

Call = tuple[str, str, bytes]
"""A call as entries keep it: its id, the tool's name, and the SHA-256 of the tool with its
canonical arguments.
"""
Variant = tuple[int, str, int]
"""A shortening of an entry: the offset of the event at which it was cut, its name, its tokens
since.
"""


class Kind(IntEnum):
    """What an entry is. The first three are rendered; a range stands for events that only the log
    still holds.

    ``TURN_TAKEN`` is the begin of a turn that ended the one before, ``TURN_PASSED`` the end of one
    that put the next in force.
    """

    USER = 1
    ASSISTANT = 2
    RESULT = 3
    SYSTEM = 4
    OPENED = 5
    SUSPENSION = 6
    RESOLUTION = 7
    TURN_STARTED = 8
    TURN_ENDED = 9
    CLOSED = 10
    LOOP = 11
    NOTE = 12
    HELD = 13
    ABANDONED = 14
    TURN_TAKEN = 15
    TURN_PASSED = 16
    COMPACT = 17


RENDERED = frozenset({Kind.USER, Kind.ASSISTANT, Kind.RESULT})
LAST_RENDERED = int(Kind.RESULT)
"""Rendered kinds are the numbers up to this one."""
MESSAGES = frozenset({Kind.USER, Kind.ASSISTANT})
RANGES = frozenset({Kind.HELD, Kind.ABANDONED})


class Details(Struct, array_like=True, omit_defaults=True, gc=False, kw_only=True):
    """What only some entries have; :class:`Entry` describes the fields. Chunks store it apart."""

    calls: tuple[Call, ...] | None = None
    link: tuple[int, int] | None = None
    first: int = -1
    count: int = 1
    positions: list[int] | None = None
    variants: tuple[Variant, ...] = ()
    full: int = 0
    chars: int = 0
    pinned: bool = False
    reasoning: bytes = b""
    error: bool = False
    sent_id: str = ""
    usage_excess: int | None = None
    gone: list[int] | None = None
    voids: list[tuple[int, int]] | None = None


class Entry(Details, array_like=True, omit_defaults=True, gc=False):
    """One event (or one range of events) in the tail.

    ``body`` is the OpenAI-format message for rendered kinds, the event's ``data`` for the others,
    empty for a note and for what is left out. ``tokens`` are those of the body as it stands.
    ``calls`` are an assistant message's calls; ``link`` is a result's call as ``(offset, index)``,
    None for an orphan, :data:`EARLY` for one whose call may still come. For a range
    ``first``..``offset`` are its bounds, ``count`` its events, ``positions`` their offsets as
    differences, where still known, and ``gone`` those of them that say nothing in the window any
    more (a rollback abandoned them, a condition refused them, an operator took them out); ``voids``
    are the bounds of what was abandoned without its offsets being known.

    ``variants`` are the shortenings it went through, the last one in force, and ``full`` its tokens
    and ``chars`` the length of a result's text before them. ``reasoning`` are a message's reasoning
    parts as JSON, ``error`` says that a result is one, ``sent_id`` under which id its call is sent,
    if another than its own. ``usage_excess`` is by how many tokens the usage that a model reported
    with this message exceeded what was counted here.
    """

    # In the stored array these come first: the keyword-only fields of the base class follow.
    offset: int
    kind: int
    tokens: int = 0
    body: bytes = b""

    @property
    def start(self) -> int:
        """The offset of its first event."""
        return self.offset if self.first < 0 else self.first

    @property
    def variant(self) -> str:
        """The shortening in force, empty for none."""
        return self.variants[-1][1] if self.variants else ""

    @property
    def out(self) -> bool:
        """Whether it is left out of renders."""
        return bool(self.variants) and self.variants[-1][1].startswith("out:")

    def offsets(self) -> list[int] | None:
        """The offsets of its events, None where only the bounds of its range are known."""
        if self.kind not in RANGES:
            return [self.offset]
        return None if self.positions is None else events.absolute(self.positions)

    def shown_calls(self) -> list[int]:
        """The indexes of the calls that its message has as it stands."""
        return shown_calls(self.variants, len(self.calls or ()))

    def shorten(self, at: int, variant: str, body: bytes, tokens: int, chars: int = 0) -> None:
        """Put another variant in force, made by the event at ``at``; ``chars`` is the length of the
        result's whole text.
        """
        self.full = self.full if self.variants else self.tokens
        self.chars = self.chars or chars
        self.variants = (*self.variants, (at, variant, tokens))
        self.tokens, self.body = tokens, body
        if variant.startswith(("out:", "pair:")):
            self.reasoning = b""

    def put_text(self, body: bytes, chars: int, reasoning: bytes) -> None:
        """Put the text of the variant in force in place; ``chars`` as in :meth:`shorten`."""
        self.body, self.chars, self.reasoning = body, self.chars or chars, reasoning

    def put_body(self, body: bytes, tokens: int) -> None:
        """Put another body in place, for one render only: no variant records it."""
        self.body, self.tokens = body, tokens


class Omitted(Struct, array_like=True, frozen=True):
    """Older messages that no render shows: how many, and the offsets of the first and the last."""

    count: int
    first: int
    last: int

    def and_(self, more: Omitted) -> Omitted:
        """These and others."""
        return Omitted(
            self.count + more.count, min(self.first, more.first), max(self.last, more.last)
        )


_OMITTING = frozenset(
    f"out:{name}" for name in ("keep_last_n_turns", "keep_last_n_messages", CLOSED, LEFT_OUT)
)


def omits(variant: str) -> bool:
    """Whether a variant leaves a message out for its age: a render says that there was one.

    Tool calls that a reducer drops get no variant: what was said about them stays.
    """
    return variant in _OMITTING


@lru_cache(1024)
def hides(variant: str) -> bool:
    """Whether a variant hides some of a message for its age: all of it, or all but the calls of its
    pinned results.
    """
    return omits(variant) or (variant.startswith("pair:") and omits(f"out:{reducer_of(variant)}"))


def shown_calls(variants: tuple[Variant, ...], count: int) -> list[int]:
    """Which of a message's ``count`` calls it still has after these variants, by index."""
    if variants:
        name = variants[-1][1]
        if name.startswith(("only:", "pair:")):
            return calls_named(name)
        if name.startswith("out:"):
            return []
    return list(range(count))


def calls_named(variant: str) -> list[int]:
    """The indexes of calls in the name of a variant, as in ``only:0,2``."""
    return list(_calls_named(variant))


@lru_cache(1024)
def _calls_named(variant: str) -> tuple[int, ...]:
    return tuple(int(i) for i in variant.split(":")[1].split(",") if i)


def reducer_of(variant: str) -> str:
    """The reducer that a variant is of, as the trace names it."""
    name, _, arg = variant.partition(":")
    if name in ("out", "pair"):
        return arg if name == "out" else arg.partition(":")[2]
    return _REDUCERS[name]


_REDUCERS = {
    "spill": "spill",
    "clip": "clip_oversized",
    "soft": "soft_trim",
    "clear": "hard_clear",
    "head": "summarize_tool_results",
    "text": "compact_tool_results",
    "call": "compact_tool_results",
    "only": "compact_tool_results",
}
