"""Recall: what of records, skills and raw turns fits a question, by several channels at once.

Records come from the memory store, turns from an index of the conversations' own logs. A channel
that cannot be asked says so; it fails nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from msgspec import to_builtins

from projections.errors import EmbeddingsUnavailable, KafkaUnavailable, WaitTimedOut
from projections.events.times import time_at
from projections.events.tokenizer import count
from projections.memory.background import background
from projections.memory.planner import ActionState, Mode, SearchPlan, TemporalFilter, make_plan
from projections.memory.recall import CHANNELS, Channel, Recalled, joined, scored
from projections.memory.resolution import Record
from projections.memory.words import stems_of, tag_word
from projections.names import Key, make_key, parse_position
from projections.policy.recall_weights import RecallWeights
from streams.memory.store import Filter, Hit, MemoryStore
from streams.memory.turn_feed import TurnFeed
from streams.memory.turns import SqliteTurns, TurnHit

FOUND = 50
"""Hits of a channel, at least; more where more are asked for."""
PATIENCE = 5.0
BUSY = 0.25
"""Seconds that a search waits for turns that are in the log already: soon after the start, and
later, while the index is built of a long log.
"""
STARTING = 20.0
BACKGROUND_TOKENS = 800
"""Tokens of a background, where nobody says how many."""
NO_VECTORS = "no embeddings are configured"


class VectorSearch(Protocol):
    """Finds records by the meaning of their texts, where embeddings are configured."""

    async def search(self, only: Filter, queries: Sequence[str], limit: int) -> list[Hit]:
        """The records nearest to any of the queries, best first; a hit's score is its cosine.

        Raises:
            EmbeddingsUnavailable: they cannot be searched now.
        """


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody wants to know of what a filter admits; ``kinds`` of :data:`KINDS_OF`."""

    only: Filter
    query: str
    kinds: Collection[str] = ("record", "turn", "skill")
    mode: Mode | None = None
    tools: Sequence[str] = ()
    constraints: Sequence[str] = ()
    failures: Sequence[str] = ()
    recent: str = ""
    limit: int = 10
    facts: bool = False


class Answer(NamedTuple):
    """What was found, best first, by which plan, and which channels were away and why."""

    found: list[Recalled]
    plan: SearchPlan
    away: dict[str, str]


DEFAULT_WEIGHTS = RecallWeights()
KINDS_OF: Mapping[str, tuple[str, ...]] = {
    "record": ("record", "composite"),
    "skill": ("skill",),
    "turn": (),
}
"""The kinds of the store by those that a search names."""


class Recall:
    """Answers questions of a memory store and an index of turns."""

    def __init__(
        self,
        store: MemoryStore,
        turns: SqliteTurns | None,
        feed: TurnFeed | None = None,
        vectors: VectorSearch | None = None,
        plan: Callable[[ActionState], Awaitable[SearchPlan]] | None = None,
    ) -> None:
        """Args:
        turns: None: turns are switched off.
        feed: brings the index up to date; None: it is.
        plan: makes the plans, with a model for example; None: the rules do.
        """
        self._store = store
        self._turns = turns
        self._feed = feed
        self._vectors = vectors
        self._plan = plan
        self._since: float | None = None

    async def ask(self, question: Question, weights: RecallWeights = DEFAULT_WEIGHTS) -> Answer:
        """What fits a question. The store must have caught up."""
        only = question.only
        now = time.time_ns() // 1000 if only.as_of is None else only.as_of
        state = ActionState(
            query=question.query,
            now=now,
            recent=question.recent,
            tools=list(question.tools),
            constraints=list(question.constraints),
            failures=list(question.failures),
            mode=question.mode,
        )
        plan = make_plan(state) if self._plan is None else await self._plan(state)
        kinds = tuple(kind for name in question.kinds for kind in KINDS_OF[name])
        count = max(FOUND, 4 * question.limit)
        away: dict[str, str] = {}
        channels: list[tuple[Channel, list[Recalled]]] = []
        if kinds:
            wanted = replace(only, kinds=kinds)
            channels += await asyncio.to_thread(self._of_records, wanted, plan, count, question)
            for channel, hits in await self._by_vectors(wanted, plan, count, away, question):
                channels.append((channel, hits))
        if "turn" in question.kinds:
            channels.append(("text", await self._of_turns(only, plan, count, away)))
        found = scored(joined(channels), plan, weights, now, facts=question.facts)
        return Answer(found[: question.limit], plan, away)

    def _of_records(
        self, only: Filter, plan: SearchPlan, count: int, question: Question
    ) -> list[tuple[Channel, list[Recalled]]]:
        words = _words(plan)
        channels: list[tuple[Channel, list[Recalled]]] = [
            ("text", [_recalled(hit) for hit in self._store.search(only, words, count)])
        ]
        if question.facts:
            return channels
        tags = _tags(plan, question)
        if tags:
            hits = self._store.search(only, tags, count)
            # How rare a tag is says nothing of how well the text fits.
            channels.append(("tags", [Recalled(hit.record) for hit in hits]))
        asked = plan.temporal_filter
        if asked is not None:
            page = self._store.page(_within(only, asked), None, count)
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
        if question.facts:
            return found
        for channel, queries in (
            ("vectors", plan.semantic_queries),
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
                near = [
                    Recalled(hit.record, relevance=hit.relevance, cosine=hit.score) for hit in hits
                ]
                found.append((channel, near))
        return found

    async def _of_turns(
        self, only: Filter, plan: SearchPlan, count: int, away: dict[str, str]
    ) -> list[Recalled]:
        """The turns that fit. None at all where the index does not have all of the log: what was
        taken back or erased meanwhile would be among them.
        """
        if self._turns is None:
            away["turns"] = "they are switched off"
            return []
        if self._feed is not None:
            key = None if only.conversation is None else make_key(only.tenant, only.conversation)
            try:
                await self._caught_up(self._feed, key)
            except (WaitTimedOut, KafkaUnavailable) as error:
                away["turns"] = str(error)
                return []
        hits = await asyncio.to_thread(self._turns.search, only, _words(plan), count)
        said = {(Key(only.tenant, hit.turn.conversation), _offset(hit)) for hit in hits}
        gone = await asyncio.to_thread(self._store.superseded_turns, only.tenant, said, only.as_of)
        return [
            Recalled(hit.turn, hit.score, hit.relevance)
            for hit in hits
            if (Key(only.tenant, hit.turn.conversation), _offset(hit)) not in gone
        ]

    async def _caught_up(self, feed: TurnFeed, key: Key | None) -> None:
        if self._since is None:
            self._since = time.monotonic()
            feed.start()
        starting = time.monotonic() < self._since + STARTING
        await feed.has_all_of(key, PATIENCE if starting or feed.is_ready else BUSY)


def _recalled(hit: Hit) -> Recalled:
    return Recalled(hit.record, hit.score, hit.relevance)


def _offset(hit: TurnHit) -> int:
    return parse_position(hit.turn.position).offset


def _words(plan: SearchPlan) -> list[str]:
    queries = [*plan.semantic_queries, *plan.pragmatic_queries]
    return list(dict.fromkeys(stem for query in queries for stem in stems_of(query)))


def _tags(plan: SearchPlan, question: Question) -> list[str]:
    asked = (
        ("tool", plan.tool_hints),
        ("constraint", plan.required_constraints),
        ("affordance", plan.required_affordances),
        ("failure", question.failures),
    )
    return [tag_word(kind, tag) for kind, tags in asked for tag in tags]


def _within(only: Filter, asked: TemporalFilter) -> Filter:
    """The filter, within the time that is asked for."""
    since = max((at for at in (only.since, asked.since) if at is not None), default=None)
    before = None if asked.until is None else asked.until - 1
    until = min((at for at in (only.until, before) if at is not None), default=None)
    return replace(only, since=since, until=until)


def search_document(
    answer: Answer, max_tokens: int | None, *, explain: bool = False
) -> dict[str, Any]:
    """An answer as the public interface has it: the first hits whose texts have at most so many
    tokens.
    """
    tokens, kept = 0, list[Recalled]()
    for one in answer.found:
        more = count(one.found.text)
        if max_tokens is not None and tokens + more > max_tokens:
            break
        tokens += more
        kept.append(one)
    for_prompt = background(kept, BACKGROUND_TOKENS if max_tokens is None else max_tokens)
    document: dict[str, Any] = {
        "results": [hit_document(one, explain=explain) for one in kept],
        "background_context": None if for_prompt is None else for_prompt.text,
        "tokens": tokens,
        "away": answer.away,
    }
    if explain:
        document["plan"] = _plan_document(answer.plan)
    return document


def _plan_document(plan: SearchPlan) -> dict[str, Any]:
    asked = plan.temporal_filter
    shown: dict[str, Any] = to_builtins(plan)
    shown["temporal_filter"] = asked and {
        "since": None if asked.since is None else time_at(asked.since),
        "until": None if asked.until is None else time_at(asked.until),
    }
    return shown


def hit_document(one: Recalled, *, explain: bool) -> dict[str, Any]:
    """A hit as the public interface has it."""
    record = one.found if isinstance(one.found, Record) else None
    found: dict[str, Any] = {
        "kind": one.kind,
        "id": one.id,
        "text": one.found.text,
        "score": one.score,
        "channels": one.channels,
        "conversation": one.found.conversation,
        "position": one.position,
        "trust": one.found.trust,
    }
    if record is not None:
        found["record"] = record.document()
    if explain:
        found["scores"] = one.scores
    return found
