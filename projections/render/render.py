"""Rendering: the messages a model is sent, from a window, always valid and never above the ceiling.

System lane, then the summary (marked as one, never in the user's role), pinned results with their
calls, then the tail in groups. What the fold left out of the tail stands as one line with its
positions. Where the whole is too long still, ``projections.render.fit_to_limit`` goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from projections.policy.policy import Policy
from projections.reducers.reduction import Reduction
from projections.reducers.variants import Variants
from projections.render.fit_to_limit import fit_to_limit
from projections.render.parts import Parts, Render, parts_of
from projections.render.trace import steps_of
from projections.window.entry import Entry, hides
from projections.window.groups import ANSWER_TOKENS, group_tail
from projections.window.trace_steps import Step
from projections.window.window import Window


def render_openai(window: Window, max_tokens: int | None = None) -> Render:
    """Render in OpenAI's chat format within the policy's ceiling (or ``max_tokens``, where that is
    less).

    Raises:
        DoesNotFit: what must not be left out is larger than that.
    """
    parts, trace, made = shortened_parts(window, max_tokens)
    render = parts.rendered(trace)
    render.made = made
    return render


def shortened_parts(
    window: Window, max_tokens: int | None = None
) -> tuple[Parts, list[Step], list[Step]]:
    """The parts of the render that :func:`render_openai` makes, its trace, and the steps of the
    trace that were made for this render; raises like it.
    """
    limit = window.policy.ceiling if max_tokens is None else min(max_tokens, window.policy.ceiling)
    parts = parts_of(window)
    pairing = _pairing(window, parts)
    # What the fold shortened came before the pairing: its steps end where that begins.
    messages, tokens = (
        (parts.messages, parts.tokens)
        if pairing is None
        else (pairing.messages_before, pairing.tokens_before)
    )
    trace = steps_of(window, messages, tokens) + ([] if pairing is None else [pairing])
    before = len(trace)
    if window.policy.cuts == "exact":
        _reduce(parts, window.policy, trace)
    if parts.tokens > limit:
        fit_to_limit(parts, limit, trace)
    return parts, trace, trace[before:]


def _pairing(window: Window, parts: Parts) -> Step | None:
    """Calls that are answered here, and results without a call; None where there is neither."""
    answered = sum(len(group.unanswered()) for group in parts.groups)
    orphans = [group for group in group_tail(window.tail) if group.orphan and not group.out]
    if not answered and not orphans:
        return None
    messages, tokens = parts.messages, parts.tokens
    before = tokens - answered * ANSWER_TOKENS + sum(group.head.tokens for group in orphans)
    return Step("pairing", messages - answered + len(orphans), messages, before, tokens)


def _reduce(parts: Parts, policy: Policy, trace: list[Step]) -> None:
    """``exact`` cuts: the reducers on every render, on copies of what the window keeps."""
    window = parts.window
    parts.groups = [group.copy() for group in parts.groups]
    run = Reduction(
        parts.groups,
        policy,
        Variants.of(window),
        window.meta.position,
        window.state.waiting(),
        exact=True,
    )
    steps = [("trim_tool_results", run.trim)] if policy.trim_tool_results else []
    steps += [
        (str(type(reducer).__struct_config__.tag), partial(run.run, reducer))
        for reducer in policy.reducers
    ]
    for name, apply in steps:
        messages, tokens = parts.messages, parts.tokens
        shown = [entry for entry in _entries(parts) if not hides(entry.variant)]
        apply()
        parts.omit(entry for entry in shown if hides(entry.variant))
        parts.groups[:] = [group for group in parts.groups if group.messages()]
        parts.close()
        if (parts.messages, parts.tokens) != (messages, tokens):
            trace.append(Step(name, messages, parts.messages, tokens, parts.tokens))


def _entries(parts: Parts) -> Iterator[Entry]:
    return (entry for group in parts.groups for entry in group.entries)
