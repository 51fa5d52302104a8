"""When a window is due for a summary, and what the span covers: pure functions of its tail, state
and policy.

The span begins with the tail and ends between groups. It goes around what has to stay: groups with
a call that may still be answered or that waits for somebody, and the newest user's message. These
are *kept*: they stay at the front of the tail.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice

from projections.policy.policy import Policy
from projections.reducers.reduction import newest
from projections.window.conversation_state import ConversationState
from projections.window.entry import LEFT_OUT, MESSAGES, RENDERED, Entry, Kind
from projections.window.groups import Group, group_tail
from projections.window.meta import Due

_LEFT_OUT = f"out:{LEFT_OUT}"


def due_span(
    tail: Sequence[Entry],
    state: ConversationState,
    policy: Policy,
    after: int = -1,
    *,
    asked: bool = False,
    fair: int = 0,
) -> Due | None:
    """The span to summarise, None when nothing can leave this tail yet.

    ``state`` are as they stand after the tail; ``after`` is how far the active summary reaches: a
    span has to end beyond it. Where somebody ``asked`` for a summary, nothing stays but the last
    group and what every span goes around. Where groups wait that hold much, a tail is over its mark
    again at once: then a span has to be of ``fair`` tokens, or of as many as wait.
    """
    if _all_stays(tail, state):
        return None
    groups = group_tail(tail)
    keep = 0 if asked else policy.keep_recent(state.pinned_tokens)
    cut = choose_cut(tail, groups, state, keep, after, fair)
    return (
        None
        if cut is None
        else span_to(tail, groups, state, cut, "explicit" if asked else "budget", after)
    )


def _all_stays(tail: Sequence[Entry], state: ConversationState) -> bool:
    """Whether it shows without grouping that no span covers anything: all that was said before the
    last message waits, or is the newest user's. Such a tail can be long, and over its mark at each
    event, where results come that nobody called for.
    """
    shown = (
        i for i in range(len(tail) - 1, -1, -1) if tail[i].kind in MESSAGES and not tail[i].out
    )
    last = next(shown, None)
    if last is None:
        return False
    user = next((i for i in chain((last,), shown) if tail[i].kind == Kind.USER), -1)
    waiting, heads = {offset for offset, _ in state.waiting()}, set[int]()
    for i, entry in enumerate(islice(tail, last)):
        if entry.offset in waiting:
            heads.add(entry.offset)
        elif _weight(entry) and i != user and (not entry.link or entry.link[0] not in heads):
            return False
    return True


def span_to(
    tail: Sequence[Entry],
    groups: list[Group],
    state: ConversationState,
    cut: int,
    reason: str,
    after: int = -1,
) -> Due | None:
    """The span that ends with entry ``cut`` of the tail; None when it would cover nothing that was
    said, or nothing beyond ``after``.
    """
    kept = kept_offsets(groups, state)
    covered = [entry for entry in tail[: cut + 1] if entry.offset not in kept]
    if tail[cut].offset <= after or not any(_weight(entry) for entry in covered):
        return None
    last = tail[cut].offset
    within = tuple(entry.offset for entry in tail[: cut + 1] if entry.offset in kept)
    return Due(covered[0].start, last, reason, tail[-1].offset, within)


def kept_offsets(groups: list[Group], state: ConversationState) -> set[int]:
    """The offsets of entries that no span covers: groups that wait, and the newest user's
    message.
    """
    users = [group.head.offset for group in newest(groups) if group.head.kind == Kind.USER]
    return _waiting_offsets(groups, state).union(users)


def _waiting_offsets(groups: list[Group], state: ConversationState) -> set[int]:
    calls = state.waiting()
    return {e.offset for g in groups if g.waits(calls) for e in g.entries}


def choose_cut(
    tail: Sequence[Entry],
    groups: list[Group],
    state: ConversationState,
    keep: int,
    after: int = -1,
    fair: int = 0,
) -> int | None:
    """The index of the last entry of the span: the earliest place between groups that leaves at
    most ``keep`` tokens.

    Where the last group leaves no place that far, the furthest place before it is taken. None when
    nothing that was said could leave the tail, or less than ``fair`` tokens and than what waits on
    the way. What is kept on the way counts neither as gained nor as left.
    """
    kept, waiting = kept_offsets(groups, state), _waiting_offsets(groups, state)
    limit = _index_of_last(tail, groups)
    ends = _ends(groups)
    left = _shown if waiting.isdisjoint(e.offset for e in tail[:limit]) else _left
    rest = sum(map(left, tail))
    gain, waits, far, best = 0, 0, -1, None
    for i in range(limit):
        entry = tail[i]
        offset = entry.offset
        rest -= left(entry)
        if offset in waiting:
            waits += _weight(entry)
        if offset not in kept:
            gain += _weight(entry)
            far = max(far, ends.get(offset, -1))
        if far <= offset and gain >= max(1, min(fair, waits)) and offset > after:
            best = i
            if rest <= keep:
                break
    return best


def _ends(groups: list[Group]) -> dict[int, int]:
    """Where groups of several entries end, by the offsets of their messages and first entries."""
    ends = dict[int, int]()
    for group in groups:
        if group.results:
            offsets = [result.offset for result in group.results.values()]
            head = group.head.offset
            ends[head] = ends[min(head, *offsets)] = max(head, *offsets)
    return ends


def places(tail: Sequence[Entry], due: Due, after: int) -> list[int]:
    """The offsets at which a summary of a part of a due span may end: between groups, beyond
    ``after``, and in force.

    Of a held range of known positions these are all of its events.
    """
    groups, kept = group_tail(tail), set(due.kept)
    reach = {
        e.offset: max(e.offset for e in g.entries) for g in groups if g.results for e in g.entries
    }
    far, found = -1, []
    for entry in tail:
        if entry.start > due.last:
            break
        if entry.offset in kept or entry.kind == Kind.ABANDONED:
            continue
        far = max(far, reach.get(entry.offset, -1))
        found += [o for o in entry.offsets() or () if far <= o and after < o <= due.last]
    return found


def _weight(entry: Entry) -> int:
    """Tokens of an entry before it was shortened; 0 for what says nothing."""
    if entry.kind in RENDERED or entry.kind == Kind.HELD:
        return max(entry.tokens, entry.full)
    return 0


def _shown(entry: Entry) -> int:
    return entry.tokens if entry.kind in RENDERED else 0


def _left(entry: Entry) -> int:
    """Tokens of an entry as it would stand behind a summary: what is left out of a tail over its
    limit is shown again there.
    """
    if entry.kind not in RENDERED and entry.kind != Kind.HELD:
        return 0
    return entry.full if entry.variant == _LEFT_OUT else entry.tokens


def _index_of_last(tail: Sequence[Entry], groups: list[Group]) -> int:
    """The index of the first entry of the last group: from there on everything stays."""
    shown = [group for group in groups if group.messages()]
    if not shown:
        return len(tail)
    first = min(entry.offset for entry in shown[-1].entries)
    return next((i for i, entry in enumerate(tail) if entry.offset == first), len(tail))
