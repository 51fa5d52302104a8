"""Recall: what of records, skills and raw turns fits a question, by several channels at once.

Records come from the memory store, turns from an index of the conversations' own logs. A channel
that cannot be asked says so; it fails nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from projections.errors import (
    EmbeddingsUnavailable,
    Healing,
    KafkaUnavailable,
    MemoryUnavailable,
    WaitTimedOut,
)
from projections.memory.planner import SearchPlan
from projections.memory.recall import CHANNELS, Recalled
from projections.memory.slots import named_slots
from projections.policy.recall_weights import RecallWeights
from streams.memory.search_models import RULES, Imagined, Planned, SearchModels
from streams.memory.store import Filter, Hit, MemoryStore
from streams.memory.turn_feed import TurnFeed
from streams.memory.turns import SqliteTurns, TurnHit
from streams.runtime.tenant_threads import TenantThreads
from threadfold.service.imagined_skills import VectorSearch, near_hit, skills_like
from threadfold.service.patience import BUSY, Patience
from threadfold.service.question import KINDS_OF, Prepared, Question, prepare
from threadfold.service.recall_reads import Found, RecallReads

PER_DEPTH = 10
"""Hits of a channel for each step of the plan's depth; more where more results are asked for."""
NO_VECTORS = "no embeddings are configured"


class Sought(NamedTuple):
    """By which plan it was looked for, and which channels were away and why.

    ``planned_by`` made the plan: ``rules``, or an endpoint. ``fell_back``: what a model was asked
    for in vain, and why.
    """

    plan: SearchPlan
    away: dict[str, str]
    planned_by: str
    imagined: Imagined | None
    fell_back: dict[str, str]


class Answer(NamedTuple):
    """What was found, best first, and how it was looked for."""

    found: list[Recalled]
    sought: Sought

    @property
    def away(self) -> dict[str, str]:
        """The channels that were away, and why."""
        return self.sought.away


DEFAULT_WEIGHTS = RecallWeights()


class Recall:
    """Answers questions of a memory store and an index of turns."""

    def __init__(
        self,
        store: MemoryStore,
        turns: SqliteTurns | None,
        feed: TurnFeed | None = None,
        vectors: VectorSearch[Hit] | None = None,
        turn_vectors: VectorSearch[TurnHit] | None = None,
        models: SearchModels | None = None,
    ) -> None:
        """Args:
        turns: None: turns are switched off.
        feed: brings the index up to date; None: it is.
        models: make the plans, and imagine skills; None: the rules make the plans.
        """
        self.apart = TenantThreads().run
        self.patience = Patience()
        self._reads = RecallReads(store, turns)
        self._store = store
        self._turns = turns
        self._feed = feed
        self._vectors = vectors
        self._turn_vectors = turn_vectors
        self._models = models

    async def ask(self, question: Question, weights: RecallWeights = DEFAULT_WEIGHTS) -> Answer:
        """What fits a question; what is private in it is not looked for, and sent to no model; of a
        long query head and tail are read. The store must have caught up.
        """
        now = time.time_ns() // 1000 if question.only.as_of is None else question.only.as_of
        prepared = await self.apart(question.only.tenant, prepare, question, now)
        if not prepared.question.query:
            return Answer([], Sought(prepared.plan, {}, RULES, None, {}))
        channels, sought = await self._channels(prepared)
        question, plan = prepared.question, sought.plan
        turns = "turn" in question.kinds and "turns" not in sought.away
        found = await self.apart(
            question.only.tenant,
            partial(self._reads.ranked, question, plan, channels, weights, now, turns=turns),
        )
        return Answer(found[: question.most(plan)], sought)

    async def channels(self, question: Question, now: int) -> tuple[Found, Sought]:
        """What each channel finds by itself; ``now`` is in microseconds since 1970."""
        return await self._channels(await self.apart(question.only.tenant, prepare, question, now))

    async def _channels(self, prepared: Prepared) -> tuple[Found, Sought]:
        question, only = prepared.question, prepared.question.only
        planned, (imagined, why_not) = await asyncio.gather(
            self._planned(prepared), self._imagined(prepared)
        )
        plan = planned.plan
        count = max(PER_DEPTH * plan.depth, 4 * question.most(plan))
        away: dict[str, str] = {}
        wanted = replace(only, kinds=question.kinds_of_store)
        by_words, by_meaning, said = await asyncio.gather(
            self.apart(only.tenant, self._reads.of_records, question, plan, count),
            self._by_vectors(wanted, plan, count, away, question),
            self._said(only, plan, count, away, question),
        )
        channels = [*by_words, *by_meaning]
        if imagined is not None:
            best = max((one.fit for _, several in channels for one in several), default=0.0)
            channels += await skills_like(imagined, self._store, self._vectors, only, count, best)
        if said is not None:
            channels += await self._of_turns(only, plan, count, away, question, said)
        fell_back = {"plan": planned.fell_back, "imagined_skill": why_not}
        why = {name: reason for name, reason in fell_back.items() if reason is not None}
        return channels, Sought(plan, away, planned.made_by, imagined, why)

    async def _planned(self, prepared: Prepared) -> Planned:
        """The plan of a search: the model's, else the rules'."""
        made, why, question = None, None, prepared.question
        if self._models is not None and not question.facts:
            made, why = await self._models.plan(question.only.tenant, prepared.state)
        return made or Planned(prepared.plan, fell_back=why)

    async def _imagined(self, prepared: Prepared) -> tuple[Imagined | None, str | None]:
        """The skill that a model imagines, where there are any to compare it with."""
        question, state = prepared.question, prepared.state
        models, only = self._models, replace(question.only, kinds=KINDS_OF["skill"])
        if models is None or not models.imagines or question.facts or "skill" not in question.kinds:
            return None, None
        if not await self.apart(only.tenant, self._store.page, only, None, 1):
            return None, None
        return await models.imagine(only.tenant, state)

    async def _by_vectors(
        self,
        only: Filter,
        plan: SearchPlan,
        count: int,
        away: dict[str, str],
        question: Question,
    ) -> Found:
        found: Found = []
        if question.facts or not only.kinds:
            return found
        for channel, queries in (
            ("vectors", [*plan.semantic_queries, *named_slots(plan)]),
            ("pragmatic_vectors", plan.pragmatic_queries),
        ):
            assert channel in CHANNELS
            if self._vectors is None:
                away[channel] = NO_VECTORS
            elif queries:
                try:
                    hits = await self._vectors.search(only, queries, count)
                except EmbeddingsUnavailable as error:
                    away[channel] = str(error)
                    continue
                found.append((channel, [near_hit(hit) for hit in hits]))
        return found

    async def _said(
        self,
        only: Filter,
        plan: SearchPlan,
        count: int,
        away: dict[str, str],
        question: Question,
    ) -> list[TurnHit] | None:
        """The turns that stand and whose words fit. None where the index does not have all of the
        log: what was taken back or erased meanwhile would be among them.
        """
        if "turn" not in question.kinds:
            return None
        if self._turns is None:
            away["turns"] = "they are switched off"
            return None
        try:
            if self._feed is not None:
                await self._caught_up(self._feed, only)
            return await self.apart(only.tenant, self._reads.of_turns, only, plan, count)
        except (WaitTimedOut, KafkaUnavailable, MemoryUnavailable, Healing) as error:
            away["turns"] = str(error)
            return None

    async def _of_turns(
        self,
        only: Filter,
        plan: SearchPlan,
        count: int,
        away: dict[str, str],
        question: Question,
        hits: Sequence[TurnHit],
    ) -> Found:
        """The turns that fit: those ``hits`` by their words, and others by their meaning, without
        those that taught what no longer stands.
        """
        near: Sequence[TurnHit] = ()
        if self._turn_vectors is not None and not question.facts:
            # Behind the records' vectors: their question is embedded by now.
            try:
                near = await self._turn_vectors.search(only, plan.semantic_queries, count)
            except (Healing, MemoryUnavailable) as error:
                away["turns"] = str(error)
                return []
            except EmbeddingsUnavailable as error:
                away.setdefault("vectors", f"of turns: {error}")
        found: Found = [("text", [Recalled(hit.turn, *hit[1:]) for hit in hits])]
        if near:
            near = await self.apart(only.tenant, self._reads.standing, only, near)
        if near:
            near_turns = [
                Recalled(hit.turn, relevance=hit.relevance, cosine=hit.score) for hit in near
            ]
            found.append(("vectors", near_turns))
        return found

    async def _caught_up(self, feed: TurnFeed, only: Filter) -> None:
        feed.start()
        patience = self.patience.of(feed)
        try:
            # A log that hangs answers later than that.
            async with asyncio.timeout(patience + BUSY):
                await feed.has_all_of(only.tenant, only.conversation, patience)
        except TimeoutError:
            raise WaitTimedOut(f"the log does not answer within {patience:g} s") from None
