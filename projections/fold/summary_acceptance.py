"""Which summary a window accepts, and what accepting it takes out of the tail.

A summary is an event of the log like any other. It is accepted when its predecessor is the summary
in force, the last rollback it knew is the latest, and its span begins where the window's uncovered
part begins. So rival, late, repeated and stale answers resolve the same way live and on replay.

A rollback that came while a summary was made does not matter where the window holds exactly the
events that the summary names, and does not end with them: what was rolled back to, a question that
is to be answered again, stands verbatim. Whether a window asks for a summary does not count: that
depends on its policy, and other rules have to accept the same ones. The same holds where a later
rollback restores a window from before the summary came. Who wrote the summary says that this may be
used (``span.survives_rollbacks``): earlier releases refused such answers.

A span may go around events (``span.kept``); they stay in the tail. Its length does not matter: a
summary that other rules asked for is cut to what these allow (``projections.fold.summary_length``).
"""

from __future__ import annotations

from projections.errors import InvalidPosition
from projections.events.types import Summary, absolute, delta
from projections.names import parse_position
from projections.window.entry import RANGES, Entry, Kind
from projections.window.groups import Link
from projections.window.recent_ids import RecentIds
from projections.window.window import Window

_MESSAGES = (Kind.USER, Kind.ASSISTANT, Kind.RESULT)


def why_not(window: Window, summary: Summary, *, restoring: bool = False) -> str | None:
    """Why the window does not take this summary, or None when it does. Where a rollback is
    ``restoring`` an earlier window, none comes back that covers a call which may still be answered
    there.
    """
    meta = window.meta
    if summary.previous != (meta.summary.summary_id if meta.summary else None):
        return "its predecessor is not the summary in force"
    if summary.previous_position != (
        window.position_of(meta.summary.offset) if meta.summary else None
    ):
        return "its previous_position is not where its predecessor stands"
    known = _knows_rollback(window, summary)
    if not known and not summary.span.survives_rollbacks:
        return "it does not know the latest rollback"
    try:
        first, last = parse_position(summary.span.from_), parse_position(summary.span.to)
    except InvalidPosition:
        return "its span has no valid positions"
    if first.partition != window.partition or last.partition != window.partition:
        return "its span lies in another partition"
    if last.offset <= window.covered_to:
        return "its span ends within what is summarised already"
    end = _find_end(window.tail, last.offset)
    if end is None:
        return "its span does not end at an event of the window"
    if not known and not _names_all(window.tail[: end + 1], summary):
        return "it does not know the latest rollback, nor name all events of its span"
    if not known and _covers_newest(window.tail, end, set(absolute(summary.span.kept))):
        return "it does not know the latest rollback, and covers the newest message"
    calls = window.state.waiting() if restoring else window.state.suspended()
    return _why_not_span(window, summary, first.offset, last.offset, end, calls)


def _covers_newest(tail: list[Entry], end: int, kept: set[int]) -> bool:
    """Whether a span up to an index covers the newest message, or the newest one of a user."""
    newest = (
        next((i for i in reversed(range(len(tail))) if tail[i].kind in kinds), None)
        for kinds in (_MESSAGES, (Kind.USER,))
    )
    return any(i is not None and i <= end and tail[i].offset not in kept for i in newest)


def _names_all(span: list[Entry], summary: Summary) -> bool:
    """Whether a summary's positions can be compared with all of the span's events."""
    return bool(summary.span.positions) and all(entry.offsets() is not None for entry in span)


def _why_not_span(
    window: Window, summary: Summary, first: int, last: int, end: int, calls: set[Link]
) -> str | None:
    kept = set(absolute(summary.span.kept))
    span = window.tail[: end + 1]
    covered = [entry for entry in span if entry.offset not in kept]
    if not covered or first != covered[0].start:
        return "its span does not begin where the uncovered events begin"
    if len(span) - len(covered) != len(kept) or any(
        entry.offset in kept and entry.kind in RANGES for entry in span
    ):
        return "its kept events are not in its span"
    whole = {e.offset: e.offset in kept for e in span if e.calls}
    parted = {entry.offset for entry in _parted(span, kept, last, results_apart(window, summary))}
    # What is kept may belong to a call further on: both stay.
    links = [
        (e.link[0], e.offset in kept) for e in span if e.link is not None and e.offset not in parted
    ]
    if any((head > last and not stays) or whole.get(head, stays) != stays for head, stays in links):
        return "its span separates a call from its result"
    if any(offset in whole and not whole[offset] for offset, _ in calls):
        return "its span covers a call that waits for an answer"
    if summary.span.positions and not _positions_hold(
        covered, last, absolute(summary.span.positions)
    ):
        return "its positions are not those of the events in its span"
    return None


def results_apart(window: Window, summary: Summary) -> set[int]:
    """The results that belong to no call under the rules that asked for a summary; none where a
    rollback came since: it may have put them back into the window, before their calls came.
    """
    return set(absolute(summary.span.apart)) if _knows_rollback(window, summary) else set()


def _knows_rollback(window: Window, summary: Summary) -> bool:
    rollback = window.meta.rollback
    return summary.rollback == (None if rollback is None else window.position_of(rollback))


def _parted(span: list[Entry], kept: set[int], last: int, apart: set[int]) -> list[Entry]:
    """Results that came before their calls and that the summary covers, though it kept the calls,
    or it says that they stay ``apart`` from calls behind its end: under the rules that asked for
    it they were left out before their calls came, and do not belong to them.

    Where it does not say so, a call behind its end may have come only after it was asked for, and
    have its result as in this window.
    """
    return [
        entry
        for entry in span
        if entry.link is not None
        and entry.offset not in kept
        and entry.link[0] > entry.offset
        and (entry.link[0] in kept or (entry.link[0] > last and entry.offset in apart))
    ]


def _positions_hold(span: list[Entry], last: int, claimed: list[int]) -> bool:
    """Whether the claimed offsets are the span's: history is read by them later. Inside a range of
    unknown offsets any are accepted.
    """
    unknown: list[tuple[int, int]] = []
    known: list[int] = []
    for entry in span:
        offsets = entry.offsets()
        if offsets is None:
            unknown.append((entry.start, min(last, entry.offset)))
        else:
            known += [offset for offset in offsets if offset <= last]
    rest = (
        [o for o in claimed if not any(first <= o <= end for first, end in unknown)]
        if unknown
        else claimed
    )
    return rest == known


def _find_end(tail: list[Entry], last: int) -> int | None:
    """The index of the entry in which the span ends: at its offset, or inside a held range."""
    for i, entry in enumerate(tail):
        if entry.offset == last:
            return i
        if entry.kind == Kind.HELD and entry.start <= last < entry.offset:
            known = entry.offsets()
            return i if known is None or last in known else None
    return None


def covers_unanswered(window: Window, last: int, kept: set[int]) -> bool:
    """Whether a valid span (as of :func:`drop_span`) covers a call without its result, or may."""
    calls, answered = set[Link](), set[Link]()
    for entry in window.tail:
        if entry.start > last:
            break
        if entry.kind == Kind.HELD and entry.tokens:
            return True
        if entry.offset not in kept:
            calls.update((entry.offset, i) for i in range(len(entry.calls or ())))
            answered.update([entry.link] if entry.link is not None else [])
    return not calls <= answered


def drop_span(window: Window, last: int, count: int, kept: set[int], apart: set[int]) -> set[Link]:
    """Take what a span covers out of the tail (``why_not`` has found it valid): up to offset
    ``last``, but for the ``kept`` offsets; ``apart`` as :func:`results_apart`. Returns the calls
    that have lost their results by it.
    """
    end = _find_end(window.tail, last)
    if end is None:
        raise ValueError(f"offset {last} is not in the tail")
    parted = _parted(window.tail[: end + 1], kept, last, apart)
    calls = {entry.link for entry in parted if entry.link is not None}
    window.part({entry.offset for entry in parted})
    held = window.tail[end]
    if held.offset == last:
        window.cover(end + 1, kept)
        return calls
    window.cover(end, kept)
    at = next(i for i, entry in enumerate(window.tail) if entry is held)
    window.replace_entry(at, _shrink(held, last, count, window.recent_ids))
    return calls


def _shrink(held: Entry, last: int, count: int, recent_ids: RecentIds) -> Entry:
    known = held.offsets() or recent_ids.between(last + 1, held.offset) or None
    dead = delta([offset for offset in absolute(held.gone or []) if offset > last]) or None
    voids = [(max(begin, last + 1), end) for begin, end in held.voids or () if end > last] or None
    if known is None:
        # Repeats in the log count for a scan and not for the tail, so the rest can only be
        # estimated. The count is only a claim: taken as it is, a false one would leave numbers that
        # cannot be stored, which stops the partition.
        left, first, positions = held.count - min(max(1, count), held.count - 1), last + 1, None
    else:
        offsets = [offset for offset in known if offset > last]
        left, first, positions = len(offsets), offsets[0], delta(offsets)
    # Which of the range's tokens lay in the span is not known here: the rest is taken in
    # proportion, rounded up.
    tokens, full = -(-held.tokens * left // held.count), -(-held.full * left // held.count)
    return Entry(
        held.offset,
        Kind.HELD,
        tokens,
        first=first,
        count=left,
        positions=positions,
        variants=held.variants,
        full=full,
        gone=dead,
        voids=voids,
    )
