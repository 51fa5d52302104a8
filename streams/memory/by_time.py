"""What a store answers from its records in the order of their time, whichever way it keeps them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

from projections.memory.resolution import Record
from streams.memory.store import Filter, Stats

COUNTED_AT_ONCE = 2_000
"""Records that are in memory while they are counted; between these others have their turn."""


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
        earlier = self._undeleted(own, at, before, older=True)
        later = self._undeleted(own, at, after, older=False)
        return [*reversed(earlier), middle, *later]

    def _undeleted(
        self, only: Filter, after: tuple[int, str], limit: int, *, older: bool
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
