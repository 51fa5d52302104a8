"""A search plan that a model made: it is taken whole, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from projections.memory.model_plan import plan_of, rows_of
from projections.memory.planner import ActionState, TemporalFilter

NOW = 1_715_767_200_000_000
"""2024-05-15T10:00:00Z"""
STATE = ActionState(
    query="Book the usual seat", now=NOW, tools=["book", "cancel"], constraints=["aisle"]
)
DAY = 86_400_000_000


def answer(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "mode": "action",
        "semantic_queries": ["prefers seats", "seat on flights"],
        "pragmatic_queries": ["how to book a seat"],
        "tool_hints": ["book"],
        "required_constraints": ["no middle seat"],
        "required_affordances": ["seat"],
        "missing_slots": ["flight"],
        "temporal_filter": None,
        "depth": 7,
        "reasoning": "It\nacts.",
    }
    return {**made, **changes}


def test_all_fields_are_taken_beside_what_the_caller_asked_for() -> None:
    plan = plan_of(answer(), STATE)
    assert plan.semantic_queries == ["Book the usual seat", "prefers seats", "seat on flights"]
    assert plan.pragmatic_queries == ["how to book a seat"]
    assert plan.tool_hints == ["book", "cancel"]
    assert plan.required_constraints == ["aisle", "no middle seat"]
    assert (plan.required_affordances, plan.missing_slots) == (["seat"], ["flight"])
    assert (plan.mode, plan.depth, plan.temporal_filter) == ("action", 7, None)
    assert plan.reasoning == "It acts."


def test_the_mode_that_the_caller_names_stays() -> None:
    assert plan_of(answer(), ActionState(query="x", now=NOW, mode="answer")).mode == "answer"


def test_times_are_days_or_times() -> None:
    given = {"since": "2024-05-13", "until": "2024-05-14T00:00:00Z"}
    plan = plan_of(answer(temporal_filter=given), STATE)
    monday = NOW - 2 * DAY - 10 * 3_600_000_000
    assert plan.temporal_filter == TemporalFilter(monday, monday + DAY)
    assert plan_of(answer(temporal_filter={}), STATE).temporal_filter is None


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ({"mode": "guess"}, "mode"),
        ({"semantic_queries": []}, "semantic_queries"),
        ({"semantic_queries": ["a", "b", "c", "d", "e"]}, "semantic_queries"),
        ({"semantic_queries": ["x" * 500]}, "semantic_queries"),
        ({"pragmatic_queries": None}, "pragmatic_queries"),
        ({"tool_hints": ["explode"]}, "tool_hints"),
        ({"required_constraints": [1]}, "required_constraints"),
        ({"missing_slots": "flight"}, "missing_slots"),
        ({"depth": 1_000}, "depth"),
        ({"depth": "deep"}, "depth"),
        ({"reasoning": None}, "reasoning"),
        ({"temporal_filter": {"since": "yesterday"}}, "temporal_filter"),
        ({"temporal_filter": {"since": "2024-05-14", "until": "2024-05-13"}}, "temporal_filter"),
    ],
)
def test_a_plan_with_a_bad_field_is_refused_and_the_error_names_it_alone(
    bad: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValueError, match=f"its field {named}") as refused:
        plan_of(answer(**bad), STATE)
    assert "guess" not in str(refused.value) and "explode" not in str(refused.value)


@pytest.mark.parametrize("nothing", [{}, [], "plan", None])
def test_what_is_no_plan_is_refused(nothing: Any) -> None:
    with pytest.raises(ValueError, match="not what was asked for"):
        plan_of(nothing, STATE)


def test_a_model_is_sent_the_state_and_the_day() -> None:
    (row,) = rows_of(STATE)
    assert row == {
        "today": "2024-05-15",
        "query": "Book the usual seat",
        "tools": ["book", "cancel"],
        "constraints": ["aisle"],
    }
