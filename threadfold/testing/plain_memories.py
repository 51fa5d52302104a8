"""The plainest memory store: it keeps all news as a set and works everything out when asked.

What other stores keep up to date step by step is compared with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from projections.events.types import MemoryDeleted, MemorySaved, SkillSaved
from projections.memory.branches import Branches
from projections.memory.identity import Scope
from projections.memory.news import Dropped, Fact, LogErased, News, WentBack
from projections.memory.resolution import Record, digest, resolve
from projections.names import Key


class PlainMemories:
    """All that was ever said, and nothing else."""

    def __init__(self) -> None:
        self.facts: dict[tuple[Key, int], Fact] = {}
        self.rollbacks: defaultdict[Key, set[tuple[int, int, int]]] = defaultdict(set)
        self.dropped: set[tuple[Key, int]] = set()
        self.erased: set[Key] = set()

    def take(self, news: Iterable[News]) -> None:
        """Add news; what is known already changes nothing."""
        for one in news:
            if isinstance(one, Fact):
                self.facts[one.log, one.offset] = one
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

        found = (resolve(facts, stands, as_of) for facts in by_record.values())
        return [record for record in found if record is not None]

    def digests(self) -> dict[Scope, str]:
        """The digest of each scope that has records."""
        scopes: defaultdict[Scope, list[Record]] = defaultdict(list)
        for record in self.records():
            scopes[record.scope].append(record)
        return {scope: digest(records) for scope, records in scopes.items()}
