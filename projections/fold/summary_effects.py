"""Activating a summary."""

from __future__ import annotations

from projections.events import types as events
from projections.fold.append import refold
from projections.fold.known_events import KnownEvents
from projections.fold.summary_acceptance import drop_span
from projections.fold.summary_length import fit_summary
from projections.fold.undone_cuts import made_since, replace_entries, undone
from projections.names import parse_position
from projections.window.meta import ActiveSummary
from projections.window.trace_steps import Step
from projections.window.window import Window


def active_summary(window: Window, data: events.Summary, offset: int, tokens: int) -> ActiveSummary:
    """What a window keeps of a summary that it takes: as much of its text as the policy allows. Its
    predecessor is the one it names, or it would not be taken.
    """
    policy = window.policy
    text, tokens = fit_summary(
        data.text,
        tokens,
        policy.summary_max_tokens,
        policy.encoding,
        window.position_of(offset),
    )
    return ActiveSummary(
        summary_id=data.summary_id,
        offset=offset,
        text=text,
        tokens=tokens,
        to=parse_position(data.span.to).offset,
        trust=data.trust,
        previous=data.previous,
        previous_offset=None
        if data.previous_position is None
        else parse_position(data.previous_position).offset,
    )


def accept_summary(
    window: Window,
    offset: int,
    data: events.Summary,
    tokens: int,
    texts: KnownEvents,
) -> ActiveSummary:
    """Activate a summary: its span leaves the tail, and cuts are made again over what follows.

    Shortenings made since it was found to be due are taken back: had it come at once, they would
    not have been made. Raises ``NotRead`` as ``undone``, before it changes
    anything.
    """
    messages, in_tail = window.shown_messages, window.tail_tokens
    last = parse_position(data.span.to).offset
    due = window.meta.due
    kept = set(events.absolute(data.span.kept))
    at = due.at if due else offset
    replace_entries(window, undone(window, made_since(window, at, last, kept), at, texts))
    drop_span(window, last, data.span.count, kept)
    summary = active_summary(window, data, offset, tokens)
    window.activate_summary(summary)
    refold(window, at)
    window.note_cut(
        offset,
        in_tail,
        [Step("summarize", messages, window.shown_messages, in_tail, window.tail_tokens)],
    )
    return summary
