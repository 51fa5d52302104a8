"""The plainest memory store: it keeps all news as a set and works everything out when asked.

What other stores keep up to date step by step is compared with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from projections.events.types import MemoryDeleted, MemorySaved, SkillSaved
from projections.memory.branches import Branches
from projections.memory.composites import composed
from projections.memory.identity import Scope
from projections.memory.news import Dropped, Fact, LogErased, News, Used, WentBack
from projections.memory.resolution import NEVER, Record, Retrievals, digest, resolve
from projections.names import Key


class PlainMemories:
    """All that was ever said, and nothing else."""

    def __init__(self) -> None:
        self.facts: dict[tuple[Key, int], Fact] = {}
        self.used: dict[tuple[Key, int], Used] = {}
        self.rollbacks: defaultdict[Key, set[tuple[int, int, int]]] = defaultdict(set)
        self.dropped: set[tuple[Key, int]] = set()
        self.erased: set[Key] = set()

    def take(self, news: Iterable[News]) -> None:
        """Add news; what is known already changes nothing."""
        for one in news:
            if isinstance(one, Fact):
                self.facts[one.log, one.offset] = one
            elif isinstance(one, Used):
                self.used[one.log, one.offset] = one
            elif isinstance(one, WentBack):
                self.rollbacks[one.log].add((one.by, one.to, one.at))
            elif isinstance(one, Dropped):
                self.dropped.add((one.log, one.offset))
            else:
                assert isinstance(one, LogErased)
                self.erased.add(one.log)

    def records(self, as_of: int | None = None) -> list[Record]:
        """Every record, expired ones included, as of a time."""
        branches = {
            log: Branches((by, to) for by, to, at in found if as_of is None or at <= as_of)
            for log, found in self.rollbacks.items()
        }
        purged: dict[tuple[Scope, str], int] = {}
        for fact in self.facts.values():
            if isinstance(fact.data, MemoryDeleted) and fact.data.hard:
                place = fact.scope, fact.memory_id
                purged[place] = max(fact.at, purged.get(place, fact.at))
        by_record: defaultdict[tuple[Scope, str], list[Fact]] = defaultdict(list)
        for fact in self.facts.values():
            place = fact.scope, fact.memory_id
            if isinstance(fact.data, MemorySaved | SkillSaved) and fact.at <= purged.get(place, -1):
                continue
            basis = (fact.offset, *fact.learnt_from)
            if fact.log not in self.erased and not any(
                (fact.log, offset) in self.dropped for offset in basis
            ):
                by_record[place].append(fact)

        def stands(fact: Fact) -> bool:
            return fact.log not in branches or branches[fact.log].stands(fact.anchor)

        given = self._given(as_of)
        found = {
            place: resolve(facts, stands, as_of, given.get(place, NEVER))
            for place, facts in by_record.items()
        }
        whole = (
            composed(one, [found.get((one.scope, source)) for source in one.sources])
            if one is not None and one.kind == "composite"
            else one
            for one in found.values()
        )
        return [record for record in whole if record is not None]

    def _given(self, as_of: int | None) -> dict[tuple[Scope, str], Retrievals]:
        found: dict[tuple[Scope, str], Retrievals] = {}
        for one in self.used.values():
            if one.log in self.erased or (one.log, one.offset) in self.dropped:
                continue
            if as_of is None or one.at <= as_of:
                for name, retrieved, hits in one.counts:
                    before = found.get((one.scope, name), NEVER)
                    found[one.scope, name] = Retrievals(
                        before.retrieved + retrieved,
                        before.hits + hits,
                        max(one.at, before.last or one.at),
                    )
        return found

    def digests(self) -> dict[Scope, str]:
        """The digest of each scope that has records."""
        scopes: defaultdict[Scope, list[Record]] = defaultdict(list)
        for record in self.records():
            scopes[record.scope].append(record)
        return {scope: digest(records) for scope, records in scopes.items()}
