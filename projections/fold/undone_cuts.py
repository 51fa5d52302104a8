"""Undoing cuts: entries as they were before they were shortened, made again from their events."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from projections.fold.known_events import KnownEvents, NotRead
from projections.fold.rehydration import has_text, text_of, tool_of, tools_of
from projections.reducers.variants import Variants
from projections.window.entry import RANGES, Entry
from projections.window.groups import Link
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


def undone(window: Window, offsets: Iterable[int], at: int, texts: KnownEvents) -> dict[int, Entry]:
    """The entries at these offsets without what cuts later than ``at`` made of them; those whose
    events the log has lost are left out. The window is not changed.

    Raises:
        NotRead: events of theirs are needed. What came of others stays in ``texts``.
    """
    wanted, found = set(offsets), dict[int, Entry]()
    tools = tools_of(window.tail) if wanted else {}
    variants, missing = Variants.of(window), []
    for entry in window.tail:
        if entry.offset not in wanted or entry.kind in RANGES:
            continue
        try:
            whole = whole_again(entry, at, texts, variants, tools)
        except NotRead:
            missing.append(entry.offset)
            continue
        if whole is not None:
            found[entry.offset] = whole
    if missing:
        raise NotRead(sorted(missing))
    return found


def whole_again(
    entry: Entry, at: int, texts: KnownEvents, variants: Variants, tools: Mapping[Link, str]
) -> Entry | None:
    """An entry without what cuts later than ``at`` made of it; None where the log has lost its
    event. ``tools`` are those of its tail (:func:`projections.fold.rehydration.tools_of`).

    Raises:
        NotRead: its event is needed. What came of it before stays in ``texts``.
    """
    whole = _before(entry, at)
    shape = (whole.variants, tool_of(entry, tools), entry.sent_id)
    try:
        text = texts.made(entry.offset, shape)
    except KeyError:
        event, shown = texts.get(entry.offset), has_text(whole)
        if event is None and (shown or not texts.has(entry.offset)):
            if texts.unread([entry.offset]):
                raise NotRead([entry.offset]) from None
            return None
        text = text_of(whole, event, variants, tools) if shown and event else None
        texts.make(entry.offset, shape, text)
    if text is not None:
        whole.put_text(*text)
    return whole


def replace_entries(window: Window, entries: Mapping[int, Entry]) -> None:
    """Put entries in the place of those at the same offsets."""
    for i, entry in enumerate(window.tail):
        other = entries.get(entry.offset)
        if other is not None and entry.kind not in RANGES:
            window.replace_entry(i, other)


def _before(entry: Entry, at: int) -> Entry:
    variants = tuple(variant for variant in entry.variants if variant[0] <= at)
    return msgspec.structs.replace(
        entry,
        variants=variants,
        tokens=variants[-1][2] if variants else entry.full,
        full=entry.full if variants else 0,
        chars=entry.chars if variants else 0,
    )
