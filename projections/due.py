"""When a window is due for a summary, and where the span ends: pure functions of its tail, lanes and policy."""

from __future__ import annotations

from msgspec import Struct

from projections.lanes import RENDERED, Entry, Kind, Lanes
from projections.policy import Policy


class Due(Struct, array_like=True, frozen=True):
    """A span that waits for its summary: first and last offset (both included) and why."""

    first: int
    last: int
    reason: str


def calls_for_compaction(lanes: Lanes, policy: Policy, *, tokens: int, messages: int, summary_tokens: int) -> bool:
    """Whether a window is over the marks at which a summary is wanted.

    Args:
        tokens, messages: of the tail, held ranges included.
        summary_tokens: of the summary in force.
    """
    if not policy.compaction or messages == 0:
        return False
    pinned = lanes.pinned_tokens
    render = pinned + summary_tokens + tokens
    share = policy.compaction_ratio * (policy.model_window - policy.reserve_tokens)
    if tokens <= policy.budget(pinned) and (policy.compaction_ratio >= 1.0 or render <= share):
        return False
    return messages >= policy.min_messages or render > policy.ceiling


def due_span(tail: list[Entry], lanes: Lanes, policy: Policy) -> Due | None:
    """The span to summarise, None when nothing can leave this tail yet. ``lanes`` are as they stand after it."""
    cut = choose_cut(tail, lanes, policy.keep_recent(lanes.pinned_tokens))
    return None if cut is None else Due(tail[0].start, tail[cut].offset, "budget")


def choose_cut(tail: list[Entry], lanes: Lanes, keep: int) -> int | None:
    """The index of the last entry of the span: the earliest place between groups that leaves at most ``keep`` tokens.

    The last group, calls still waiting and what is suspended stay out of the span; where they leave no place that far, the furthest
    place before them is taken. None when nothing rendered could leave the tail.
    """
    waiting = _waiting(lanes)
    if waiting and not _gains_before(tail, waiting):
        # Looked at first, as a window that waits for an approval comes here with every event once it is over its marks.
        return None
    limit = min(_first_of(tail, waiting), _last_group(tail))
    reach = _reach(tail)
    rest = sum(e.tokens for e in tail if e.kind in RENDERED)
    gain, far, best = 0, -1, None
    for i in range(limit):
        entry = tail[i]
        if entry.kind in RENDERED:
            rest -= entry.tokens
            gain += entry.tokens
        elif entry.kind == Kind.HELD:
            gain += entry.tokens
        far = max(far, reach.get(i, i))
        if far <= i and gain:
            best = i
            if rest <= keep:
                break
    return best


def _waiting(lanes: Lanes) -> set[int]:
    """Offsets that have to stay in the tail: calls without a result, and what is suspended."""
    offsets = {call.offset for call in lanes.calls if not call.dead}
    if lanes.suspensions:
        suspended = {s.tool_call_id for s in lanes.suspensions if s.tool_call_id}
        offsets |= {call.offset for call in lanes.calls if call.id in suspended}
        offsets |= {s.offset for s in lanes.suspensions}
    return offsets


def _gains_before(tail: list[Entry], offsets: set[int]) -> bool:
    """Whether anything that counts stands before the first entry at one of the offsets; some of them may have left the tail."""
    for entry in tail:
        if entry.offset in offsets:
            return False
        if entry.tokens and (entry.kind in RENDERED or entry.kind == Kind.HELD):
            return True
    return False


def _first_of(tail: list[Entry], offsets: set[int]) -> int:
    if not offsets:
        return len(tail)
    return next((i for i, entry in enumerate(tail) if entry.offset in offsets), len(tail))


def _last_group(tail: list[Entry]) -> int:
    for i in range(len(tail) - 1, -1, -1):
        entry = tail[i]
        if entry.kind in RENDERED:
            if entry.link is None:
                return i
            return next((j for j in range(i, -1, -1) if tail[j].calls and tail[j].offset == entry.link[0]), i)
    return len(tail)


def _reach(tail: list[Entry]) -> dict[int, int]:
    """For each entry with calls, the index of its last result: a cut in between would part them."""
    calls = {entry.offset: i for i, entry in enumerate(tail) if entry.calls}
    reach: dict[int, int] = {}
    for i, entry in enumerate(tail):
        if entry.link is not None and entry.link[0] in calls:
            reach[calls[entry.link[0]]] = i
    return reach
