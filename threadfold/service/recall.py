"""Recall: what of records, skills and raw turns fits a question, by several channels at once.

Records come from the memory store, turns from an index of the conversations' own logs. A channel
that cannot be asked says so; it fails nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from projections.errors import (
    EmbeddingsUnavailable,
    Healing,
    KafkaUnavailable,
    MemoryUnavailable,
    WaitTimedOut,
)
from projections.memory.planner import ActionState, Mode, SearchPlan, asked_text, make_plan
from projections.memory.private_text import all_without_private
from projections.memory.recall import (
    CHANNELS,
    Channel,
    Recalled,
    correcting,
    joined,
    scored,
    stated,
    telling_words,
)
from projections.memory.slots import named_slots
from projections.names import Key, make_key, parse_position
from projections.policy.recall_weights import RecallWeights
from streams.memory.search_models import RULES, Imagined, Planned, SearchModels
from streams.memory.store import Filter, Hit, MemoryStore
from streams.memory.turn_feed import TurnFeed
from streams.memory.turns import SqliteTurns, TurnHit
from streams.runtime.steps import Steps
from streams.runtime.tenant_threads import TenantThreads
from threadfold.service.imagined_skills import VectorSearch, near_hit, skills_like
from threadfold.service.patience import BUSY, Patience
from threadfold.service.plan_queries import tags_asked, with_slots, within

LIMIT = 10
"""Results, where neither the caller nor the plan asks for more."""
PER_DEPTH = 10
"""Hits of a channel for each step of the plan's depth; more where more results are asked for."""
CORRECTIONS = 60
"""Texts of which it is looked whether they correct what was found."""
NO_VECTORS = "no embeddings are configured"


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody wants to know of what a filter admits; ``kinds`` of :data:`KINDS_OF`.
    ``limit``: None: the plan says how many results there are.
    """

    only: Filter
    query: str
    kinds: Collection[str] = ("record", "turn", "skill")
    mode: Mode | None = None
    tools: Sequence[str] = ()
    constraints: Sequence[str] = ()
    failures: Sequence[str] = ()
    recent: str = ""
    limit: int | None = None
    facts: bool = False

    def most(self, plan: SearchPlan) -> int:
        """How many results are given out: as the caller says, else as deep as the plan goes."""
        return max(LIMIT, plan.depth) if self.limit is None else self.limit


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
KINDS_OF: Mapping[str, tuple[str, ...]] = {
    "record": ("record", "composite"),
    "skill": ("skill",),
    "turn": (),
}
"""The kinds of the store by those that a search names."""


def _asked(question: Question) -> Question:
    """What of a question is looked for."""
    return replace(
        question,
        query=asked_text(question.query),
        recent=asked_text(question.recent),
        tools=all_without_private(question.tools),
        constraints=all_without_private(question.constraints),
        failures=all_without_private(question.failures),
    )


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
        question = await self.apart(question.only.tenant, _asked, question)
        now = time.time_ns() // 1000 if question.only.as_of is None else question.only.as_of
        if not question.query:
            nothing = make_plan(ActionState(query="", now=now, mode=question.mode))
            return Answer([], Sought(nothing, {}, RULES, None, {}))
        channels, sought = await self.channels(question, now)
        tenant, plan, most = question.only.tenant, sought.plan, question.most(sought.plan)
        if not question.facts:
            said = await self.apart(tenant, stated, channels, plan, weights, now, most)
            channels.append(("text", await self._corrections(question, sought, said)))
        found = await self.apart(tenant, self._ranked, question, channels, plan, weights, now)
        return Answer(found[:most], sought)

    def _ranked(
        self,
        question: Question,
        channels: Sequence[tuple[Channel, Sequence[Recalled]]],
        plan: SearchPlan,
        weights: RecallWeights,
        now: int,
    ) -> list[Recalled]:
        """One list of what the channels found and its composites, best first."""
        only = replace(question.only, kinds=_kinds(question))
        found = {one.id for _, hits in channels for one in hits if one.kind == "record"}
        composites = self._store.composites_of(only, found) if found else []
        return scored(joined(channels, composites), plan, weights, now, facts=question.facts)

    async def channels(
        self, question: Question, now: int
    ) -> tuple[list[tuple[Channel, list[Recalled]]], Sought]:
        """What each channel finds by itself; ``now`` is in microseconds since 1970."""
        only = question.only
        state = ActionState(
            query=question.query,
            now=now,
            recent=question.recent,
            tools=list(question.tools),
            constraints=list(question.constraints),
            failures=list(question.failures),
            mode=question.mode,
        )
        planned, (imagined, why_not) = await asyncio.gather(
            self._planned(question, state), self._imagined(question, state)
        )
        plan = planned.plan
        count = max(PER_DEPTH * plan.depth, 4 * question.most(plan))
        away: dict[str, str] = {}
        wanted = replace(only, kinds=_kinds(question))
        by_words, by_meaning, said = await asyncio.gather(
            self.apart(only.tenant, self._of_records, wanted, plan, count, question),
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

    async def _corrections(
        self, question: Question, sought: Sought, shown: Sequence[Recalled]
    ) -> list[Recalled]:
        """What says that something changed which is shown, in other words than the question."""
        only, others = question.only, list[Recalled]()
        words = await self.apart(only.tenant, telling_words, shown)
        if not words:
            return []
        if kinds := _kinds(question):
            wanted = replace(only, kinds=kinds)
            hits = await self.apart(only.tenant, self._store.search, wanted, words, CORRECTIONS)
            others += [_recalled(hit) for hit in hits]
        if self._turns is not None and "turn" in question.kinds and "turns" not in sought.away:
            said = await self.apart(only.tenant, self._turns.search, only, words, CORRECTIONS)
            gone = await self._gone(only, said)
            others += [Recalled(hit.turn) for hit in said if _event(hit, only) not in gone]
        return await self.apart(only.tenant, correcting, shown, others, sought.plan)

    async def _gone(self, only: Filter, hits: Iterable[TurnHit]) -> set[tuple[Key, int]]:
        """The turns among them that taught what no longer stands."""
        said, tenant = {_event(hit, only) for hit in hits}, only.tenant
        return await self.apart(tenant, self._store.superseded_turns, tenant, said, only.as_of)

    async def _planned(self, question: Question, state: ActionState) -> Planned:
        """The plan of a search: the model's, else the rules'."""
        made, why, tenant = None, None, question.only.tenant
        if self._models is not None and not question.facts:
            made, why = await self._models.plan(tenant, state)
        return made or Planned(await self.apart(tenant, make_plan, state), fell_back=why)

    async def _imagined(
        self, question: Question, state: ActionState
    ) -> tuple[Imagined | None, str | None]:
        """The skill that a model imagines, where there are any to compare it with."""
        models, only = self._models, replace(question.only, kinds=KINDS_OF["skill"])
        if models is None or not models.imagines or question.facts or "skill" not in question.kinds:
            return None, None
        if not await self.apart(only.tenant, self._store.page, only, None, 1):
            return None, None
        return await models.imagine(only.tenant, state)

    def _of_records(
        self, only: Filter, plan: SearchPlan, count: int, question: Question
    ) -> Steps[list[tuple[Channel, list[Recalled]]]]:
        if not only.kinds:
            return []

        def search(words: list[str]) -> list[Hit]:
            return self._store.search(only, words, count)

        by_words = [_recalled(hit) for hit in (yield from with_slots(plan, search))]
        channels: list[tuple[Channel, list[Recalled]]] = [("text", by_words)]
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

    async def _by_vectors(
        self,
        only: Filter,
        plan: SearchPlan,
        count: int,
        away: dict[str, str],
        question: Question,
    ) -> list[tuple[Channel, list[Recalled]]]:
        found: list[tuple[Channel, list[Recalled]]] = []
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
        """The turns whose words fit. None where the index does not have all of the log: what was
        taken back or erased meanwhile would be among them.
        """
        if "turn" not in question.kinds:
            return None
        if self._turns is None:
            away["turns"] = "they are switched off"
            return None
        try:
            if self._feed is not None:
                key = (
                    None if only.conversation is None else make_key(only.tenant, only.conversation)
                )
                await self._caught_up(self._feed, key)
            search = partial(self._turns.search, only, limit=count)
            return await self.apart(only.tenant, with_slots, plan, search)
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
    ) -> list[tuple[Channel, list[Recalled]]]:
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
        gone = await self._gone(only, (*hits, *near))
        left = [hit for hit in hits if _event(hit, only) not in gone]
        found: list[tuple[Channel, list[Recalled]]] = [
            ("text", [Recalled(hit.turn, *hit[1:]) for hit in left])
        ]
        by_meaning = [hit for hit in near if _event(hit, only) not in gone]
        if by_meaning:
            near_turns = [
                Recalled(hit.turn, relevance=hit.relevance, cosine=hit.score) for hit in by_meaning
            ]
            found.append(("vectors", near_turns))
        return found

    async def _caught_up(self, feed: TurnFeed, key: Key | None) -> None:
        feed.start()
        patience = self.patience.of(feed)
        try:
            # A log that hangs answers later than that.
            async with asyncio.timeout(patience + BUSY):
                await feed.has_all_of(key, patience)
        except TimeoutError:
            raise WaitTimedOut(f"the log does not answer within {patience:g} s") from None


def _kinds(question: Question) -> tuple[str, ...]:
    return tuple(kind for name in question.kinds for kind in KINDS_OF[name])


def _recalled(hit: Hit) -> Recalled:
    return Recalled(hit.record, *hit[1:])


def _event(hit: TurnHit, only: Filter) -> tuple[Key, int]:
    return Key(only.tenant, hit.turn.conversation), parse_position(hit.turn.position).offset
