"""What the rules look for, from what an agent is about to do."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from projections.events.times import micros_of, parse_micros, time_at
from projections.memory.planner import (
    MAX_QUERY,
    ActionState,
    SearchPlan,
    asked_text,
    make_plan,
)

NOW = micros_of(datetime(2024, 6, 12, 10, tzinfo=UTC))  # a Wednesday


def planned(query: str, **more: Any) -> SearchPlan:
    return make_plan(ActionState(query=query, now=NOW, **more))


@pytest.mark.parametrize(
    ("query", "more", "mode"),
    [
        ("What does she drink?", {}, "answer"),
        ("green tea", {}, "answer"),
        ("Book a table for two.", {}, "action"),
        ("Could you please cancel my order", {}, "action"),
        ("Could you cancel my order?", {}, "mixed"),
        ("Where is it?", {"tools": ["web_search"]}, "mixed"),
        ("the parcel", {"failures": ["timeout"]}, "action"),
        ("Book a table for two.", {"mode": "answer"}, "answer"),
    ],
)
def test_the_mode_follows_from_the_query_and_what_the_agent_has(
    query: str, more: dict[str, Any], mode: str
) -> None:
    assert planned(query, **more).mode == mode


def test_an_action_looks_for_its_tools_constraints_and_failures() -> None:
    plan = planned(
        "Send it with the mail_tool",
        tools=["calendar", "mail_tool"],
        constraints=["no weekends"],
        failures=["mail_tool: quota"],
    )
    assert plan.tool_hints == ["mail_tool", "calendar"]
    assert plan.required_constraints == ["no weekends"] and plan.required_affordances == ["send"]
    assert plan.pragmatic_queries == ["Send it with the mail_tool", "mail_tool: quota"]
    assert planned("Who is Ida?", tools=["calendar"], mode="answer").pragmatic_queries == []
    assert plan.reasoning.startswith("mode action: ")


def test_questions_name_what_is_missing() -> None:
    assert planned("When and where does Ida play?").missing_slots == ["time", "place"]
    assert planned("How many cats are there?").missing_slots == ["quantity"]


def test_a_query_that_says_little_is_read_with_what_was_said_before() -> None:
    plan = planned("And where is that?", recent="Ida plays in Bergen.")
    assert plan.semantic_queries == [
        "And where is that?",
        "And where is that? Ida plays in Bergen.",
    ]
    query = "Which orchestra does Ida play the cello in?"
    assert planned(query, recent="Hello.").semantic_queries == [query]


@pytest.mark.parametrize(
    ("query", "since", "until"),
    [
        ("What did I say yesterday?", "2024-06-11", "2024-06-12"),
        ("What happened last week?", "2024-06-03", "2024-06-10"),
        ("plans of this month", "2024-06-01", "2024-07-01"),
        ("Where were we last year?", "2023-01-01", "2024-01-01"),
        ("Who came in March?", "2024-03-01", "2024-04-01"),
        ("Who came in December?", "2023-12-01", "2024-01-01"),
        ("Who came in May 2022?", "2022-05-01", "2022-06-01"),
        ("trips since March 2024", "2024-03-01", None),
        ("trips before 2023", None, "2023-01-01"),
        ("orders until 2022", None, "2023-01-01"),
    ],
)
def test_a_query_that_names_a_time_is_about_that_time(
    query: str, since: str | None, until: str | None
) -> None:
    asked = planned(query).temporal_filter
    assert asked is not None
    shown = [None if at is None else time_at(at)[:10] for at in (asked.since, asked.until)]
    assert shown == [since, until]


@pytest.mark.parametrize(
    "query", ["On 9999-12-31", "in December 9999", "in 9999", "on 0001-01-01", "next year"]
)
@pytest.mark.parametrize("now", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_a_query_at_the_end_of_the_calendar_is_planned(query: str, now: str) -> None:
    at = parse_micros(now)
    assert at is not None
    assert make_plan(ActionState(query=query, now=at)).semantic_queries == [query]
    assert planned(query).semantic_queries == [query]


def test_a_query_without_a_time_is_about_any() -> None:
    for query in ("What may I eat?", "Who may come?", "1999 cats", "march on"):
        assert planned(query).temporal_filter is None, query


def test_of_a_long_query_head_and_tail_are_read_without_what_is_private() -> None:
    assert asked_text("Tea <private>or gin</private>?") == "Tea ?"
    pasted = "First words. " + "x" * 100_000 + " Which tea?"
    read = asked_text(pasted)
    assert len(read) <= MAX_QUERY + 1
    assert read.startswith("First words.") and read.endswith("Which tea?")
