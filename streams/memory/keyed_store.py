"""A store of records that is kept by key, whichever holds its rows: all that it answers.

The engine that has the rows finds records by words, after the tenant, the user and the channel have
left all others out. It ranks by BM25 over everybody's texts, so the best it finds are scored again
by counts of the tenant or user alone (``projections.memory.text_scores``), as every store does.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from projections.events.times import time_at
from projections.memory.identity import Scope
from projections.memory.resolution import Record, digest
from projections.memory.text_scores import WORDS, Corpus, text_scores
from projections.memory.text_scores import Place as Scored
from projections.memory.words import date_words, stems_of
from projections.names import Key
from streams.memory.by_time import Look, Place, RecordsByTime
from streams.memory.kept import codes_of, tag_words
from streams.memory.key_reads import (
    ReadsByKey,
    kept_from,
    known_at,
    records_of,
    seen,
    superseded_from,
    with_sources,
    without_erased,
)
from streams.memory.store import Filter, Hit, by_log

T = TypeVar("T")
CANDIDATES = 300
"""Records that the engine ranks first, which are then scored."""
MORE = 3_000
"""The same while a log's erasure has begun: all of its records may be among them."""


def candidates(only: Filter) -> int:
    """How many records an engine ranks for a search."""
    return MORE if only.erasing else CANDIDATES


class Ranked(NamedTuple):
    """What an engine ranks first: of each id what it comes to, or for ``as_of`` its facts, as they
    are stored. ``having``: how many records have each stem; None: these are all that there are.
    """

    packed: Sequence[bytes]
    having: Mapping[str, int] | None


class KeyedMemories(RecordsByTime):
    """Records by key. Calls may come from any thread."""

    @abstractmethod
    def _read(self, work: Callable[[ReadsByKey], T]) -> T:
        """Read rows."""

    @abstractmethod
    def _ranked(self, only: Filter, stems: Sequence[str]) -> Ranked:
        """The :func:`candidates` that fit some of these stems best."""

    def checkpoints(self) -> dict[int, int]:
        return self._read(lambda there: there.checkpoints())

    def get(self, only: Filter, memory_id: str) -> Record | None:
        places = [(only.tenant, memory_id)]
        return self._read(lambda there: next(seen(there, only, places), None))

    def search(self, only: Filter, words: Collection[str], limit: int) -> list[Hit]:
        stems = list(dict.fromkeys(words))[:WORDS]
        if not stems:
            return []
        ranked = self._ranked(only, stems)
        records = self._admitted(only, ranked.packed)
        return self._scored(only, stems, records, ranked.having)[:limit]

    def composites_of(self, only: Filter, records: Collection[str]) -> list[Record]:
        def work(there: ReadsByKey) -> list[Record]:
            places = sorted(there.fusing([(only.tenant, one) for one in records]))
            found = list(seen(there, only, places))
            found = [one for one in found if not set(one.sources).isdisjoint(records)]
            taken_in = {child for one in found for child in one.children}
            return sorted((one for one in found if one.id not in taken_in), key=lambda one: one.id)

        return self._read(work)

    def superseded_turns(
        self, tenant: str, turns: Collection[tuple[Key, int]], as_of: int | None
    ) -> set[tuple[Key, int]]:
        asked = by_log(tenant, turns)
        return self._read(lambda there: superseded_from(there, asked, as_of))

    def digests(self) -> dict[Scope, str]:
        scopes: defaultdict[Scope, list[Record]] = defaultdict(list)
        for record in self._read(_all_records):
            scopes[record.scope].append(record)
        return {scope: digest(records) for scope, records in scopes.items()}

    def _look(
        self, only: Filter, after: Place | None, looked_at: int, limit: int, *, older: bool
    ) -> Look:
        def work(there: ReadsByKey) -> Look:
            found, looked = list[Record](), 0
            for page in there.by_time(only.tenant, only.user, after, older=older):
                found += seen(there, only, [(only.tenant, memory_id) for _, memory_id in page])
                looked += len(page)
                if page and looked >= looked_at:
                    return Look(found[:limit], page[-1])
            return Look(found[:limit], None)

        return self._read(work)

    def _admitted(self, only: Filter, packed: Sequence[bytes]) -> list[Record]:
        as_of, erased = only.as_of, only.erased
        if as_of is None:
            found = [records_of(one) for one in packed if one]
        else:
            kept = [kept_from(one) for one in packed if one]
            found = self._read(lambda there: known_at(there, kept, as_of))
        if erased is not None:
            found = self._read(lambda there: without_erased(there, found, as_of, erased))
        return [record for own in found for record in own if only.admits(record)]

    def _scored(
        self,
        only: Filter,
        stems: Sequence[str],
        records: Sequence[Record],
        having: Mapping[str, int] | None,
    ) -> list[Hit]:
        wanted = frozenset(stems)
        found: dict[str, list[tuple[int, str]]] = {stem: [] for stem in stems}
        places: dict[int, Scored] = {}
        for number, record in enumerate(records):
            for field, words in _words(record):
                for word in wanted.intersection(words):
                    found[word] += [(number, field)] * words.count(word)
            length, session = len(stems_of(record.text)), record.conversation or ""
            speaker = frozenset(stems_of(record.role or ""))
            places[number] = Scored(number, length, session, None, speaker)
        own = codes_of(Scope(only.tenant, only.user))[-1]
        sessions = {one.session for one in places.values() if one.session}
        codes = {one: codes_of(Scope(only.tenant), one)[-1] for one in sessions}
        sizes = self._read(lambda there: there.sizes([own, *codes.values()]))
        if having is None:
            having = {stem: len({number for number, _ in at}) for stem, at in found.items()}
        lengths = {one: sizes.get(code, (0, 0))[1] for one, code in codes.items()}
        scores = text_scores(
            Corpus(*sizes.get(own, (0, 0))), having, found, places, {"": 0} | lengths
        )
        return [Hit(records[one.number], one.score, one.relevance, one.coverage) for one in scores]


def _words(record: Record) -> Iterator[tuple[str, list[str]]]:
    """The words of a record by field. It counts for the day on which its present text was said."""
    said = record.created if record.revision == 1 else record.confirmed_at
    yield "text", stems_of(record.text)
    yield "dates", stems_of(date_words(time_at(said)))
    yield "speaker", stems_of(record.role or "")
    yield "tags", list(tag_words(record.tags))


def _all_records(there: ReadsByKey) -> list[Record]:
    found: list[Record] = []
    for tenant in there.tenants():
        for page in there.by_time(tenant, None, None, older=False):
            for own in there.records([(tenant, memory_id) for _, memory_id in page]):
                found += with_sources(there, own, None)
    return found
