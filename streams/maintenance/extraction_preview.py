"""What this release's rules, or a model, would find in the conversations' logs: a store of it, to
be compared with what was extracted before. Nothing is appended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from projections.errors import ThreadfoldError, UnknownConversation
from projections.events.memories import MemorySaved
from projections.events.times import parse_micros
from projections.events.types import AnyEvent, RollbackEvent
from projections.fold.outcomes import Outcome, Status
from projections.fold.replay import Logged
from projections.memory.branches import Branches, target_of
from projections.memory.extraction.candidate import Candidate
from projections.memory.extraction.extractor import Extractor
from projections.memory.extraction.memory_events import Taught, memory_events
from projections.memory.extraction.model_records import Whose
from projections.memory.news import Fact
from projections.names import Key, partition_of
from projections.policy.policy import Rules
from projections.window.window import Window
from streams.log.log import Log
from streams.maintenance.republish import Progress
from streams.memory.model_extraction import SpanExtraction
from streams.memory.sqlite_store import SqliteMemories
from streams.recovery.shadow_fold import ShadowFold


class NoAnswer(ThreadfoldError):
    """A model did not answer, so it is unknown what it would find."""


@dataclass(frozen=True, slots=True)
class ByModel:
    """A model that finds instead of the rules, and the conversations it is asked about: each costs
    calls.
    """

    extraction: SpanExtraction
    name: str
    conversations: frozenset[Key]


@dataclass(slots=True)
class _Talk:
    """One conversation on its way through the rules; ``heard`` is kept where a model is asked."""

    extractor: Extractor = field(default_factory=Extractor)
    found: list[Candidate] = field(default_factory=list)
    heard: list[Logged] | None = None
    offsets: dict[str, int] = field(default_factory=dict)
    """Where each event id stands."""
    rollbacks: list[tuple[int, int]] = field(default_factory=list)

    def hear(self, event: AnyEvent, offset: int) -> None:
        """Take an event that was applied."""
        if isinstance(event, RollbackEvent):
            to = target_of(event.data.to, self.offsets)
            assert to is not None, "it was applied"
            self.rollbacks.append((offset, to))
        self.offsets[event.id] = offset
        if self.heard is None:
            self.found += self.extractor.feed(offset, event)
        else:
            self.heard.append((offset, event))

    def standing(self) -> Iterator[Candidate]:
        """What is found in events that no rollback abandoned."""
        branches = Branches(self.rollbacks)
        return (one for one in self.found if all(map(branches.stands, one.offsets)))

    async def ask(self, model: ByModel, window: Window) -> None:
        """Have a model find what is in the events that no rollback abandoned.

        Raises:
            NoAnswer: it did not answer.
        """
        branches = Branches(self.rollbacks)
        events = [one for one in self.heard or () if branches.stands(one[0])]
        if not events:
            return
        key = window.key
        whose = Whose(window.state.user, window.state.channel, key.conversation)
        self.found, answered = await model.extraction.by_model(
            model.name, key, whose, window.partition, events, None, gists=False
        )
        if not answered:
            raise NoAnswer(
                f"model {model.name!r} did not answer for {key}: see its endpoint, then try again"
            )


async def extracted(
    log: Log,
    rules: Rules,
    store: SqliteMemories,
    progress: Progress | None = None,
    model: ByModel | None = None,
) -> None:
    """Fill a store with what the rules find in every log, or a model in those it is asked about; of
    erased ones nothing.

    Raises:
        KafkaUnavailable: the log cannot be read.
        KeyUnusable: the log cannot be read without a master key that is missing.
        UnknownConversation: the model is asked about one that is not there.
        NoAnswer: the model did not answer.
    """
    ends = await log.end_offsets()
    if model is not None:
        ends = {p: ends[p] for p in {partition_of(k, log.partitions) for k in model.conversations}}
    done, total = 0, sum(ends.values())

    def tell(at: int) -> None:
        if progress is not None:
            progress(min(done + at, total), total)

    left = set() if model is None else set(model.conversations)
    for partition, end in sorted(ends.items()):
        talks: dict[Key, _Talk] = {}

        def heard(
            key: Key, event: AnyEvent, outcome: Outcome, talks: dict[Key, _Talk] = talks
        ) -> None:
            if outcome.status is Status.APPLIED and not key.of_user:
                if key not in talks:
                    talks[key] = _Talk(heard=None if model is None else [])
                talks[key].hear(event, outcome.offset)

        wanted = None if model is None else model.conversations
        fold = ShadowFold(log, partition, rules, wanted, heard=heard)
        await fold.advance(end - 1, tell)
        for key, talk in talks.items():
            left.discard(key)
            window = fold.windows[key]
            if not window.meta.erased:
                if model is not None:
                    await talk.ask(model, window)
                store.apply(list(_facts(window, talk.standing())), {})
        done += end
        tell(0)
    if left:
        raise UnknownConversation(f"conversation {min(left).conversation} is not known")


def _facts(window: Window, candidates: Iterable[Candidate]) -> Iterator[Fact]:
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
