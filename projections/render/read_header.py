"""The read header: what a reader has to know of a window beside its messages, kept ready so that a
read parses no message.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from projections.names import Position
from projections.policy.profiles import Limiting, Shortening
from projections.policy.thresholds import STUB_TOKENS, SUMMARY_MARK
from projections.render.awaits import MODEL, awaits_of, unread_results
from projections.render.trace import steps_of
from projections.window.conversation_state import ConversationState, OpenSuspension
from projections.window.entry import Omitted
from projections.window.meta import ActiveSummary
from projections.window.trace_steps import Step
from projections.window.window import Window

MAX_SUSPENDED = 4_096
"""Characters of open suspensions that a header carries: it is written with every batch, and beyond
that a reader renders the window.
"""
AWAITING_APPROVAL = "awaiting_approval"
AWAITING_INPUT = "awaiting_input"
AWAITING = (AWAITING_APPROVAL, AWAITING_INPUT)
"""The states in which somebody has to act."""
_encode = msgspec.json.Encoder().encode


class ReadHeader(Struct, array_like=True):
    """Derived from a window, see :func:`read_header_of`.

    ``flat``: the render is the system lane, the summary, the pinned results and the tail's messages
    as they stand, within the ceiling, with a line for what is ``omitted``; ``tokens`` are its
    tokens, ``trace`` what was shortened of it. ``awaits`` is who acts next.
    """

    flat: bool
    tokens: int
    budget: int
    ceiling: int
    state: str
    suspensions: list[OpenSuspension]
    guard: dict[str, Any] | None
    trace: list[Step]
    awaits: str
    omitted: Omitted | None = None


def read_header_of(window: Window) -> ReadHeader:
    """The read header of a window as it is now."""
    state, limits, summary = window.state, window.limits, window.meta.summary
    base = window.meta.base
    tokens = state.pinned_tokens + window.tail_tokens
    if summary is not None:
        tokens += summary.tokens + len(SUMMARY_MARK)
    if window.omitted is not None:
        tokens += STUB_TOKENS
    small = (
        sum(len(s.prompt or "") + len(s.suspension_id) for s in state.suspensions) <= MAX_SUSPENDED
    )
    awaits = awaits_of(window)
    flat = (
        window.flat
        and small
        and not (awaits == MODEL and _closes(window))  # a closing message is none of the parts
        and not window.awaited
        and tokens <= limits.ceiling
        # Nothing of the system lane was cut or has left it.
        and len(state.pinned) == len(base.pinned) + window.tail_pinned
        and len(state.pins) == len(base.pins)
        and state.pinned_tokens - state.tools_tokens
        == base.pinned_tokens - base.tools_tokens + window.tail_pinned_tokens
        and not _reduces_on_render(window)
    )
    trace: list[Step] = []
    if flat and (window.gains or state.pins or any(state.pins_lost) or any(state.pinned_lost)):
        lead = len(state.pinned) + (summary is not None) + 2 * len(state.pins)
        lead += window.omitted is not None
        trace = steps_of(window, lead + window.shown_messages, tokens)
    return ReadHeader(
        flat,
        tokens,
        limits.budget,
        limits.ceiling,
        state_of(state),
        state.suspensions if small else [],
        guard_of(window),
        trace,
        awaits,
        window.omitted,
    )


def _closes(window: Window) -> bool:
    """Whether a flat tail needs a closing message: nothing of it is shown, or what is left out has
    a result that the model has not read.
    """
    if not window.shown_messages:
        return True
    return bool(window.gains) and any(result.out for result in unread_results(window))


def _reduces_on_render(window: Window) -> bool:
    """Whether ``exact`` cuts have something to do."""
    policy = window.policy
    if policy.cuts == "stable":
        return False
    return any(isinstance(r, Limiting | Shortening) for r in policy.reducers) or (
        policy.trim_tool_results and window.results > 0
    )


def summary_body(summary: ActiveSummary) -> bytes:
    """The message a summary is given as: marked, and never in the user's role."""
    return _encode({"role": "assistant", "content": SUMMARY_MARK + summary.text})


def omitted_line(omitted: Omitted, partition: int) -> bytes:
    """The message that names what is left out."""
    first, last = Position(partition, omitted.first), Position(partition, omitted.last)
    text = f"[{omitted.count} earlier messages left out: {first} to {last}]"
    return _encode({"role": "system", "content": text})


def lead_of(
    state: ConversationState,
    summary: ActiveSummary | None,
    omitted: Omitted | None,
    partition: int,
) -> list[bytes]:
    """The messages before the tail: system lane, summary, pinned results with their calls; as they
    are stored. Then the line for what is left out.
    """
    bodies = [item.body for item in state.pinned]
    if summary is not None:
        bodies.append(summary_body(summary))
    for pin in state.pins:
        bodies += (pin.call, pin.result)
    if omitted is not None:
        bodies.append(omitted_line(omitted, partition))
    return bodies


def flat_digest(window: Window) -> bytes:
    """The SHA-256 of the rendered messages of a window whose header is flat."""
    return window.rendered_digest(_lead)


def _lead(window: Window) -> list[bytes]:
    return lead_of(window.state, window.meta.summary, window.omitted, window.partition)


def state_of(state: ConversationState) -> str:
    """``closed`` | ``idle`` | ``awaiting_approval`` (an approval is open) | ``awaiting_input``
    (something else is suspended, or the last turn ended) | ``active``.
    """
    if state.closed is not None:
        return "idle" if state.closed == "idle" else "closed"
    if state.suspensions:
        approval = any(suspension.kind == "approval" for suspension in state.suspensions)
        return AWAITING_APPROVAL if approval else AWAITING_INPUT
    return AWAITING_INPUT if state.turn_ended else "active"


def guard_of(window: Window) -> dict[str, Any] | None:
    """The same call made too often in a row, as ``loop.detected`` tells it, or None."""
    run, most = window.state.run, window.policy.loop_guard
    if run is not None and most and run.count >= most:
        return {"tool": run.tool, "arguments_sha256": run.sha.hex(), "count": run.count}
    return window.state.loop
