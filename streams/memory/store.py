"""What every store of the long-term memory promises.

A store is a projection of the topic of memories. It can be dropped and fed again: equal news make
an equal store, in whatever order they come (``projections.memory.resolution``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, Self, TypeVar

from projections.memory.identity import Scope
from projections.memory.news import News
from projections.memory.raw_turns import Turn
from projections.memory.resolution import Record
from projections.names import Key
from streams.embeddings.embedder import Vectors
from streams.memory.erasures import Erased
from streams.memory.vector_index import NewVector
from streams.runtime.steps import Steps


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records somebody may see or wants to see: those that have all that is given.

    ``tenant`` is always the credential's. ``as_of`` (microseconds) shows what was known then.
    ``expired`` shows those that no longer stand, too; ``conversations`` are all that may have
    taught them. ``scope``: of exactly this one. What ``erased`` logs say counts as if the store had
    their erasure already. It is not part of the question, so cursors do not depend on it.
    ``erasing``: the store may have many records of such logs.
    """

    tenant: str
    user: str | None = None
    channel: str | None = None
    conversation: str | None = None
    kinds: Collection[str] = ("record", "composite")
    types: Collection[str] = ()
    topic: str | None = None
    since: int | None = None
    until: int | None = None
    as_of: int | None = None
    expired: bool = False
    conversations: frozenset[str] | None = None
    scope: Scope | None = None
    erased: Erased = field(default=None, compare=False, repr=False)
    erasing: bool = field(default=False, compare=False, repr=False)

    @property
    def within(self) -> Scope:
        """Whose texts a search has to look at: the tenant's, a user's, or those of an anonymous
        conversation.
        """
        if self.scope is not None and self.scope.conversation is not None:
            return self.scope
        return Scope(self.tenant, self.user)

    def admits(self, record: Record) -> bool:
        """Whether a record is one of these."""
        return (
            self.admits_scope(record.scope)
            and self.conversation in (None, record.conversation)
            and (self.conversations is None or record.conversation in self.conversations)
            and record.kind in self.kinds
            and (not self.types or record.type in self.types)
            and self.topic in (None, record.topic)
            and (self.since is None or record.created >= self.since)
            and (self.until is None or record.created <= self.until)
            and (self.expired or record.stands)
        )

    def admits_turn(self, turn: Turn) -> bool:
        """Whether a turn is of these; ``kinds`` and what only records have are not looked at."""
        return (
            self.admits_place(turn.scope, f"{turn.scope.tenant}/{turn.conversation}")
            and (self.since is None or turn.at >= self.since)
            and (self.until is None or turn.at <= self.until)
            and (self.as_of is None or turn.at <= self.as_of)
        )

    def admits_place(self, scope: Scope, log: str) -> bool:
        """Whether what a log has in a scope is of these."""
        tenant, _, conversation = log.partition("/")
        return (
            self.admits_scope(scope)
            and tenant == self.tenant
            and self.conversation in (None, conversation)
            and (self.conversations is None or conversation in self.conversations)
            and (self.erased is None or not self.erased(Key(tenant, conversation)))
        )

    def admits_scope(self, scope: Scope) -> bool:
        """Whether what is in a scope may be of these."""
        return (
            scope.tenant == self.tenant
            and self.user in (None, scope.user)
            and self.channel in (None, scope.channel)
            and self.scope in (None, scope)
        )


class Hit(NamedTuple):
    """A record that a search found. ``score``: how well its text fits, where larger is better;
    ``relevance``: from 0 to 1, how improbable it is that it fits by chance; ``coverage``: how much
    of the question any text has (``projections.memory.text_scores``).
    """

    record: Record
    score: float
    relevance: float
    coverage: float = 1.0

    @property
    def place(self) -> tuple[Scope, str]:
        """Which record it is."""
        return self.record.scope, self.record.id


@dataclass(slots=True)
class Stats:
    """How many records there are, by type, and how many no longer stand."""

    records: int = 0
    expired: int = 0
    types: dict[str, int] = field(default_factory=dict)

    def count(self, records: Iterable[Record]) -> None:
        """Count these records, the expired among them included."""
        for record in records:
            if record.stands:
                self.records += 1
                self.types[record.type] = self.types.get(record.type, 0) + 1
            else:
                self.expired += 1


def by_log(tenant: str, turns: Collection[tuple[Key, int]]) -> dict[Key, set[int]]:
    """The offsets of a tenant's turns by their logs; other tenants' are left out."""
    found: defaultdict[Key, set[int]] = defaultdict(set)
    for log, offset in turns:
        if log.tenant == tenant:
            found[log].add(offset)
    return found


class MemoryStore(Protocol):
    """Records by scope, searched by text. ``streams.memory.sqlite_store`` is the embedded one,
    ``streams.memory.redis_store`` is shared. Calls may come from any thread. What may take long is
    done in steps.
    """

    def checkpoints(self) -> dict[int, int]:
        """Of each partition of the topic the offset of the last record that was taken in."""

    def apply(self, news: Sequence[News], checkpoints: Mapping[int, int]) -> None:
        """Take news in, with the checkpoints after it; these never without all of the news."""

    def get(self, only: Filter, memory_id: str) -> Record | None:
        """A record by its id, None if there is none that the filter admits."""

    def page(self, only: Filter, after: tuple[int, str] | None, limit: int) -> Steps[list[Record]]:
        """Records by their time, newest first, from behind ``(created, id)`` on."""

    def neighbours(
        self, only: Filter, memory_id: str, before: int, after: int
    ) -> Steps[list[Record] | None]:
        """A record between those of its scope that came just before and after it, oldest first,
        but for deleted ones, and of the filter's ``conversations`` alone; None where it is not
        there. Those on one side end after some bytes (``streams.memory.by_time``).
        """

    def search(self, only: Filter, words: Collection[str], limit: int) -> list[Hit]:
        """The records whose text has some of these stems (``projections.memory.words``), or that
        have such tags, best first. Of very many stems the first are looked for
        (``projections.memory.text_scores.WORDS``).
        """

    def composites_of(self, only: Filter, records: Collection[str]) -> list[Record]:
        """The composites that some of these records are sources of, and that no other of them has
        taken in. A search finds composites by their sources.
        """

    def superseded_turns(
        self, tenant: str, turns: Collection[tuple[Key, int]], as_of: int | None
    ) -> set[tuple[Key, int]]:
        """Those of a tenant's events that taught a record which no longer stands at ``as_of``, or
        which says another text then: what they say was corrected or deleted.
        """

    def stats(self, only: Filter) -> Steps[Stats]:
        """Counts of what the filter admits."""

    def digests(self) -> dict[Scope, str]:
        """The digest of each scope that has records (``projections.memory.resolution.digest``)."""

    def drop(self) -> None:
        """Delete everything, the checkpoints too."""

    def close(self) -> None:
        """Close what is open."""


class Found(Protocol):
    """What a search found; hits of one ``place`` are one."""

    @property
    def place(self) -> Hashable:
        """Which record or turn it is."""

    @property
    def score(self) -> float:
        """Larger is better."""


H = TypeVar("H", bound=Found)


class TextVectors(Protocol[H]):
    """The vectors of a store's texts, each of one model. A text is named by a number, which no
    other text of its store has at the same time.
    """

    @property
    def model(self) -> str | None:
        """The model whose vectors are searched; None before the first is complete."""

    @property
    def count(self) -> int:
        """How many there are, of all models."""

    @property
    def epoch(self) -> tuple[int, int]:
        """Another one whenever texts that have vectors may have lost them."""

    def hold(self) -> bool:
        """Whether it is on this process to make them: of those that share a store, one does."""

    def missing(self, model: str, after: int, limit: int) -> Sequence[tuple[int, str, str]]:
        """Rows ``(number, scope, text)`` of texts behind a number without a model's vector."""

    def add(self, model: str, vectors: Sequence[NewVector]) -> None:
        """Add vectors; a text that was deleted meanwhile gets none.

        Raises:
            EmbeddingsUnavailable: they are not as long as the model's others.
        """

    def use(self, model: str) -> None:
        """Search the vectors of a model from now on; those of others are deleted."""

    def nearest(self, only: Filter, vector: Vectors, limit: int) -> list[H]:
        """What has a text that is nearest to a vector of the model in use, best first; a hit's
        score is the cosine.
        """


class VectorStore(MemoryStore, Protocol):
    """A store that has vectors of its texts."""

    @property
    def vectors(self) -> TextVectors[Hit]:
        """Its vectors."""


class LocalStore(VectorStore, Protocol):
    """A store in a file or folder of its own, that one process writes; without a path it goes with
    the process.
    """

    damaged: bool
    """Whether what it has on disk was found to be damaged: :meth:`drop` makes it anew."""

    def __init__(self, path: Path | None = None, *, building: bool = False) -> None:
        """Open it, or begin anew where it is damaged, of another version or none of ours."""

    @property
    def path(self) -> Path | None:
        """Where it lies; None for one that goes with the process."""

    def finish(self) -> None:
        """Make what was built a store that lasts."""

    def tidy(self) -> None:
        """Rewrite what still holds deleted texts, where it is time (``streams.memory.wipes``). An
        ``apply`` does so, too: call this where nothing more comes.
        """

    def adopt(self, other: Self) -> None:
        """Become another one, which must not be used any more. Readers find one or the other."""

    @classmethod
    def copied(cls, path: Path) -> Self | None:
        """What there is now, also while another process writes it, in one that goes with this
        process; None where there is nothing, or what cannot be read.
        """
