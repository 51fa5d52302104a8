"""The view: what a reader has to know of a window beside its messages, kept ready so that a read parses no message."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from projections.lanes import Lanes, OpenSuspension
from projections.window import Window

SUMMARY_MARK = "[Summary of the earlier conversation]\n"


class View(Struct, array_like=True):
    """Derived from a window, see :func:`view_of`.

    ``flat``: the render is the system lane, the summary and the tail's messages as they stand, within the ceiling; ``tokens`` are its
    tokens. ``pinned`` messages of the system lane are in the tail.
    """

    flat: bool
    tokens: int
    pinned: int
    budget: int
    ceiling: int
    state: str
    suspensions: list[OpenSuspension]
    guard: dict[str, Any] | None


def view_of(window: Window) -> View:
    """The view of a window as it is now."""
    lanes, limits, summary = window.lanes, window.limits, window.meta.summary
    base = window.meta.base
    tokens = lanes.pinned_tokens + window.tail_tokens
    if summary is not None:
        tokens += summary.tokens + len(SUMMARY_MARK)
    flat = (
        window.flat
        and not window.awaited
        and tokens <= limits.ceiling
        # Nothing of the system lane was cut or has left it.
        and len(lanes.pinned) == len(base.pinned) + window.tail_pinned
        and lanes.pinned_tokens - lanes.tools_tokens == base.pinned_tokens - base.tools_tokens + window.tail_pinned_tokens
    )
    return View(flat, tokens, window.tail_pinned, limits.budget, limits.ceiling, state_of(lanes), lanes.suspensions, lanes.loop)


def state_of(lanes: Lanes) -> str:
    """``closed`` | ``idle`` | ``awaiting_input`` (something is suspended, or the last turn ended) | ``active``."""
    if lanes.closed is not None:
        return "idle" if lanes.closed == "idle" else "closed"
    return "awaiting_input" if lanes.suspensions or lanes.turn_ended else "active"
