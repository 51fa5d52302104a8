"""What a store answers from its records in the order of their time, whichever way it keeps them. It
is found in steps, as a store may have to look at all that it has: others have their turn between.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeAlias

import msgspec

from projections.memory.resolution import Record
from streams.memory.store import Filter, Stats
from streams.runtime.steps import Steps

LOOKED_AT = 1_000
"""Records that a step looks at."""
FIRST = 50
"""Records that are read at first, before it is known how large they are."""
NEIGHBOURS_BYTES = 2 << 20
"""Bytes of the neighbours before a record, and of those after it, with which they end."""
Place: TypeAlias = tuple[int, str]
"""Where a record stands: ``(created, id)``."""


class Part(NamedTuple):
    """Records in order, their bytes as JSON, and whether there are ``more`` behind them."""

    records: list[Record]
    size: int
    more: bool


class Look(NamedTuple):
    """What one step found, and the last place that it looked at; None: it looked at all."""

    records: list[Record]
    end: Place | None


def read_within(
    read: Callable[[Place | None, int], Steps[list[Record]]],
    after: Place | None,
    limit: int,
    most: int,
) -> Steps[Part]:
    """At most ``limit`` records, which end with the one that makes them ``most`` bytes. No more of
    them are in memory than that, and one part.

    Args: ``read`` returns so many records from behind a place on, fewer where they end.
    """
    found, size, more = list[Record](), 0, True
    while more and len(found) < limit and size < most:
        fit = 1 + (most - size) * len(found) // max(1, size) if found else FIRST
        count = min(limit - len(found), fit)
        part = yield from read(after, count + 1)
        more = len(part) > count
        for one in part[:count]:
            if size >= most:
                more = True
                break
            found.append(one)
            size += len(msgspec.json.encode(one))
            after = one.created, one.id
    return Part(found, size, more)


class RecordsByTime(ABC):
    """Pages, neighbours and counts of records."""

    @abstractmethod
    def get(self, only: Filter, memory_id: str) -> Record | None:
        """A record by its id, None if there is none that the filter admits."""

    @abstractmethod
    def _look(
        self, only: Filter, after: Place | None, looked_at: int, limit: int, *, older: bool
    ) -> Look:
        """Of so many records, or somewhat more, from behind a place on, towards the older or the
        newer ones, the first ``limit`` that the filter admits.
        """

    def _by_time(
        self, only: Filter, after: Place | None, limit: int, *, older: bool
    ) -> Steps[list[Record]]:
        found, looked_at = list[Record](), min(limit, LOOKED_AT)
        while len(found) < limit:
            look = self._look(only, after, looked_at, limit - len(found), older=older)
            found += look.records
            if look.end is None:
                break
            after, looked_at = look.end, LOOKED_AT
            yield
        return found

    def page(self, only: Filter, after: Place | None, limit: int) -> Steps[list[Record]]:
        return self._by_time(only, after, limit, older=True)

    def neighbours(
        self, only: Filter, memory_id: str, before: int, after: int
    ) -> Steps[list[Record] | None]:
        middle = self.get(only, memory_id)
        if middle is None:
            return None
        scope, at = middle.scope, (middle.created, middle.id)
        own = Filter(
            scope.tenant,
            scope.user,
            kinds=(middle.kind,),
            as_of=only.as_of,
            expired=only.expired,
            conversations=only.conversations,
            scope=scope,
            erased=only.erased,
        )
        older = partial(self._undeleted, own, older=True)
        newer = partial(self._undeleted, own, older=False)
        earlier = yield from read_within(older, at, before, NEIGHBOURS_BYTES)
        later = yield from read_within(newer, at, after, NEIGHBOURS_BYTES)
        return [*reversed(earlier.records), middle, *later.records]

    def _undeleted(
        self, only: Filter, after: Place | None, limit: int, *, older: bool
    ) -> Steps[list[Record]]:
        found: list[Record] = []
        while left := limit - len(found):
            page = yield from self._by_time(only, after, left, older=older)
            found += [one for one in page if not one.deleted]
            if len(page) < left:
                break
            after = page[-1].created, page[-1].id
        return found

    def stats(self, only: Filter) -> Steps[Stats]:
        only, stats = replace(only, expired=True), Stats()
        after: Place | None = None
        while True:
            look = self._look(only, after, LOOKED_AT, sys.maxsize, older=True)
            stats.count(look.records)
            if look.end is None:
                return stats
            after = look.end
            yield
