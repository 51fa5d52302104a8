"""Activating a summary."""

from __future__ import annotations

from projections.events import types as events
from projections.fold.append import fold_again
from projections.fold.known_events import KnownEvents, NotRead
from projections.fold.rehydration import tools_of
from projections.fold.summary_acceptance import covers_unanswered, drop_span, results_apart
from projections.fold.summary_length import fit_summary
from projections.fold.undone_cuts import made_since, replace_entries, undone, whole_again
from projections.names import parse_position
from projections.reducers.enforce_limits import widen_due
from projections.reducers.variants import Variants
from projections.window.bodies import result_call_id
from projections.window.conversation_state import find_call
from projections.window.entry import RANGES, Entry, Kind
from projections.window.groups import Link
from projections.window.meta import ActiveSummary
from projections.window.trace_steps import Step
from projections.window.window import Window


def active_summary(window: Window, data: events.Summary, offset: int, tokens: int) -> ActiveSummary:
    """What a window keeps of a summary that it takes: as much of its text as the policy allows. Its
    predecessor is the one it names, or it would not be taken.
    """
    policy = window.policy
    text, tokens = fit_summary(
        data.text,
        tokens,
        policy.summary_max_tokens,
        policy.encoding,
        window.position_of(offset),
    )
    return ActiveSummary(
        summary_id=data.summary_id,
        offset=offset,
        text=text,
        tokens=tokens,
        to=parse_position(data.span.to).offset,
        trust=data.trust,
        previous=data.previous,
        previous_offset=None
        if data.previous_position is None
        else parse_position(data.previous_position).offset,
    )


class Acceptance:
    """Activates a summary in a window; cuts are made again over what follows, so that it makes no
    difference when the summary came.

    Shortenings made since it was found to be due are taken back: had it come at once, they would
    not have been made. Each entry is made whole only when the cuts come to it, because the next one
    may shorten it again: all of them at once may be far more than a window holds.
    """

    def __init__(self, window: Window, offset: int, data: events.Summary, tokens: int) -> None:
        due = window.meta.due
        self.window = window
        self._offset, self._data, self._tokens = offset, data, tokens
        self._at = due.at if due else offset
        self._last = parse_position(data.span.to).offset
        self._kept = set(events.absolute(data.span.kept))
        self.late = made_since(window, self._at, self._last, self._kept)
        """The offsets of entries that are to be whole again."""
        self._wanted = set(self.late)
        self._tools: dict[Link, str] = {}
        self._parted: set[Link] = set()
        """Calls whose results the span took: later ones may answer them."""
        self._before = (window.shown_messages, window.tail_tokens)
        self._active: ActiveSummary | None = None
        self._done = 0
        """How many entries the cuts have reached."""

    def go_on(self, texts: KnownEvents) -> ActiveSummary:
        """Activate it, or go on with that.

        Raises:
            NotRead: call this again once ``texts`` knows the first of the events. Until it returns,
                the window is of no use.
        """
        if self._active is None:
            self._active = self._activated(texts)
        while self._done < len(self.window.tail):
            self._reach(self._done, texts)
            self._done += 1
        window = self.window
        widen_due(window)
        messages, tokens = self._before
        step = Step("summarize", messages, window.shown_messages, tokens, window.tail_tokens)
        window.note_cut(self._offset, tokens, [step])
        return self._active

    def _activated(self, texts: KnownEvents) -> ActiveSummary:
        window, data = self.window, self._data
        if self.late:
            self._tools = tools_of(window.tail)
        inside = [offset for offset in self.late if offset <= self._last]
        replace_entries(window, undone(window, inside, self._at, texts))
        unanswered = covers_unanswered(window, self._last, self._kept)
        apart = results_apart(window, data)
        self._parted = drop_span(window, self._last, data.span.count, self._kept, apart)
        summary = active_summary(window, data, self._offset, self._tokens)
        summary.waited = self._waited(unanswered)
        window.activate_summary(summary)
        window.begin_refold()
        return summary

    def _waited(self, unanswered: bool) -> int | None:
        """Where the latest summary stands that covers a call which may have waited at the end of
        its span: this one, if it covers an ``unanswered`` call, or one that is suspended there.
        """
        meta = self.window.meta
        held = (each.call[0] for each in meta.base.suspensions if each.call is not None)
        if unanswered or any(at <= self._last and at not in self._kept for at in held):
            return self._offset
        return None if meta.summary is None else meta.summary.waited

    def _reach(self, i: int, texts: KnownEvents) -> None:
        entry = self.window.tail[i]
        if entry.offset > self._last and entry.offset in self._wanted and entry.kind not in RANGES:
            self.window.replace_entry(i, self._whole(entry, texts))
        if self._parted and entry.offset > self._last:
            self._answer(self.window.tail[i])
        fold_again(self.window, i, self._at)

    def _answer(self, entry: Entry) -> None:
        """A result that came when its call seemed to have one is the result of that call now."""
        if entry.kind != Kind.RESULT or entry.link is not None or not entry.body:
            return
        call = find_call(self.window.state, result_call_id(entry.body))
        if call is not None and (call.offset, call.index) in self._parted:
            self.window.answer(entry, call)

    def _whole(self, entry: Entry, texts: KnownEvents) -> Entry:
        try:
            variants = Variants.of(self.window)
            whole = whole_again(entry, self._at, texts, variants, self._tools)
        except NotRead:
            rest = (at for at in self.late if at > entry.offset and not texts.has(at))
            raise NotRead([entry.offset, *texts.unread(rest)]) from None
        texts.trim()
        return entry if whole is None else whole


class LateSummary:
    """A summary whose window is shortened since it was due: it is folded into a copy of the window
    while its events are read. Nobody may change ``window`` until that copy takes its place.
    """

    def __init__(self, window: Window, offset: int, data: events.Summary, tokens: int) -> None:
        self.window = window
        self._what = (offset, data, tokens)
        self._acceptance: Acceptance | None = None

    def go_on(self, texts: KnownEvents) -> Window:
        """The window with the summary; raises ``NotRead`` as :meth:`Acceptance.go_on`."""
        if self._acceptance is None:
            self._acceptance = Acceptance(self.window.copy(), *self._what)
        acceptance = self._acceptance
        acceptance.go_on(texts)
        self._acceptance = None
        return acceptance.window
