"""An answer names what the plan asks for and nothing that was found says."""

from __future__ import annotations

import time
from typing import Any

import pytest

from projections.memory.identity import Scope, normalize
from projections.memory.planner import ActionState, SearchPlan, make_plan
from projections.memory.raw_turns import Turn
from projections.memory.recall import Recalled
from projections.memory.resolution import Record
from projections.memory.slots import named_slots, still_missing


def asking(query: str, *slots: str) -> SearchPlan:
    plan = make_plan(ActionState(query=query, now=1_715_767_200_000_000))
    plan.missing_slots = list(slots) or plan.missing_slots
    return plan


def hit(text: str, relevance: float = 0.9, **more: Any) -> Recalled:
    record = Record(
        id=text,
        kind="record",
        scope=Scope("acme", "ann"),
        type="fact",
        text=text,
        normalized_text=normalize(text),
        trust="user",
        created=0,
        confirmed_at=0,
        **more,
    )
    return Recalled(record, 1.0, relevance)


@pytest.mark.parametrize(
    ("question", "slot", "says", "says_not"),
    [
        ("When is the exam?", "time", "The exam is on 2024-05-16.", "The exam is hard."),
        ("Where does she live?", "place", "The user lives in Oslo.", "The user lives well, in May."),
        ("Who is the boss?", "person", "The boss is Ida Berg.", "The office is quiet."),
        ("Why did she leave?", "reason", "She left because of the noise.", "She left."),
        ("How many cats are there?", "quantity", "The user has two cats.", "The user likes cats."),
        ("How long is the trip?", "duration", "The trip takes 3 days.", "The trip is to Oslo."),
        ("How old is she?", "age", "The user is 34 years old.", "The user is tired."),
    ],
)  # fmt: skip
def test_what_is_asked_for_is_missing_until_something_relevant_says_it(
    question: str, slot: str, says: str, says_not: str
) -> None:
    plan = asking(question)
    assert plan.missing_slots == [slot]
    assert still_missing(plan, []) == [slot]
    assert still_missing(plan, [hit(says_not)]) == [slot]
    assert still_missing(plan, [hit(says, relevance=0.5)]) == [slot]
    assert still_missing(plan, [hit(says_not), hit(says)]) == []


def test_a_record_with_a_time_says_when() -> None:
    dated = hit("The exam is hard.", temporal={"t_ref": "2024-05-16T00:00:00Z"})
    assert still_missing(asking("When is the exam?"), [dated]) == []


def test_a_turn_and_a_skill_say_it_too() -> None:
    turn = Turn(Scope("acme", "ann"), "c1", "0-1", "user", "user", "It is at 9 am.", 0)
    plan = asking("When is the exam?")
    assert still_missing(plan, [Recalled(turn, 1.0, 0.9)]) == []
    assert still_missing(plan, [hit("Sit an exam", doc_markdown="Come at noon.")]) == []


def test_what_a_model_names_in_its_own_words_is_searched_for_and_is_said_by_its_words() -> None:
    plan = asking("Book a flight", "seat preference", "Time", "the", "loyalty number")
    assert named_slots(plan) == ["seat preference", "loyalty number"]
    found = [hit("Her preference is an aisle seat."), hit("x", tags={"task": ["loyalty-number"]})]
    assert still_missing(plan, found[:1]) == ["Time", "loyalty number"]
    assert still_missing(plan, found) == ["Time"]


def test_a_question_that_asks_for_nothing_by_kind_misses_nothing() -> None:
    assert still_missing(asking("tea"), []) == []


@pytest.mark.parametrize("text", ["1,", "1 ", "from ", "from 1,", "a1.", "A'", "each ", "an 1 "])
@pytest.mark.parametrize(
    "slot", ["time", "place", "person", "reason", "quantity", "duration", "age"]
)
def test_what_a_long_text_says_is_seen_in_time(slot: str, text: str) -> None:
    skill = hit("Sit an exam", doc_markdown=(text * 16_384)[:16_384])
    begun = time.thread_time()
    still_missing(asking("Sit an exam", slot), [skill])
    assert time.thread_time() - begun < 0.1
