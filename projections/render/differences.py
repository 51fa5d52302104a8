"""Comparing two folds of one conversation: what a model would be sent under one policy and under
another.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from itertools import groupby
from math import inf
from typing import Any, NamedTuple

import msgspec

from projections.render.fit_to_limit import DoesNotFit
from projections.render.render import render_openai
from projections.window.conversation_state import ConversationState
from projections.window.entry import RENDERED, Kind
from projections.window.truncation import is_clipped
from projections.window.window import Window

MOST_LINES = 24
WIDTH = 160
"""Lines of one diff, and characters of a message's line, that are shown."""
GONE = "the log does not hold all its events"
LANE_CUT = "its pinned lane is cut: less may be pinned (`pinned_max_tokens`)"
NEVER = sys.maxsize
"""The first event of a window without any."""
HEAD, FOOT = 3, 2
"""Lines shown of a longer run, at its begin and at its end."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is compared of a window: its stored content, what it renders to, and what is asked for
    in it.

    ``tokens`` is None, and ``bodies`` is empty, where what must not be left out is over the
    ceiling. ``bodies`` are messages in OpenAI's format as JSON; ``due`` tells whether a summary is
    asked for, ``summary`` is the id of the one in force. ``left_out`` is of how many older messages
    a line tells.
    """

    image: bytes
    tokens: int | None
    bodies: tuple[bytes, ...]
    due: bool
    summary: str | None
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Difference:
    """Whether two folds differ: in what is stored, and in the messages a model is sent."""

    window: bool
    render: bool


def seen(window: Window) -> Seen:
    """Look at a window."""
    try:
        render = render_openai(window)
        tokens, bodies, omitted = render.tokens, tuple(render.bodies), render.omitted
    except DoesNotFit:
        tokens, bodies, omitted = None, (), window.omitted
    summary = window.meta.summary
    return Seen(
        window.image(),
        tokens,
        bodies,
        window.meta.due is not None,
        summary.summary_id if summary else None,
        omitted.count if omitted else 0,
    )


def difference(before: Seen, after: Seen) -> Difference:
    """Compare two looks at one conversation, folded up to the same event."""
    render = (before.tokens is None) != (after.tokens is None) or before.bodies != after.bodies
    return Difference(before.image != after.image, render)


class Past(NamedTuple):
    """What a fold holds of the past.

    ``reach`` is the last offset that its summary covers. ``events`` counts its different events,
    refused ones included. ``lane`` has the bytes of each message that its pinned lane holds, by its
    offset: infinity if none are cut; ``pinned`` has those that are left once its tail's have come
    to the lane. Of both ``results`` are tool results. Its first event is at ``first``, or earlier
    if ``older``.
    """

    reach: int
    events: int
    lane: Mapping[int, float]
    pinned: Mapping[int, float]
    results: frozenset[int]
    first: int = NEVER
    older: bool = False


def past_of(window: Window) -> Past:
    """What a window holds of the past."""
    state = window.when_tail_left()
    ids, lane, pinned = window.recent_ids, pinned_of(window.state), pinned_of(state)
    older = ids.added > len(ids)
    first = NEVER if ids.first is None else ids.first
    if older:
        first = min([first - 1, *lane, *pinned])
    results = results_of(window.state) | results_of(state)
    return Past(window.covered_to, window.meta.events, lane, pinned, results, first, older)


def pinned_of(state: ConversationState) -> dict[int, float]:
    """What is pinned in a state, as in :class:`Past`."""
    texts = {p.offset: float(len(p.body)) if is_clipped(p.body) else inf for p in state.pinned}
    return texts | dict.fromkeys((pin.offset for pin in state.pins), inf)


def results_of(state: ConversationState) -> frozenset[int]:
    """The offsets of the tool results that are pinned in a state."""
    return frozenset(pin.offset for pin in state.pins)


def covers(after: Mapping[int, float], before: Mapping[int, float]) -> bool:
    """Whether all that was pinned still is, as much of it as was."""
    return not _unpinned(after, before)


def _unpinned(after: Mapping[int, float], before: Mapping[int, float]) -> list[int]:
    """The offsets of what was pinned and is not any more, or less of it."""
    return [offset for offset, size in before.items() if after.get(offset, -1) < size]


def why_lost(before: Past, after: Window, begin: int = 0) -> str | None:
    """Why a fold lacks what another one's window holds; None where it lacks nothing.

    It is of fewer events, because the log lost the first ones, or an event parks it; or it pins
    less; or its summary reaches less far, and a message up to where the other's reaches is not
    shown. ``after`` is folded as far or further.

    Args:
        begin: the offset of the log's first event in their partition. A fold that lacks the events
            before it lacks them whatever the rules are. Counts do not tell it where the other
            window is parked: what waits there is not counted.
    """
    if after.meta.erased:
        return None
    its, parked = past_of(after), after.meta.quarantine
    lacks = before.first < begin
    if lacks and before.first < its.first and not its.older:
        return lost_beginning(begin)
    cut_off = 0 < begin <= its.first
    if its.events < before.events:
        if parked is not None:
            return f"it would be parked at {after.position_of(parked.offset)}: {parked.cause}"
        return lost_beginning(begin) if cut_off and (lacks or before.older) else GONE
    why = _why_less(before, after)
    return lost_beginning(begin) if why and cut_off and lacks else why


def lost_beginning(begin: int) -> str:
    """The reason where the log has lost the first events of a conversation."""
    return f"the log has lost its events before offset {begin}"


def why_unpinned(before: Past, after: Window) -> str | None:
    """Why a fold of as many events pins less, now or once what is in the tails has left them; None
    where it does not.

    The lane's limit takes results, the oldest first, and texts: those in the tail once they leave
    it. A result is not pinned either where its call is not shown any more when it comes.
    """
    state = after.when_tail_left()
    lost = {
        *_unpinned(pinned_of(after.state) | _pinned_in_tail(after), before.lane),
        *_unpinned(pinned_of(state), before.pinned),
    }
    if not lost:
        return None
    if any(offset not in before.results or _lost_pin(state, offset) for offset in lost):
        return LANE_CUT
    return (
        f"the call of its pinned result at {after.position_of(min(lost))} had left the new window"
        " before the result came"
    )


def _pinned_in_tail(window: Window) -> dict[int, float]:
    """The pinned results that a window shows because its tail still has them."""
    calls = {entry.offset for entry in window.tail if entry.calls and not entry.out}
    return {
        entry.offset: inf
        for entry in window.tail
        if entry.pinned and not entry.out and entry.link and entry.link[0] in calls
    }


def _lost_pin(state: ConversationState, offset: int) -> bool:
    """Whether the lane's limit may have taken this result: then no older one is there."""
    return state.pins_lost[0] > 0 and not (state.pins and state.pins[0].offset < offset)


def _why_less(before: Past, after: Window) -> str | None:
    """Why a fold of as many events pins or summarises less; None where it does not."""
    if why := why_unpinned(before, after):
        return why
    if after.covered_to >= before.reach:
        return None
    try:
        shown = set(render_openai(after).offsets)
    except DoesNotFit:
        shown = set()
    hidden = any(
        entry.kind == Kind.HELD or (entry.kind in RENDERED and entry.offset not in shown)
        for entry in after.tail
        if after.covered_to < entry.offset and entry.start <= before.reach
    )
    return "its summaries are refused" if hidden else None


def diff_lines(before: Seen, after: Seen, most: int = MOST_LINES, width: int = WIDTH) -> list[str]:
    """A unified diff of the rendered messages, a line each, shortened: at most ``most`` lines, and
    one that says how many are left out.
    """
    old, new = ([_line(body, width) for body in side.bodies] for side in (before, after))
    # Its first two lines would name files.
    lines = _short_runs(list(unified_diff(old, new, n=1, lineterm=""))[2:])
    if not lines and before.bodies != after.bodies:
        lines = ["  (the messages differ beyond what is shown of them)"]
    return lines if len(lines) <= most else [*lines[:most], f"  ({len(lines) - most} more lines)"]


def _short_runs(lines: list[str]) -> list[str]:
    """Long runs of lines that only came or only went: their first ones and their last ones say
    enough.
    """
    found: list[str] = []
    for _, run in groupby(lines, lambda line: line[0]):
        part = list(run)
        left = len(part) - HEAD - FOOT
        found += (
            part if left <= 1 else [*part[:HEAD], f"{part[0][0]}  ({left} more)", *part[-FOOT:]]
        )
    return found


def spread(values: Sequence[int]) -> dict[str, int]:
    """Sum, median, 95th percentile (nearest rank) and maximum; zeros for nothing."""
    ranked = sorted(values)
    if not ranked:
        return {"sum": 0, "p50": 0, "p95": 0, "max": 0}
    return {
        "sum": sum(ranked),
        "p50": _rank(ranked, 50),
        "p95": _rank(ranked, 95),
        "max": ranked[-1],
    }


def _rank(ranked: list[int], percent: int) -> int:
    return ranked[max(0, -(-len(ranked) * percent // 100) - 1)]


def _line(body: bytes, width: int) -> str:
    """A message on one line: its role, its text, the names of its calls."""
    message: dict[str, Any] = msgspec.json.decode(body)
    text = " ".join(text_of(message.get("content")).split())
    calls = "".join(
        f" [calls {call.get('function', {}).get('name', '?')}]"
        for call in message.get("tool_calls") or ()
    )
    line = f"{message.get('role', '?')}: {text}{calls}"
    return line if len(line) <= width else f"{line[: width - 1]}…"


def text_of(content: object) -> str:
    """The text of a message's content; parts that are no text are named."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return " ".join(
            str(part.get("text") or f"[{part.get('type', '?')}]")
            for part in content
            if isinstance(part, dict)
        )
    return ""
