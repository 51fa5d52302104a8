"""A window for people as a document: its render message by message, and how it stands.

Another process makes it of windows as they were: this module imports little, so that it starts
soon.
"""

from __future__ import annotations

from typing import Any

from projections.fold.quarantine import quarantine_of
from projections.formats.context_document import summary_of, suspension_of
from projections.render.inspection import inspect
from projections.render.read_header import guard_of, state_of
from projections.window.window import Window
from streams.compaction.requests import policy_version
from threadfold.service import past_windows as past_windows


def prepare() -> None:
    """Called first in a process: what this module imports, the fold with it, is there before the
    process's priority is lowered. On a busy machine that would take many times as long.
    """


def past_document(window: Window, at: str) -> dict[str, Any] | None:
    """The document of a window as it was at a position; None if it has no event."""
    return None if window.meta.position < 0 else window_document(window, at)


def window_document(window: Window, at: str | None = None) -> dict[str, Any]:
    """The document of a window; ``at`` is the position that was asked for.

    Raises:
        DoesNotFit: the window cannot be rendered.
    """
    meta, found = window.meta, inspect(window)
    document = {
        "at": at,
        "position": window.position_of(meta.position) if meta.position >= 0 else None,
        "count": meta.count,
        "digest": meta.digest.hex(),
        "render_digest": found.render.digest,
        "tokens": found.render.tokens,
        "tools_tokens": window.state.tools_tokens,
        "budget": window.limits.budget,
        "ceiling": window.limits.ceiling,
        "state": state_of(window.state),
        "policy": policy_version(window.policy),
        "guard": guard_of(window),
        "summary": None if meta.summary is None else summary_of(window.partition, meta.summary),
        "suspensions": [suspension_of(window.partition, s) for s in window.state.suspensions],
        "trace": [step.to_dict() for step in found.render.trace],
        "messages": found.items,
        "left_out": found.left_out,
    }
    if meta.quarantine is not None:
        document["parked"] = quarantine_of(window.partition, meta.quarantine)
    return document
