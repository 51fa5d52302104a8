"""What a search plan asks of the stores: words, tags, a time, and what it says is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from projections.memory.planner import SearchPlan, TemporalFilter
from projections.memory.slots import named_slots
from projections.memory.words import stems_of, tag_word
from streams.memory.store import Filter, Hit
from streams.memory.turns import TurnHit
from streams.runtime.steps import Steps

H = TypeVar("H", Hit, TurnHit)


def words_asked(plan: SearchPlan) -> list[str]:
    """The stems of all its queries, each once."""
    queries = [*plan.semantic_queries, *plan.pragmatic_queries]
    return list(dict.fromkeys(stem for query in queries for stem in stems_of(query)))


def tags_asked(plan: SearchPlan, failures: Sequence[str]) -> list[str]:
    """The words of the tags that it asks for."""
    asked = (
        ("tool", plan.tool_hints),
        ("constraint", plan.required_constraints),
        ("affordance", plan.required_affordances),
        ("failure", failures),
    )
    return [tag_word(kind, tag) for kind, tags in asked for tag in tags]


def with_slots(plan: SearchPlan, search: Callable[[list[str]], list[H]]) -> Steps[list[H]]:
    """What is found by the words of the queries; and by those of each thing that the plan says is
    missing, which fits no better than the best of the former, where there is any.
    """
    hits = search(words_asked(plan))
    best = max((hit.score for hit in hits), default=0.0)
    covered = max((hit.coverage for hit in hits), default=1.0)
    found = list(hits)
    for slot in named_slots(plan):
        yield
        own = search(list(dict.fromkeys(stems_of(slot))))
        scale = min(1.0, best / own[0].score) if own and best else 1.0
        found += [
            hit._replace(score=scale * hit.score, coverage=min(hit.coverage, covered))
            for hit in own
        ]
    return found


def within(only: Filter, asked: TemporalFilter) -> Filter:
    """The filter, within the time that is asked for."""
    since = max((at for at in (only.since, asked.since) if at is not None), default=None)
    before = None if asked.until is None else asked.until - 1
    until = min((at for at in (only.until, before) if at is not None), default=None)
    return replace(only, since=since, until=until)
