"""The tail: its entries, and results that came before their calls."""

from __future__ import annotations

from projections.events.provider_limits import call_ids
from projections.window.bodies import result_call_id, with_call_id
from projections.window.entry import EARLY, Entry
from projections.window.tail_statistics import TailStatistics


class Tail(TailStatistics):
    """The entries of a window's tail; ``start`` is the running number of the first, and
    ``tail_revision`` grows whenever entries already in it were replaced.
    """

    __slots__ = ("_answered", "start", "tail", "tail_revision")

    tail: list[Entry]
    start: int
    tail_revision: int
    _answered: set[tuple[int, int]]
    """The calls further on in the tail that an early result answers."""

    def replace_entry(self, i: int, entry: Entry) -> None:
        """Put another entry in place of one of the tail; whoever calls has it derived or folded
        again.
        """
        self.tail[i] = entry
        self.tail_revision += 1

    def unlink_early(self, after: int, only: int | None = None) -> None:
        """Results that came before their calls wait for them again, where the call stands beyond
        ``after`` (with ``only``: just there).
        """
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

    def _adopt(self, message: Entry) -> None:
        """Results that came before their calls."""
        for i, (call_id, _, _) in enumerate(message.calls or ()):
            for entry in self.tail:
                if entry.offset > message.offset:
                    break
                if entry.link == EARLY and not entry.out and result_call_id(entry.body) == call_id:
                    entry.link = (message.offset, i)
                    if self.meta.due is not None and entry.offset <= self.meta.due.last:
                        # Its span would part the two now: no summary of it could ever be taken.
                        self.meta.due = None
                    sent = call_ids([call[0] for call in message.calls or ()])[i]
                    if sent != call_id:
                        self.tail_bytes -= len(entry.body)
                        entry.sent_id, entry.body = sent, with_call_id(entry.body, sent)
                        self.tail_bytes += len(entry.body)
                    self._answered.add(entry.link)
                    self._early -= 1
                    self.tail_revision += 1
                    break
