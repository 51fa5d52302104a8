"""When a window is due for a summary, where the span ends, and which summary it accepts.

A summary is an event of the log like any other. It is accepted when its predecessor is the summary in force, the last rollback it knew is
the latest, and its span begins where the window's uncovered part begins. So rival, late, repeated and stale answers resolve the same way
live and on replay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from projections.errors import InvalidPosition
from projections.events import Summary, absolute, delta
from projections.lanes import RENDERED, Entry, Kind, Lanes, entry_offsets
from projections.names import parse_position

if TYPE_CHECKING:
    from projections.window import Window


class Due(Struct, array_like=True, frozen=True):
    """A span that waits for its summary: first and last offset (both included) and why."""

    first: int
    last: int
    reason: str


def first_due(window: Window, n: int) -> Due | None:
    """Whether the first ``n`` tail entries, with the window's sums over just these, call for compaction, and of which span."""
    policy = window.policy
    if not policy.compaction or window.tail_messages == 0:
        return None
    pinned = window.lanes.pinned_tokens
    tokens = window.tail_tokens + window.held_tokens
    render = pinned + window.summary_tokens + tokens
    share = policy.compaction_ratio * (policy.model_window - policy.reserve_tokens)
    if tokens <= policy.budget(pinned) and (policy.compaction_ratio >= 1.0 or render <= share):
        return None
    if window.tail_messages < policy.min_messages and render <= policy.ceiling:
        return None
    cut = choose_cut(window.tail[:n], window.lanes, policy.keep_recent(pinned))
    return None if cut is None else Due(window.tail[0].start, window.tail[cut].offset, "budget")


def choose_cut(tail: list[Entry], lanes: Lanes, keep: int) -> int | None:
    """The index of the last entry of the span: the earliest place between groups that leaves at most ``keep`` tokens.

    The last group, calls still waiting and what is suspended stay out of the span; where they leave no place that far, the furthest
    place before them is taken. None when nothing rendered could leave the tail.
    """
    limit = min(_first_waiting(tail, lanes), _last_group(tail))
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


def _first_waiting(tail: list[Entry], lanes: Lanes) -> int:
    offsets = {call.offset for call in lanes.calls if not call.dead}
    suspended = {s.tool_call_id for s in lanes.suspensions if s.tool_call_id}
    offsets |= {call.offset for call in lanes.calls if call.id in suspended}
    offsets |= {s.offset for s in lanes.suspensions}
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


def why_not(window: Window, summary: Summary, tokens: int) -> str | None:
    """Why the window does not take this summary, or None when it does."""
    meta = window.meta
    if summary.previous != (meta.summary.summary_id if meta.summary else None):
        return "its predecessor is not the summary in force"
    if summary.previous_position != (window.position_of(meta.summary.offset) if meta.summary else None):
        return "its previous_position is not where its predecessor stands"
    if summary.rollback != (None if meta.rollback is None else window.position_of(meta.rollback)):
        return "it does not know the latest rollback"
    if tokens > window.policy.summary_max_tokens + 16:
        return "it is longer than summary_max_tokens"
    try:
        first, last = parse_position(summary.span.from_), parse_position(summary.span.to)
    except InvalidPosition:
        return "its span has no valid positions"
    if first.partition != window.partition or last.partition != window.partition:
        return "its span lies in another partition"
    if not window.tail or first.offset != window.tail[0].start:
        return "its span does not begin where the uncovered events begin"
    end = _find_end(window.tail, last.offset)
    if end is None:
        return "its span does not end at an event of the window"
    if summary.span.positions and not _positions_hold(window.tail[: end + 1], last.offset, absolute(summary.span.positions)):
        return "its positions are not those of the events in its span"
    return None


def _positions_hold(span: list[Entry], last: int, claimed: list[int]) -> bool:
    """Whether the claimed offsets are the span's: history is read by them later. Inside a range of unknown offsets any are believed."""
    unknown: list[tuple[int, int]] = []
    known: list[int] = []
    for entry in span:
        offsets = entry_offsets(entry)
        if offsets is None:
            unknown.append((entry.start, min(last, entry.offset)))
        else:
            known += [offset for offset in offsets if offset <= last]
    rest = [o for o in claimed if not any(first <= o <= end for first, end in unknown)] if unknown else claimed
    return rest == known


def _find_end(tail: list[Entry], last: int) -> int | None:
    """The index of the entry in which the span ends: at its offset, or inside a held range."""
    head = tail[0]
    if head.kind == Kind.HELD and head.start <= last < head.offset:
        known = entry_offsets(head)
        return 0 if known is None or last in known else None
    return next((i for i, entry in enumerate(tail) if entry.offset == last), None)


def drop_span(window: Window, last: int, count: int) -> None:
    """Take the entries up to offset ``last`` out of the tail (``why_not`` has found it valid)."""
    end = _find_end(window.tail, last)
    if end is None:
        raise ValueError(f"offset {last} is not in the tail")
    head = window.tail[end]
    if head.offset == last:
        window.drop_head(end + 1)
        return
    window.tail[end] = _shrink(head, last, count)
    window.epoch += 1


def _shrink(held: Entry, last: int, count: int) -> Entry:
    known = entry_offsets(held)
    if known is None:
        # Repeats in the log count for a scan and not for the tail, so the rest can only be estimated.
        left, first, positions = max(1, held.count - count), last + 1, None
    else:
        offsets = [offset for offset in known if offset > last]
        left, first = len(offsets), offsets[0]
        positions = delta(offsets)
    # Which of the range's tokens lay in the span is not known here: the rest is taken in proportion, rounded up.
    tokens = -(-held.tokens * left // held.count)
    return Entry(held.offset, Kind.HELD, tokens, first=first, count=left, positions=positions)
