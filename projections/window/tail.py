"""The tail: its entries, and results that came before their calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from projections.events.provider_limits import call_ids
from projections.window.bodies import result_call_id, with_call_id
from projections.window.conversation_state import OpenCall
from projections.window.entry import EARLY, Entry, Kind
from projections.window.groups import Group
from projections.window.tail_statistics import TailStatistics
from projections.window.unsettled import Unsettled


class Shortened(NamedTuple):
    """An entry that was shortened, and what it had before: its tokens, the bytes of its body, and
    how many variants.
    """

    entry: Entry
    tokens: int
    size: int
    variants: int


class Tail(TailStatistics):
    """The entries of a window's tail; ``start`` is the running number of the first, and
    ``tail_revision`` grows whenever entries already in it were replaced.
    """

    __slots__ = (
        "_answered",
        "_early_of",
        "_trial",
        "_unsettled",
        "start",
        "tail",
        "tail_revision",
    )

    tail: list[Entry]
    start: int
    tail_revision: int
    _answered: set[tuple[int, int]]
    """The calls further on in the tail that an early result answers."""
    _early_of: dict[str, deque[Entry]] | None
    """Results that wait for their calls, oldest first, by the ids of those; some may not wait any
    more. None: nobody has looked yet.
    """

    def _zero(self) -> None:
        super()._zero()
        self._unsettled = Unsettled()
        self._trial: tuple[int, int] | None = None
        self._early_of = None

    def unsettled_groups(self, n: int) -> list[Group]:
        """Those groups of the first ``n`` entries, of which the statistics are, that a later cut
        depends on.
        """
        return self._unsettled.groups(self.tail, n)

    def most_saved(self) -> int:
        """At most so many tokens do shortenings of tool results save now."""
        if self._trial is None:
            return self.tail_tokens
        most, tokens = self._trial
        return most + self.tail_tokens - tokens

    def note_trial(self, most: int) -> None:
        """Note that shortenings save at most so many tokens of what the tail has now, as long as no
        cut is made: it need not be tried again before enough has come.
        """
        self._trial = (most, self.tail_tokens)

    def _count_shortened(self, n: int, shortened: Collection[Shortened]) -> None:
        """Count those of the first ``n`` entries again that were shortened."""
        self._trial = None
        if any(before.entry.kind != Kind.RESULT or before.entry.out for before in shortened):
            self._unsettled.changed()
        for before in shortened:
            self._count_again(*before)
        texts = all(one.entry.kind == Kind.RESULT and not one.entry.out for one in shortened)
        if not (self.flat and texts):
            self._follow_all(self._unsettled.entries(self.tail, n))

    def replace_entry(self, i: int, entry: Entry) -> None:
        """Put another entry in place of one of the tail; whoever calls has it derived or folded
        again.
        """
        self.tail[i] = entry
        self._early_of = None
        self.tail_revision += 1

    def unlink_early(self, after: int, only: int | None = None) -> None:
        """Results that came before their calls wait for them again, where the call stands beyond
        ``after`` (with ``only``: just there).
        """
        self._early_of = None
        early = [
            entry
            for entry in self.tail
            if entry.link is not None
            and entry.link[0] > max(after, entry.offset)
            and only in (None, entry.link[0])
        ]
        ids = (
            {(e.offset, i): call[0] for e in self.tail for i, call in enumerate(e.calls or ())}
            if early
            else {}
        )
        for entry in early:
            own = ids.get(entry.link) if entry.link else None
            if entry.sent_id and own is not None:
                entry.sent_id, entry.body = "", with_call_id(entry.body, own)
            entry.link = EARLY
            self.tail_revision += 1

    def part(self, results: Collection[int]) -> None:
        """Results at these offsets, which came before their calls, do not belong to them."""
        for entry in self.tail if results else ():
            if entry.offset in results:
                entry.link = EARLY
                self._early_of = None
                self.tail_revision += 1

    def answer(self, result: Entry, call: OpenCall) -> None:
        """A result that nobody had asked for when it came belongs to this call; whoever calls has
        it counted again.
        """
        head = next(entry for entry in self.tail if entry.offset == call.offset)
        sent = call_ids([one[0] for one in head.calls or ()])[call.index]
        result.link = (call.offset, call.index)
        if sent != call.id:
            result.sent_id, result.body = sent, with_call_id(result.body, sent)
        self.tail_revision += 1

    def _wait(self, result: Entry) -> None:
        """Note a result that came before its call."""
        if self._early_of is not None:
            self._early_of.setdefault(result_call_id(result.body), deque()).append(result)

    def _adopt(self, message: Entry) -> None:
        """Results that came before their calls."""
        if self._early_of is None:
            self._early_of = {}
            for entry in self.tail:
                if entry.link == EARLY and not entry.out:
                    self._wait(entry)
        ids = [call[0] for call in message.calls or ()]
        for i, (call_id, sent) in enumerate(zip(ids, call_ids(ids), strict=True)):
            waiting = self._early_of.get(call_id)
            while waiting and (waiting[0].link != EARLY or waiting[0].out):
                waiting.popleft()
            if not waiting or waiting[0].offset > message.offset:
                continue
            entry = waiting.popleft()
            entry.link = (message.offset, i)
            if self.meta.due is not None and entry.offset <= self.meta.due.last:
                # Its span would part the two now: no summary of it could ever be taken.
                self.meta.due = None
            if sent != call_id:
                self.tail_bytes -= len(entry.body)
                entry.sent_id, entry.body = sent, with_call_id(entry.body, sent)
                self.tail_bytes += len(entry.body)
            self._answered.add(entry.link)
            self._early -= 1
            self._trial = None
            self._unsettled.changed()
            self.tail_revision += 1
