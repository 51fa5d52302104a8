"""What many facts of one record come to is remembered: those that follow are taken in alone.

A store that read all facts of a record with each new one would take in a thousand repeats of a text
ever more slowly, and all tenants wait for what was saved before.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable

from projections.events.types import MemoryFused
from projections.memory.news import Fact
from projections.memory.resolution import STATED, Resolution, order_of
from streams.memory.text_changes import RecordText, TextsOf

MANY = 64
"""Facts of a record from which on what they come to is remembered: fewer are read again in about a
millisecond.
"""
MOST = 4_096
"""Records that are remembered, those that changed last: a few KiB each."""


class Standing:
    """What one record's facts come to, in their order.

    Args:
        facts: all of them, in any order.
        stands: whether a fact's branch of its log stands.
        text_of: returns the text that a statement has in the index.
    """

    def __init__(
        self,
        facts: Iterable[Fact],
        stands: Callable[[Fact], bool],
        text_of: Callable[[Fact], RecordText],
    ) -> None:
        self.resolution = Resolution()
        self.first: int | None = None
        """When it was stated first."""
        self.count = 0
        """How many facts there are."""
        self._text_of = text_of
        self._last = (0, "", 0)
        self._texts: dict[str, RecordText] = {}
        self._add(facts, stands)

    def texts(self, record: int, scope: str, *, known: bool) -> list[TextsOf]:
        """The texts that are stated, each as it was first said, with the tags of all that state
        it; those of composites are found by their sources.
        """
        texts = list(self._texts.values())
        return [TextsOf(record, scope, known, texts)] if texts or known else []

    def follow(
        self, facts: Collection[Fact], stands: Callable[[Fact], bool], record: int, scope: str
    ) -> list[TextsOf] | None:
        """Add facts, and return what changes in the record's texts. None, and none is added, where
        one of them does not follow what is there.
        """
        if any(order_of(fact) <= self._last for fact in facts):
            return None
        before = len(self._texts)
        if self._add(facts, stands):
            return self.texts(record, scope, known=True)
        new = list(self._texts.values())[before:]
        return [TextsOf(record, scope, False, new)] if new else []

    def _add(self, facts: Iterable[Fact], stands: Callable[[Fact], bool]) -> bool:
        """Add facts; returns whether a text has other tags than it had."""
        changed = False
        for fact in sorted(facts, key=order_of):
            self.count += 1
            self._last = order_of(fact)
            if isinstance(fact.data, STATED):
                if self.first is None:
                    self.first = fact.at
                if not isinstance(fact.data, MemoryFused):
                    changed |= self._say(self._text_of(fact))
            if stands(fact):
                self.resolution.add(fact)
        return changed

    def _say(self, one: RecordText) -> bool:
        """Note a text; returns whether it was there with fewer tags."""
        known = self._texts.setdefault(one.text, one)
        if one.tags == known.tags:
            return False
        tags = " ".join(dict.fromkeys((*known.tags.split(), *one.tags.split())))
        self._texts[one.text] = known._replace(tags=tags)
        return tags != known.tags


class OftenStated:
    """The records of one store with many facts, by number. What it says is of the transaction that
    is under way: whoever ends one with an error calls :meth:`clear`.
    """

    def __init__(self) -> None:
        self._of: OrderedDict[int, Standing] = OrderedDict()
        self._version: int | None = None

    def clear(self) -> None:
        """Remember nothing."""
        self._of.clear()

    def begin(self, db: sqlite3.Connection) -> None:
        """Begin a transaction: what another connection changed since the last is not known."""
        (version,) = db.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version = version
            self.clear()

    def forget(self, records: Iterable[int]) -> None:
        """Records changed in another way than by facts that follow."""
        for record in records:
            self._of.pop(record, None)

    def get(self, record: int) -> Standing | None:
        """What is remembered of a record."""
        return self._of.get(record)

    def keep(self, record: int, standing: Standing) -> None:
        """Remember a record that has changed, if it has many facts."""
        if standing.count < MANY:
            return
        self._of[record] = standing
        self._of.move_to_end(record)
        if len(self._of) > MOST:
            self._of.popitem(last=False)
