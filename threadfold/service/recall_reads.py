"""What a search reads of a memory store and an index of turns, for a thread.

Each is work in steps: a search goes to a thread as seldom as can be, for each time it waits for
one, and others have their turn between the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from projections.memory.planner import SearchPlan
from projections.memory.recall import (
    Channel,
    Recalled,
    correcting,
    joined,
    scored,
    stated,
    telling_words,
)
from projections.names import Key, parse_position
from projections.policy.recall_weights import RecallWeights
from streams.memory.store import Filter, Hit, MemoryStore
from streams.memory.turns import SqliteTurns, TurnHit
from streams.runtime.steps import Steps
from threadfold.service.plan_queries import tags_asked, with_slots, within
from threadfold.service.question import Question

CORRECTIONS = 60
"""Texts of which it is looked whether they correct what was found."""
Found = list[tuple[Channel, list[Recalled]]]


class RecallReads:
    """Reads a memory store, and an index of turns where there is one."""

    def __init__(self, store: MemoryStore, turns: SqliteTurns | None) -> None:
        self._store = store
        self._turns = turns

    def of_records(self, question: Question, plan: SearchPlan, count: int) -> Steps[Found]:
        """What each channel but those of vectors finds of records and skills."""
        only = replace(question.only, kinds=question.kinds_of_store)
        if not only.kinds:
            return []
        by_words = yield from with_slots(plan, partial(self._store.search, only, limit=count))
        channels: Found = [("text", [_recalled(hit) for hit in by_words])]
        if question.facts:
            return channels
        tags = tags_asked(plan, question.failures)
        if tags:
            yield
            hits = self._store.search(only, tags, count)
            # How rare a tag is says nothing of how well the text fits.
            channels.append(("tags", [Recalled(hit.record) for hit in hits]))
        asked = plan.temporal_filter
        if asked is not None:
            page = yield from self._store.page(within(only, asked), None, count)
            channels.append(("time", [Recalled(record) for record in page]))
        return channels

    def of_turns(self, only: Filter, plan: SearchPlan, count: int) -> Steps[list[TurnHit]]:
        """The turns whose words fit, as :meth:`standing` leaves them."""
        if self._turns is None:
            return []
        hits = yield from with_slots(plan, partial(self._turns.search, only, limit=count))
        yield
        return self.standing(only, hits)

    def standing(self, only: Filter, hits: Iterable[TurnHit]) -> list[TurnHit]:
        """These turns without those that taught what no longer stands."""
        said = {_event(hit, only): hit for hit in hits}
        gone = self._store.superseded_turns(only.tenant, said, only.as_of)
        return [hit for hit in hits if _event(hit, only) not in gone]

    def ranked(
        self,
        question: Question,
        plan: SearchPlan,
        channels: Found,
        weights: RecallWeights,
        now: int,
        *,
        turns: bool,
    ) -> Steps[list[Recalled]]:
        """One list of what the channels found, what corrects it and its composites, best first;
        ``turns``: whether turns may correct.
        """
        only = replace(question.only, kinds=question.kinds_of_store)
        if not question.facts:
            shown = stated(channels, plan, weights, now, question.most(plan))
            yield
            others = yield from self._others(only, telling_words(shown), turns=turns)
            yield
            channels = [*channels, ("text", correcting(shown, others, plan))]
        found = {one.id for _, hits in channels for one in hits if one.kind == "record"}
        composites = self._store.composites_of(only, found) if found else []
        yield
        return scored(joined(channels, composites), plan, weights, now, facts=question.facts)

    def _others(self, only: Filter, words: Sequence[str], *, turns: bool) -> Steps[list[Recalled]]:
        """What may say, in other words than the question, that something has changed."""
        others: list[Recalled] = []
        if words and only.kinds:
            others += [_recalled(hit) for hit in self._store.search(only, words, CORRECTIONS)]
        if words and turns and self._turns is not None:
            yield
            said = self._turns.search(only, words, CORRECTIONS)
            yield
            others += [Recalled(hit.turn) for hit in self.standing(only, said)]
        return others


def _recalled(hit: Hit) -> Recalled:
    return Recalled(hit.record, *hit[1:])


def _event(hit: TurnHit, only: Filter) -> tuple[Key, int]:
    return Key(only.tenant, hit.turn.conversation), parse_position(hit.turn.position).offset
