"""Putting entries at the end of a window's tail, and what follows from each: cuts and due spans."""

from __future__ import annotations

import msgspec

from projections.reducers.enforce_limits import enforce_limits, shorten
from projections.reducers.variants import Variants
from projections.window.bodies import result_text
from projections.window.entry import AT_ONCE, RENDERED, Entry, Kind
from projections.window.truncation import clip
from projections.window.window import MAX_TAIL_BYTES, Window


def append(window: Window, entry: Entry, reported: int = 0) -> None:
    """Put an entry at the end of the tail, cut where a mark is passed, and keep the tail bounded.

    ``reported`` are the tokens that a model said its input had, 0 where it said nothing.
    """
    if entry.kind in RENDERED:
        if entry.kind == Kind.RESULT:
            entry = _held_by_position(window, entry)
        limit = window.limits.ceiling
        if entry.tokens > limit:
            chars = 0
            if entry.kind == Kind.RESULT and not entry.chars:
                chars = len(result_text(msgspec.json.decode(entry.body)))
            tokens, body = clip(entry.body, entry.tokens, limit)
            entry.shorten(AT_ONCE, f"clip:{limit}", body, tokens, chars)
    window.append(entry, reported)
    enforce_limits(window, len(window.tail))
    if window.crowded or window.tail_bytes > MAX_TAIL_BYTES:
        window.bound_entries()


def keep_limits(window: Window) -> None:
    """See to the limits after :meth:`Window.append_text` said that one is passed."""
    enforce_limits(window, len(window.tail))
    if window.crowded:
        window.bound_entries()


def fold_again(window: Window, i: int, marked: int) -> None:
    """Fold the entry at index ``i`` of the tail as if it came only now, and cut again: those before
    it came, since :meth:`Window.begin_refold`.

    Used when a summary takes the tail's front, so that it makes no difference when that happened.
    As that is a cut, too, tool results are shortened: among the entries up to ``marked``, at which
    the summary was found to be due.
    """
    tail, n = window.tail, i + 1
    window.refold_entry(tail[i])
    if tail[i].offset <= marked and (n == len(tail) or tail[n].offset > marked):
        shorten(window, n)
    enforce_limits(window, n)


def _held_by_position(window: Window, result: Entry) -> Entry:
    """A result that is too large to be kept whole is held by its position from the beginning."""
    policy = window.policy
    if not policy.spill_chars or len(result.body) <= policy.spill_chars:
        return result
    text = result_text(msgspec.json.decode(result.body))
    if len(text) <= policy.spill_chars:
        return result
    variants, name = Variants.of(window), f"soft:{policy.soft_trim_chars}"
    body, chars = variants.make(result.body, name, result)
    shortened = msgspec.structs.replace(result, variants=())
    shortened.shorten(AT_ONCE, name, body, min(result.tokens, variants.tokens(body)), chars)
    return shortened
