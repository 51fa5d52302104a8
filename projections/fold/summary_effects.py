"""Activating a summary, and undoing reductions."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from projections.events import types as events
from projections.fold.append import refold
from projections.fold.known_events import KnownEvents
from projections.fold.rehydration import has_text, refill, tools_of
from projections.fold.summary_acceptance import drop_span
from projections.fold.summary_length import fit_summary
from projections.names import parse_position
from projections.reducers.variants import Variants
from projections.window.entry import RANGES
from projections.window.meta import ActiveSummary
from projections.window.trace_steps import Step
from projections.window.window import Window


def made_since(window: Window, at: int, after: int, kept: Collection[int] = ()) -> tuple[int, ...]:
    """The offsets of entries beyond ``after``, and of ``kept`` ones, that were shortened by cuts at
    events later than ``at``.
    """
    shaped = [
        e
        for e in window.tail
        if e.variants and (e.offset > after or e.offset in kept) and e.kind not in RANGES
    ]
    return tuple(e.offset for e in shaped if e.variants[-1][0] > at)


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
    not have been made. Raises ``NotRead`` as :func:`undo_reductions`.
    """
    messages, in_tail = window.shown_messages, window.tail_tokens
    last = parse_position(data.span.to).offset
    due = window.meta.due
    kept = set(events.absolute(data.span.kept))
    undo_reductions(window, due.at if due else offset, last, texts, kept)
    drop_span(window, last, data.span.count, kept)
    summary = active_summary(window, data, offset, tokens)
    window.activate_summary(summary)
    refold(window, due.at if due else offset)
    window.note_cut(
        offset,
        in_tail,
        [Step("summarize", messages, window.shown_messages, in_tail, window.tail_tokens)],
    )
    return summary


def undo_reductions(
    window: Window,
    at: int,
    after: int,
    texts: KnownEvents,
    kept: Collection[int] = (),
) -> None:
    """Undo what :func:`made_since` finds; entries whose events the log has lost stay as they are.

    Raises:
        NotRead: events of theirs are needed. Nothing is undone.
    """
    found = texts.of(set(made_since(window, at, after, kept)))
    tools = tools_of(window.tail) if found else {}
    for i, entry in enumerate(window.tail):
        event = found.get(entry.offset)
        if event is None:
            continue
        variants = tuple(variant for variant in entry.variants if variant[0] <= at)
        whole = msgspec.structs.replace(
            entry,
            variants=variants,
            tokens=variants[-1][2] if variants else entry.full,
            full=entry.full if variants else 0,
            chars=entry.chars if variants else 0,
        )
        if has_text(whole):
            refill(whole, event, Variants.of(window), tools)
        window.replace_entry(i, whole)
