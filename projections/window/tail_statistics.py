"""Statistics of a tail: tokens, messages and bytes, what its shortenings save, and whether joining
what is stored reads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from projections.window.bodies import has_attachments
from projections.window.conversation_state import ConversationState
from projections.window.entry import (
    EARLY,
    LEFT_OUT,
    RENDERED,
    Entry,
    Kind,
    Omitted,
    hides,
    reducer_of,
    shown_calls,
)
from projections.window.log_progress import LogProgress

_LEFT_OUT = f"out:{LEFT_OUT}"


@lru_cache(256)
def _named(variant: str) -> tuple[str, bool]:
    """The reducer of a variant, and whether that leaves a message out."""
    return reducer_of(variant), variant.startswith("out:")


class TailStatistics(LogProgress):
    """What is counted of the entries of a window's tail, one by one.

    ``tail_tokens`` are those that are rendered, ``held_tokens`` those that would be if there were
    room, ``tail_messages`` and ``tail_bytes`` of all entries, ``shown_messages`` and
    ``shown_turns`` of what is rendered; ``gains`` are for each reducer the messages and tokens that
    it saves. ``flat`` tells whether the rendered bodies, joined in their order, are a valid
    conversation (``awaited`` results of its last group are still to come). ``omitted`` is what no
    render shows of the tail.
    """

    __slots__ = (
        "_early",
        "_group",
        "_hidden",
        "_joins",
        "_next",
        "awaited",
        "flat",
        "gains",
        "held_tokens",
        "left_out",
        "omitted",
        "results",
        "shown_messages",
        "shown_turns",
        "state",
        "tail_bytes",
        "tail_messages",
        "tail_pinned",
        "tail_pinned_tokens",
        "tail_tokens",
    )

    state: ConversationState
    omitted: Omitted | None
    flat: bool

    def _zero(self) -> None:
        self.tail_tokens = self.held_tokens = self.tail_messages = self.tail_bytes = 0
        self.tail_pinned = self.tail_pinned_tokens = 0
        self.shown_messages = self.shown_turns = self.results = self.left_out = 0
        self._hidden = self._early = 0
        self.omitted = None
        self.gains: dict[str, list[int]] = {}
        base = self.meta.base
        self._joins = not any(has_attachments(item.body) for item in base.pinned) and not any(
            has_attachments(p.result) for p in base.pins
        )
        """Whether the tail may be flat: only its messages and results decide."""
        self._follow_all(())

    def _count(self, entry: Entry) -> None:
        """Take an entry into the statistics."""
        kind = entry.kind
        self.tail_bytes += len(entry.body)
        if entry.variants:
            self._gain(entry)
        if kind in RENDERED:
            self.tail_tokens += entry.tokens
            self.tail_messages += 1
            if entry.variants and entry.out:
                return
            if kind == Kind.RESULT:
                self.results += 1
                self._early += entry.link == EARLY
            else:
                self.shown_messages += 1 + (len(entry.shown_calls()) if entry.calls else 0)
                self.shown_turns += kind == Kind.USER
            if self.flat:
                self._follow(entry)
        elif kind == Kind.HELD:
            self.held_tokens += entry.tokens
            self.tail_messages += entry.count
            if entry.tokens:
                gain = self.gains.setdefault(LEFT_OUT, [0, 0])
                gain[0] += entry.count
                gain[1] += entry.tokens
            if entry.tokens or hides(entry.variant):
                self._omit(entry)
            self._joins = self._joins and not entry.tokens
            self.flat = self.flat and self._joins
        elif kind == Kind.SYSTEM:
            self.tail_pinned += 1
            self.tail_pinned_tokens += entry.tokens
            # What alone is too long is cut: its tokens may be the same after that, its text is not.
            whole = any(
                item.offset == entry.offset and item.body == entry.body
                for item in self.state.pinned
            )
            self._joins = self._joins and whole and not has_attachments(entry.body)
            self.flat = self.flat and self._joins

    def _gain(self, entry: Entry, since: int = 0) -> None:
        """Note what an entry's variants from number ``since`` on save, and what follows from
        them.
        """
        before, out, name, variant = entry.full, False, "", ""
        if since:
            before = entry.variants[since - 1][2]
        for _, variant, tokens in entry.variants[since:]:
            name, out = _named(variant)
            gain = self.gains.get(name)
            if gain is None:
                gain = self.gains[name] = [0, 0]
            if out:
                gain[0] += entry.count
            gain[1] += before - tokens
            before = tokens
        if entry.kind == Kind.HELD:
            return
        if hides(variant):
            self._omit(entry)
        if out:
            self._hidden += 1
            if variant == _LEFT_OUT:
                self.left_out += 1
                self.held_tokens += entry.full
                self._joins = self.flat = False

    def _count_again(self, entry: Entry, tokens: int, size: int, since: int) -> None:
        """Count an entry again whose variants from number ``since`` on are new."""
        self.tail_tokens += entry.tokens - tokens
        self.tail_bytes += len(entry.body) - size
        if entry.kind != Kind.RESULT:
            calls = len(entry.calls or ())
            before = 1 + len(shown_calls(entry.variants[:since], calls))
            self.shown_messages -= before - (0 if entry.out else 1 + len(entry.shown_calls()))
            self.shown_turns -= entry.out and entry.kind == Kind.USER
        elif entry.out:
            self.results -= 1
            self._early -= entry.link == EARLY
        self._gain(entry, since)

    def _omit(self, entry: Entry) -> None:
        """Note what no render shows."""
        more = Omitted(entry.count, entry.start, entry.offset)
        self.omitted = more if self.omitted is None else self.omitted.and_(more)

    def _follow_all(self, entries: Iterable[Entry]) -> None:
        """See whether a tail of these entries is flat; those that are left out do not matter."""
        self.flat, self.awaited, self._group, self._next = self._joins, 0, -1, 0
        for entry in entries:
            if not self.flat:
                break
            if entry.kind in RENDERED and not entry.out:
                self._follow(entry)

    def _follow(self, entry: Entry) -> None:
        """See whether the tail is still flat: results stand right after their calls, in order, and
        nothing is to be replaced.
        """
        if entry.kind == Kind.RESULT:
            if not self.awaited or entry.link != (self._group, self._next):
                self.flat = False
                return
            self.awaited -= 1
            self._next += 1
        elif self.awaited:
            self.flat = False
            return
        elif entry.calls and entry.variant != "only:":
            self.awaited, self._group, self._next = len(entry.calls), entry.offset, 0
            if entry.variants:
                self.flat = False
        if entry.kind != Kind.USER and has_attachments(entry.body):
            self.flat = False
