"""What every store of the long-term memory promises.

A store is a projection of the topic of memories. It can be dropped and fed again: equal news make
an equal store, in whatever order they come (``projections.memory.resolution``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from projections.memory.identity import Scope
from projections.memory.news import News
from projections.memory.raw_turns import Turn
from projections.memory.resolution import Record
from projections.names import Key


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records somebody may see or wants to see: those that have all that is given.

    ``tenant`` is always the credential's. ``as_of`` (microseconds) shows what was known then.
    ``expired`` shows those that no longer stand, too; ``conversations`` are all that may have
    taught them. ``scope``: of exactly this one.
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
    ``relevance``: from 0 to 1, how improbable it is that it fits by chance.
    """

    record: Record
    score: float
    relevance: float


@dataclass(slots=True)
class Stats:
    """How many records there are, by type, and how many no longer stand."""

    records: int = 0
    expired: int = 0
    types: dict[str, int] = field(default_factory=dict)


class MemoryStore(Protocol):
    """Records by scope, searched by text. ``streams.memory.sqlite_store`` is the embedded one."""

    def checkpoints(self) -> dict[int, int]:
        """Of each partition of the topic the offset of the last record that was taken in."""

    def apply(self, news: Sequence[News], checkpoints: Mapping[int, int]) -> None:
        """Take news in, with the checkpoints after it: all of it or nothing."""

    def get(self, only: Filter, memory_id: str) -> Record | None:
        """A record by its id, None if there is none that the filter admits."""

    def page(self, only: Filter, after: tuple[int, str] | None, limit: int) -> list[Record]:
        """Records by their time, newest first, from behind ``(created, id)`` on."""

    def neighbours(
        self, only: Filter, memory_id: str, before: int, after: int
    ) -> list[Record] | None:
        """A record between those of its scope that came just before and after it, oldest first;
        None where it is not there.
        """

    def search(self, only: Filter, words: Collection[str], limit: int) -> list[Hit]:
        """The records whose text has some of these stems (``projections.memory.words``), or that
        have such tags, best first.
        """

    def superseded_turns(
        self, tenant: str, turns: Collection[tuple[Key, int]], as_of: int | None
    ) -> set[tuple[Key, int]]:
        """Those of a tenant's events that taught a record which no longer stands at ``as_of``: what
        they say was corrected or deleted.
        """

    def stats(self, only: Filter) -> Stats:
        """Counts of what the filter admits."""

    def digests(self) -> dict[Scope, str]:
        """The digest of each scope that has records (``projections.memory.resolution.digest``)."""

    def drop(self) -> None:
        """Delete everything, the checkpoints too."""

    def close(self) -> None:
        """Close what is open."""
