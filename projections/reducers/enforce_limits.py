"""Cuts: the moments at which shortenings take effect in ``stable`` mode, and a summary is found to
be due.

After each entry :func:`enforce_limits` looks at the tail as it stands after it, and at nothing
later, so a fold that goes back to an earlier entry is the same fold, stopped there. In this order:

1. a limit of turns or messages is passed: what is beyond leaves, down to the low-water mark;
2. a closed session empties a ``sliding`` tail; a summary that was asked for
  (``compaction.requested``) is due;
3. the token mark is passed: where the free shortenings bring the tail down to the low-water mark
   they are made, else a summary is due, and where none can be asked for they are made for what they
   save; (as well as when a summary is accepted: ``projections.fold.append.fold_again``);
4. the tail is over what may be held (twice the budget, or the room under the ceiling): tool results
   are shortened, then the oldest groups are left out, down to the low-water mark.

Readers therefore never wait for a summariser, and between cuts a render only grows at its end.
Shortenings made while a summary is due are taken back when it is accepted
(``projections.fold.summary_effects``), so that it makes no difference how late it came.
"""

from __future__ import annotations

import msgspec

from projections.reducers.due import due_span, kept_offsets, span_to
from projections.reducers.reduction import Reduction
from projections.reducers.variants import Variants
from projections.window.entry import CLOSED, Kind
from projections.window.groups import Group, group_tail
from projections.window.meta import Due
from projections.window.window import MAX_TAIL_BYTES, Window

FAIR = 8
"""A free cut that does not reach the low-water mark is made when it saves one part in so many of
the mark; and a summary is asked for, where what waits takes the room.
"""
LOOKED_AT = 64
"""A tail of fewer entries that stays over its mark is looked at after each event, one of fewer than
twice as many after every second one, and so on: at least after each of so many.
"""


def enforce_limits(window: Window, n: int) -> None:
    """See what follows from the first ``n`` entries of the tail; the window's statistics and state
    are as they stand after them.
    """
    limits = window.limits
    entry = window.tail[n - 1]
    due = window.meta.due
    if (
        entry.kind == Kind.SUSPENSION
        and due is not None
        and any(at <= due.last and at not in due.kept for at, _ in window.state.suspended())
    ):
        # The span would cover what waits for somebody now: no summary of it could be taken while
        # that lasts.
        window.mark_due(None)
    if limits.counted:
        if window.shown_messages > limits.messages or window.shown_turns > limits.turns:
            _pass_counts(window, n)
        if entry.kind == Kind.CLOSED and window.policy.profile == "sliding":
            _empty(window, n)
    if entry.kind == Kind.COMPACT and window.meta.due is None and window.policy.pays:
        window.mark_due(
            due_span(window.tail[:n], window.state, window.policy, window.covered_to, asked=True)
        )
    if window.meta.due is None and window.tail_tokens + window.held_tokens > window.limits.mark:
        _pass_mark(window, n)
    if window.tail_tokens > window.limits.hold or window.tail_bytes > MAX_TAIL_BYTES:
        _overflow(window, n)


def _reduction(window: Window, n: int, groups: list[Group] | None = None) -> Reduction:
    return Reduction(
        window.unsettled_groups(n) if groups is None else groups,
        window.policy,
        Variants.of(window),
        window.tail[n - 1].offset,
        window.state.waiting(),
        fruitless=window.fruitless,
    )


def _note(window: Window, n: int, cut: Reduction) -> None:
    if cut.changed:
        window.note_reductions(n, cut.shortened.values())


def _pass_counts(window: Window, n: int) -> None:
    policy = window.policy
    sliding = policy.profile == "sliding" and policy.pays
    if policy.cuts == "stable":
        cut = _reduction(window, n)
        cut.limit()
        _note(window, n, cut)
    if sliding and window.meta.due is None:
        window.mark_due(_what_left(window, n))


def _what_left(window: Window, n: int) -> Due | None:
    """In ``sliding`` what the limits leave out waits for a summary: all before the first group that
    stays.
    """
    tail = window.tail[:n]
    groups = group_tail(tail)
    kept = kept_offsets(groups, window.state)
    if window.policy.cuts == "exact":
        groups = [group.copy() for group in groups]
        cut = _reduction(window, n, groups)
        cut.exact = True
        cut.limit()
    stays = [
        e.offset
        for g in groups
        if g.messages() and not g.head.variant.startswith("pair:")
        for e in g.entries
        if e.offset not in kept
    ]
    first = min(stays, default=None)
    last = (
        n - 1
        if first is None
        else next(i for i, entry in enumerate(tail) if entry.offset == first) - 1
    )
    return (
        span_to(tail, group_tail(tail), window.state, last, "budget", window.covered_to)
        if last >= 0
        else None
    )


def _empty(window: Window, n: int) -> None:
    """The end of a session: nothing of the tail is shown any more, and all of it waits for a
    summary.
    """
    cut = _reduction(window, n)
    for group in cut.groups:
        if not cut.waits(group):
            cut.leave_out(group, CLOSED)
    _note(window, n, cut)
    if window.meta.due is None and window.policy.pays:
        tail = window.tail[:n]
        reason = "idle" if window.state.closed == "idle" else "explicit"
        window.mark_due(
            span_to(tail, group_tail(tail), window.state, n - 1, reason, window.covered_to)
        )


def _pass_mark(window: Window, n: int) -> None:
    policy, limits = window.policy, window.limits
    if not _is_looked_at(window, n):
        return
    saved = 0
    # What may be saved changes with results, and with the answers to them: otherwise it need not be
    # looked at again.
    if (
        policy.cuts == "stable"
        and _can_save(window)
        and (n > LOOKED_AT or window.tail[n - 1].kind in (Kind.RESULT, Kind.ASSISTANT))
        and (_is_low(window, window.most_saved()) or _is_fair(window, window.most_saved()))
    ):
        groups = [group.copy() if group.results else group for group in window.unsettled_groups(n)]
        trial = _reduction(window, n, groups)
        trial.shorten()
        saved, _ = trial.freed()
        if saved and _is_low(window, saved):
            shorten(window, n)
            return
        window.note_trial(saved + trial.freed_later())
    if policy.pays and window.tail_messages:
        over = window.tail_tokens > limits.room or window.left_out > 0
        if window.tail_messages >= policy.min_messages or over:
            window.mark_due(_budget_span(window, n))
    if window.meta.due is None and saved and _is_fair(window, saved):
        shorten(window, n)


def _budget_span(window: Window, n: int) -> Due | None:
    tail = window.tail if n == len(window.tail) else window.tail[:n]
    fair = window.limits.mark // FAIR
    return due_span(tail, window.state, window.policy, window.covered_to, fair=fair)


def widen_due(window: Window) -> None:
    """Let the span that is due end where it would if it was found only now, where it then goes
    around calls that wait: a backlog is then summarised at once, and not from one passing of the
    mark to the next, which is close where such calls take the room.
    """
    due, calls = window.meta.due, window.state.waiting()
    if due is None or due.reason != "budget" or not calls or window.policy.profile == "sliding":
        return
    wide = _budget_span(window, len(window.tail))
    if wide and wide.last > due.last and any(at in wide.kept for at, _ in calls):
        window.mark_due(msgspec.structs.replace(wide, at=due.at))


def narrow_due(window: Window, target: int) -> None:
    """Let the span that is due end within the tail, which went back to ``target``."""
    due = window.meta.due
    if due is not None and due.last > target:
        span = _budget_span(window, len(window.tail))
        window.mark_due(None if span is None else msgspec.structs.replace(span, at=due.at))


def _is_looked_at(window: Window, n: int) -> bool:
    """Whether a tail that is over its mark is looked at after its entry number ``n``.

    Where nothing could be done when the mark was passed, because groups overlap, wait or are
    pinned, a long tail is not looked at again at each event: so an event takes a time that does not
    grow with the tail.
    """
    passed = window.tail_tokens + window.held_tokens - window.limits.mark
    return n % min(n // LOOKED_AT + 1, LOOKED_AT) == 0 or window.tail[n - 1].tokens >= passed


def _is_low(window: Window, saved: int) -> bool:
    """Whether without so many tokens the tail is down at the low-water mark."""
    low = int(window.policy.low_water * max(0, window.limits.mark))
    return window.tail_tokens + window.held_tokens - saved <= low


def _is_fair(window: Window, saved: int) -> bool:
    return saved * FAIR >= max(0, window.limits.mark)


def _can_save(window: Window) -> bool:
    policy = window.policy
    return window.results > 0 and policy.shortens


def shorten(window: Window, n: int) -> None:
    """Make the free shortenings of tool results among the first ``n`` entries, in ``stable``
    mode.
    """
    if window.policy.cuts == "stable" and _can_save(window):
        cut = _reduction(window, n)
        cut.shorten()
        _note(window, n, cut)


def _overflow(window: Window, n: int) -> None:
    hold = window.limits.hold
    cut = _reduction(window, n)
    cut.shorten()
    low = int(window.policy.low_water * hold)
    tokens, size = _left(window, cut)
    # Where shortening frees too little, the next cut would follow at once.
    if tokens > (hold - hold // FAIR if cut.changed else low):
        cut.leave_out_oldest(tokens, low)
        tokens, size = _left(window, cut)
    while size > MAX_TAIL_BYTES:
        cut.changed, changed = False, cut.changed
        cut.leave_out_oldest(tokens, tokens // 2)
        if not cut.changed:
            cut.changed = changed
            break
        tokens, size = _left(window, cut)
    _note(window, n, cut)


def _left(window: Window, cut: Reduction) -> tuple[int, int]:
    """The tail's tokens and bytes without what a cut took away."""
    tokens, size = cut.freed()
    return window.tail_tokens - tokens, window.tail_bytes - size
