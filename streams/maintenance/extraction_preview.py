"""What this release's rules would find in the conversations' logs: a store of it, to be compared
with what was extracted before. Nothing is appended, and no model is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from projections.errors import InvalidPosition
from projections.events.memories import MemorySaved
from projections.events.times import parse_micros
from projections.events.types import AnyEvent, RollbackEvent
from projections.fold.outcomes import Outcome, Status
from projections.memory.branches import Branches
from projections.memory.extraction.candidate import Candidate
from projections.memory.extraction.extractor import Extractor
from projections.memory.extraction.memory_events import Taught, memory_events
from projections.memory.news import Fact
from projections.names import Key, parse_position
from projections.policy.policy import Rules
from projections.window.window import Window
from streams.log.log import Log
from streams.maintenance.republish import Progress
from streams.memory.sqlite_store import SqliteMemories
from streams.recovery.shadow_fold import ShadowFold


@dataclass(slots=True)
class _Talk:
    """One conversation on its way through the rules."""

    extractor: Extractor = field(default_factory=Extractor)
    found: list[Candidate] = field(default_factory=list)
    offsets: dict[str, int] = field(default_factory=dict)
    """Where each event id stands."""
    rollbacks: list[tuple[int, int]] = field(default_factory=list)

    def hear(self, event: AnyEvent, offset: int) -> None:
        """Take an event that was applied."""
        if isinstance(event, RollbackEvent):
            try:
                to = parse_position(event.data.to).offset
            except InvalidPosition:
                to = self.offsets[event.data.to]
            self.rollbacks.append((offset, to))
        self.offsets[event.id] = offset
        self.found += self.extractor.feed(offset, event)

    def standing(self) -> Iterator[Candidate]:
        """What is found in events that no rollback abandoned."""
        branches = Branches(self.rollbacks)
        return (one for one in self.found if all(map(branches.stands, one.offsets)))


async def extracted(
    log: Log, rules: Rules, store: SqliteMemories, progress: Progress | None = None
) -> None:
    """Fill a store with what the rules find in every log; of erased ones nothing.

    Raises:
        KafkaUnavailable: the log cannot be read.
        KeyUnusable: the log cannot be read without a master key that is missing.
    """
    ends = await log.end_offsets()
    done, total = 0, sum(ends.values())

    def tell(at: int) -> None:
        if progress is not None:
            progress(min(done + at, total), total)

    for partition, end in sorted(ends.items()):
        talks: dict[Key, _Talk] = {}

        def heard(
            key: Key, event: AnyEvent, outcome: Outcome, talks: dict[Key, _Talk] = talks
        ) -> None:
            if outcome.status is Status.APPLIED and not key.of_user:
                talks.setdefault(key, _Talk()).hear(event, outcome.offset)

        fold = ShadowFold(log, partition, rules, None, heard=heard)
        await fold.advance(end - 1, tell)
        for key, talk in talks.items():
            window = fold.windows[key]
            if not window.meta.erased:
                store.apply(list(_facts(window, talk.standing())), {})
        done += end
        tell(0)


def _facts(window: Window, candidates: Iterator[Candidate]) -> Iterator[Fact]:
    """The facts that the log would have of these, each at the event that taught it."""
    state = window.state
    taught = Taught(window.key, window.partition, state.user, state.channel, None)
    for number, found in enumerate(candidates):
        for flat in memory_events(taught, [found]):
            fields = {name: flat[name] for name in flat if name not in ("type", "id", "time")}
            data = msgspec.convert(fields, MemorySaved)
            at = parse_micros(found.time) or 0
            # Offsets of their own: one event may teach several.
            yield Fact(window.key, number, at, (), data)
