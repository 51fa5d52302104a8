"""How a render is fitted to a limit: what it gives up, step by step, when it is over its limit.

1. Older groups, the oldest first, make way for one line with their positions. The newest user
   message, groups that wait for somebody, those with a result that the model has not read, and the
   last group stay.
2. Tool results, the oldest first, are shortened to stubs.
3. Pinned results are shortened too, and unread ones go, but for the last group's.
4. At last the system lane goes but its newest message, and the text of the messages that are left
   is cut evenly.

What still does not fit is refused, with the sizes. Each step goes once over the parts: a count of
the whole after each change would take seconds in a window of thousands of messages.

The fold's own cuts keep a window under the ceiling; this is for one reader's own limit
(``max_tokens``), and for what cuts must not touch.
"""

from __future__ import annotations

from collections.abc import Callable

from projections.errors import ThreadfoldError
from projections.policy.thresholds import STUB_TOKENS
from projections.reducers.reduction import newest, unread
from projections.reducers.variants import Variants
from projections.render.parts import Parts, tokens_of
from projections.window.entry import LEFT_OUT, Entry, hides
from projections.window.groups import Group
from projections.window.trace_steps import Step
from projections.window.truncation import clip

LEAST = 160
"""Tokens that a message is shortened to at least."""


class DoesNotFit(ThreadfoldError):
    """What must not be left out is larger than the limit."""

    problem = 422


def fit_to_limit(parts: Parts, limit: int, trace: list[Step]) -> None:
    """Shorten the parts until they have at most ``limit`` tokens; each step goes into the trace.

    Raises:
        DoesNotFit: that cannot be done.
    """
    sizes = _sizes(parts)
    for name, shorten in STEPS:
        messages, tokens = parts.messages, parts.tokens
        shorten(parts, limit)
        if (parts.messages, parts.tokens) != (messages, tokens):
            trace.append(Step(name, messages, parts.messages, tokens, parts.tokens))
        if parts.tokens <= limit:
            return
    raise DoesNotFit(
        f"the window cannot be rendered: {sizes}; shortened as far as possible it takes"
        f" {parts.tokens}, and may take {limit}"
    )


def _sizes(parts: Parts) -> str:
    summary = parts.window.meta.summary
    system = parts.window.state.tools_tokens + sum(tokens for _, tokens, _ in parts.system)
    last = sum(tokens_of(group) for group in newest(parts.groups))
    return (
        f"system lane and tools take {system} tokens, the summary"
        f" {summary.tokens if summary else 0}, the newest messages {last}"
    )


def _leave_out_groups(parts: Parts, limit: int, *, pinned: bool = False) -> None:
    before, groups = parts.tokens, parts.groups
    stub, closing = parts.stub, parts.closing
    stays, fresh = {id(group) for group in newest(groups)}, {id(group) for group in unread(groups)}
    if not pinned:
        stays |= fresh
    tokens, kept, stale = before - len(closing or b""), list[Group](), False
    for i, group in enumerate(groups):
        if stale and tokens <= limit:
            parts.groups, stale = [*kept, *groups[i:]], False
            parts.close()
        if tokens + len(parts.closing or b"") <= limit:
            kept += groups[i:]
            break
        if (
            id(group) in stays
            or group.waits(parts.suspended)
            or not (pinned or not any(result.pinned for result in group.results.values()))
        ):
            kept.append(group)
            continue
        tokens -= tokens_of(group) - (0 if parts.stub else STUB_TOKENS)
        shown = (group.head, *(group.results.get(i) for i in group.shown_calls()))
        parts.omit(entry for entry in shown if entry and not hides(entry.variant))
        # The last message says where its results stand.
        stale = stale or id(group) in fresh
    parts.groups = kept
    if stale:
        parts.close()
    if parts.tokens >= before:
        # The line that names them takes more than they did.
        parts.groups, parts.stub, parts.closing = groups, stub, closing


def _shorten_results(parts: Parts, limit: int, *, pinned: bool = False) -> None:
    """Results before the last group become stubs, the oldest first; those of the last group are
    clipped to the room there is.
    """
    variants = Variants.of(parts.window)
    parts.groups = [group.copy() for group in parts.groups]
    over = parts.tokens - limit
    for group in parts.groups[:-1]:
        for i in group.shown_calls():
            result = group.results.get(i)
            if over <= 0:
                return
            if result is not None and result.pinned == pinned:
                over -= _clear(variants, group, i, result)
    last = parts.groups[-1] if parts.groups else None
    if last is not None and not pinned:
        _clip_evenly(
            parts, limit, [last.results[i] for i in last.shown_calls() if i in last.results]
        )


def _clear(variants: Variants, group: Group, index: int, result: Entry) -> int:
    """Make a result a stub if that is shorter; returns the tokens that this saved."""
    tool = (group.head.calls or ())[index][1]
    body, _ = variants.make(result.body, "clear", result, tool)
    tokens, before = variants.tokens(body), result.tokens
    if tokens >= before:
        return 0
    result.put_body(body, tokens)
    return before - tokens


def _drop_pinned(parts: Parts, limit: int) -> None:
    gone = _oldest([pin.tokens for pin in parts.pins], parts.tokens - limit)
    del parts.pins[:gone]
    _shorten_results(parts, limit, pinned=True)
    _leave_out_groups(parts, limit, pinned=True)


def _drop_system(parts: Parts, limit: int) -> None:
    tokens = [tokens for _, tokens, _ in parts.system[:-1]]
    del parts.system[: _oldest(tokens, parts.tokens - limit)]


def _oldest(sizes: list[int], over: int) -> int:
    """How many of the first have together ``over`` or more; all if they have less."""
    for count, size in enumerate(sizes):
        if over <= 0:
            return count
        over -= size
    return len(sizes)


def _clip_newest(parts: Parts, limit: int) -> None:
    parts.groups = [group.copy() for group in parts.groups]
    _clip_evenly(
        parts,
        limit,
        [
            e
            for g in parts.groups
            for e in [g.head, *(g.results[i] for i in g.shown_calls() if i in g.results)]
        ],
    )


def _clip_evenly(parts: Parts, limit: int, entries: list[Entry]) -> None:
    """Shorten messages: each to the same share of the room, those that are shorter leaving theirs
    to the others.
    """
    if parts.tokens <= limit:
        return
    room = limit - (parts.tokens - sum(entry.tokens for entry in entries))
    for i, entry in enumerate(sorted(entries, key=lambda e: e.tokens)):
        share = max(LEAST, room // (len(entries) - i))
        if entry.tokens > share:
            tokens, body = clip(entry.body, entry.tokens, share)
            entry.put_body(body, tokens)
        room -= entry.tokens


STEPS: tuple[tuple[str, Callable[[Parts, int], None]], ...] = (
    (LEFT_OUT, _leave_out_groups),
    ("shorten_tool_results", _shorten_results),
    ("drop_pinned_results", _drop_pinned),
    ("cut_system_text", _drop_system),
    ("clip_newest", _clip_newest),
)
