"""What a store answers from its records in the order of their time, whichever way it keeps them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import msgspec

from projections.memory.resolution import Record
from streams.memory.store import Filter, Stats

COUNTED_AT_ONCE = 2_000
"""Records that are in memory while they are counted; between these others have their turn."""
FIRST = 50
"""Records that are read at first, before it is known how large they are."""
NEIGHBOURS_BYTES = 2 << 20
"""Bytes of the neighbours before a record, and of those after it, with which they end."""


class Part(NamedTuple):
    """Records in order, their bytes as JSON, and whether there are ``more`` behind them."""

    records: list[Record]
    size: int
    more: bool


def read_within(
    read: Callable[[tuple[int, str] | None, int], list[Record]],
    after: tuple[int, str] | None,
    limit: int,
    most: int,
) -> Part:
    """At most ``limit`` records, which end with the one that makes them ``most`` bytes. No more of
    them are in memory than that, and one part.

    Args: ``read`` returns so many records from behind ``(created, id)`` on, fewer where they end.
    """
    found, size, more = list[Record](), 0, True
    while more and len(found) < limit and size < most:
        fit = 1 + (most - size) * len(found) // max(1, size) if found else FIRST
        count = min(limit - len(found), fit)
        part = read(after, count + 1)
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
    def _by_time(
        self, only: Filter, after: tuple[int, str] | None, limit: int, *, older: bool
    ) -> list[Record]:
        """Records from behind ``(created, id)`` on, towards the older or the newer ones."""

    def page(self, only: Filter, after: tuple[int, str] | None, limit: int) -> list[Record]:
        return self._by_time(only, after, limit, older=True)

    def neighbours(
        self, only: Filter, memory_id: str, before: int, after: int
    ) -> list[Record] | None:
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
        earlier = read_within(older, at, before, NEIGHBOURS_BYTES).records
        later = read_within(newer, at, after, NEIGHBOURS_BYTES).records
        return [*reversed(earlier), middle, *later]

    def _undeleted(
        self, only: Filter, after: tuple[int, str] | None, limit: int, *, older: bool
    ) -> list[Record]:
        found: list[Record] = []
        while left := limit - len(found):
            page = self._by_time(only, after, left, older=older)
            found += [one for one in page if not one.deleted]
            if len(page) < left:
                break
            after = page[-1].created, page[-1].id
        return found

    def stats(self, only: Filter) -> Stats:
        only, stats = replace(only, expired=True), Stats()
        after: tuple[int, str] | None = None
        while page := self._by_time(only, after, COUNTED_AT_ONCE, older=True):
            stats.count(page)
            after = page[-1].created, page[-1].id
        return stats
