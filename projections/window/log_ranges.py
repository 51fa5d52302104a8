"""Ranges: one entry in the place of several, whose events only the log still holds."""

from __future__ import annotations

from projections.events.types import absolute, delta
from projections.window.entry import EARLY, LEFT_OUT, RENDERED, Entry, Kind, omits
from projections.window.recent_ids import RecentIds

MAX_HELD_POSITIONS = 4_096
MAX_VOIDS = 256


def held_range(entries: list[Entry]) -> Entry:
    """One range in place of several entries.

    Positions stay known up to a bound; tokens count what would have been shown, ``full`` all that
    was said. A range of nothing but what a reducer left out has that form, so it is not spoken of.
    """
    tokens = sum(_would_show(e) for e in entries)
    full = sum(max(e.tokens, e.full) for e in entries if e.kind in RENDERED or e.kind == Kind.HELD)
    entry = _range(Kind.HELD, entries, tokens)
    # What a line names as left out becomes part of a range, too.
    outs = sorted((e.variant for e in entries if e.out), key=omits, reverse=True)
    out = outs[0] if outs else ""
    if not tokens and out:
        entry.full, entry.variants = full, ((entry.offset, out, 0),)
    return entry


def silent_end(tail: list[Entry], begin: int, stays: set[int]) -> int:
    """The index at which the entries from ``begin`` on end that say nothing any more and are not
    among the offsets ``stays``.
    """
    end = begin
    while end < len(tail) - 1:
        entry = tail[end]
        shown = entry.kind in RENDERED and not entry.out and entry.link != EARLY
        if shown or entry.offset in stays:
            break
        if entry.link is not None and entry.link[0] > entry.offset:
            break  # its call stands further on
        end += 1
    return end


def _would_show(entry: Entry) -> int:
    if entry.kind == Kind.HELD:
        return entry.tokens
    if entry.kind not in RENDERED:
        return 0
    return entry.full if entry.variant == f"out:{LEFT_OUT}" else entry.tokens


def abandoned_range(entries: list[Entry], last: int) -> Entry:
    """The range a rollback at offset ``last`` abandoned (the rollback itself included)."""
    return _range(Kind.ABANDONED, [*entries, Entry(last, Kind.NOTE)], 0)


def abandoned_since(recent_ids: RecentIds, target: int, last: int) -> Entry:
    """The range a rollback at offset ``last`` abandoned: all that counted behind ``target`` by the
    recent ids, the rollback itself too.

    Where ids may be missing among them only the bounds are known.
    """
    offsets = recent_ids.between(target + 1, last)
    if offsets is None:
        return Entry(last, Kind.ABANDONED, first=target + 1, count=max(1, last - target))
    offsets.append(last)
    return Entry(
        last, Kind.ABANDONED, first=offsets[0], count=len(offsets), positions=delta(offsets)
    )


def _range(kind: Kind, entries: list[Entry], tokens: int) -> Entry:
    offsets: list[int] | None = []
    gone: list[int] = []
    voids: list[tuple[int, int]] = []
    for entry in entries:
        known = entry.offsets()
        offsets = offsets + known if offsets is not None and known is not None else None
        if entry.kind not in (Kind.NOTE, Kind.ABANDONED):
            gone += absolute(entry.gone or [])
            voids += entry.voids or []
        elif known is None:
            voids.append((entry.start, entry.offset))
        else:
            gone += known
    count = sum(e.count for e in entries)
    if offsets is not None and len(offsets) > MAX_HELD_POSITIONS:
        offsets = None
    entry = Entry(entries[-1].offset, kind, tokens, first=entries[0].start, count=count)
    entry.positions = None if offsets is None else delta(offsets)
    if kind == Kind.HELD:
        # Of more than that the oldest are taken for what still counts.
        entry.gone, entry.voids = (
            delta(gone[-MAX_HELD_POSITIONS:]) or None,
            voids[-MAX_VOIDS:] or None,
        )
    return entry
