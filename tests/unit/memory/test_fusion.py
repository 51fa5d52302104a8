"""Which records are fused and which conflict, in whatever order they are found."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.memory.extraction.candidate import Candidate
from projections.memory.extraction.memory_events import (
    Taught,
    answer_id,
    memory_events,
    relation_events,
    said,
)
from projections.memory.fusion import (
    CONSIDERED,
    MOST,
    Near,
    Statement,
    clusters,
    conflicts,
    relations,
)
from projections.memory.identity import Scope
from projections.memory.resolution import Record
from projections.memory.similarity import similarity, stems
from tests.support.taught import KEY

TEXTS = (
    "The user never flies at night.",
    "The user does not fly at night or on Sundays.",
    "The user never drinks coffee at night.",
    "The user has two kids.",
    "The user's sister lives in Oslo.",
    "The user's sister Anna lives in Oslo.",
    "The user has two kids and a dog.",
)
TAUGHT = Taught(KEY, 0, "ann", None, None)


def fact(text: str, at: int = 0, memory_type: str = "fact") -> Statement:
    """A statement that is named by its text."""
    return Statement(text, memory_type, text, at)


def composite(name: str, *sources: str) -> Record:
    scope = Scope("acme", "ann")
    made = Record(name, "composite", scope, "fact", "", "", "user", 0, 0)
    made.sources = list(sources)
    return made


def sources(found: list[Any]) -> list[list[str]]:
    return [list(one.sources) for one in found]


def test_records_of_much_the_same_words_are_one_cluster() -> None:
    found = clusters(fact(text, at) for at, text in enumerate(TEXTS))
    assert sources(found) == [
        ["The user does not fly at night or on Sundays.", "The user never flies at night."],
        ["The user has two kids and a dog.", "The user has two kids."],
        ["The user's sister Anna lives in Oslo.", "The user's sister lives in Oslo."],
    ]
    assert not any(one.children for one in found)


def test_what_must_not_meet_stays_apart() -> None:
    one, other = TEXTS[:2]
    assert clusters([fact(one), fact(one, 1)]) == []  # the same words are one record
    assert clusters([fact(one), fact(other, 1, "event")]) == []
    assert clusters([fact(one), fact("The user flies at night.", 1)]) == []  # they conflict
    many = [fact(f"The user never flies at night {n}.", n) for n in range(MOST + 1)]
    assert clusters(many) == []


def test_records_with_a_topic_are_neither_fused_nor_in_conflict() -> None:
    found = [candidate(text, at, topic="flies") for at, text in enumerate(TEXTS[:2])]
    assert said(TAUGHT, found) == []


def test_another_likeness_takes_the_place_of_the_stems() -> None:
    pair = [fact("The user likes tea."), fact("A hot drink is what they want.", 1)]
    assert clusters(pair) == []
    assert len(clusters(pair, Near(likeness=lambda one, other: 0.9))) == 1
    assert clusters(pair, Near(likeness=lambda one, other: 0.75)) == []


def test_a_new_record_is_fused_with_what_is_near_it_and_takes_composites_in() -> None:
    old, other, new = (
        fact(TEXTS[0]),
        fact(TEXTS[1], 1),
        fact("The user never flies at night at all.", 2),
    )
    near = Near({new.id: [old, fact(TEXTS[3])]})
    assert sources(clusters([new], near)) == [sorted([old.id, new.id])]
    inner = composite("inner", old.id, other.id)
    (found,) = clusters([new], Near(near.statements, [inner]))
    assert found.sources == tuple(sorted([old.id, other.id, new.id]))
    assert found.children == ("inner",)
    outer = composite("outer", *found.sources)
    assert clusters([new], Near(near.statements, [outer])) == [], "there is such a one already"


def test_a_composite_of_too_many_takes_in_no_more() -> None:
    many = [f"r{n}" for n in range(MOST)]
    old, new = fact(TEXTS[0]), fact(TEXTS[1], 1)
    full = composite("full", old.id, *many[1:])
    assert clusters([new], Near({new.id: [old]}, [full])) == []


@pytest.mark.parametrize(
    ("former", "later"),
    [
        ("The user is vegetarian.", "The user is not vegetarian any more."),
        ("The user never flies at night.", "The user flies at night."),
        ("The user eats fish.", "The user no longer eats fish."),
        ("The user has kids.", "The user has no kids."),
        ("The user cannot swim.", "The user can swim."),
    ],
)
def test_a_later_denial_takes_the_place_of_the_former(former: str, later: str) -> None:
    one, other = fact(former, 1), fact(later, 2)
    assert conflicts([other], Near({other.id: [one]})) == [(one, other)]
    assert conflicts([one], Near({one.id: [other]})) == [(one, other)], "by their own times"
    assert conflicts([one, other]) == [(one, other)]
    assert clusters([one, other]) == []


def test_what_is_trusted_less_supersedes_nothing() -> None:
    said, answered = (
        Statement("a", "fact", "The user eats fish.", 1, "user"),
        Statement("b", "fact", "The user never eats fish.", 2, "tool"),
    )
    assert conflicts([said, answered]) == []
    other_way = [said._replace(trust="tool"), answered._replace(trust="user")]
    assert len(conflicts(other_way)) == 1


def test_what_says_other_things_is_no_conflict() -> None:
    for one, other in (
        ("The user eats fish.", "The user does not eat meat."),
        ("The user never flies at night.", "The user never flies at night or on Sundays."),
        ("The user has two kids.", "The user has three kids."),
    ):
        assert conflicts([fact(one), fact(other, 1)]) == []
    assert conflicts([fact("He eats fish."), fact("He never eats fish.", 1, "event")]) == []


def test_the_work_is_bounded() -> None:
    many = [fact(f"Word{n} is said.", n) for n in range(2 * CONSIDERED)]
    asked = 0

    def likeness(one: str, other: str) -> float:
        nonlocal asked
        asked += 1
        return 0.0

    assert clusters(many, Near(likeness=likeness)) == []
    assert asked < CONSIDERED**2 / 2


def candidate(text: str, offset: int = 0, **more: Any) -> Candidate:
    fields = {"memory_type": "fact", "time": None, "role": "user", "trust": "user"}
    return Candidate(text=text, offsets=(offset,), confidence=0.5, **{**fields, **more})


def events_of(found: list[Candidate], near: Near | None = None) -> list[dict[str, Any]]:
    several = said(TAUGHT, found)
    related = relations([one.statement for one in several], near or Near())
    return [*memory_events(TAUGHT, found), *relation_events(TAUGHT, several, related)]


def test_what_fuses_names_its_sources_and_has_none_of_their_text() -> None:
    one = candidate(TEXTS[0], 3, trust="model", time="2024-05-15T10:00:00Z")
    other = candidate(TEXTS[1], 5, time="2024-05-16T10:00:00Z")
    first, second, fused = events_of([one, other])
    assert fused["type"] == "memory.fused" and "fly" not in str(fused)
    assert fused["source_record_ids"] == sorted([first["memory_id"], second["memory_id"]])
    assert (fused["positions"], fused["time"]) == (["0-3"], "2024-05-16T10:00:00Z")
    assert fused["trust"] == "model"


def test_a_composite_found_again_from_another_of_its_sources_is_the_same_event() -> None:
    one = candidate(TEXTS[0], 3, trust="model", time="2024-05-15T10:00:00Z")
    other = candidate(TEXTS[1], 5, time="2024-05-16T10:00:00Z")
    first, second, fused = events_of([one, other])
    there = Statement(second["memory_id"], "fact", TEXTS[1], 0, "user")
    again = events_of([one], Near({first["memory_id"]: [there]}))[-1]
    assert again["source_record_ids"] == fused["source_record_ids"]
    assert (again["id"], again["time"]) == (fused["id"], "2024-05-15T10:00:00Z")


def test_what_supersedes_has_the_time_and_place_of_the_later_statement() -> None:
    one = candidate("The user is vegetarian.", 3, time="2024-05-15T10:00:00Z")
    other = candidate("The user is not vegetarian anymore.", 5, time="2024-05-16T10:00:00Z")
    first, second, over = events_of([one, other])
    assert over["type"] == "memory.superseded" and over["reason"] == "conflict"
    assert (over["memory_id"], over["by"]) == (first["memory_id"], second["memory_id"])
    assert (over["positions"], over["time"]) == (["0-5"], "2024-05-16T10:00:00.000Z")


def test_what_rules_say_in_a_models_place_is_the_same_event_for_every_request() -> None:
    by_rules, by_model = candidate(TEXTS[0], 3), candidate(TEXTS[1], 5, model="small")
    one, other = (list(memory_events(TAUGHT, [by_rules, by_model], asked)) for asked in ("a", "b"))
    assert one[0]["id"] == other[0]["id"] == events_of([by_rules])[0]["id"]
    assert one[1]["id"] == answer_id(TAUGHT, "a", 0) != other[1]["id"]


@given(st.lists(st.tuples(st.sampled_from(TEXTS), st.integers(0, 30)), max_size=12), st.randoms())
def test_the_order_in_which_records_are_found_makes_no_difference(
    stated: list[tuple[str, int]], rng: random.Random
) -> None:
    found = [
        candidate(text, at, time=f"2024-05-15T10:00:{at:02}Z") for text, at in dict(stated).items()
    ]
    mixed = rng.sample(found, len(found))
    ids = [sorted({flat["id"] for flat in events_of(each)}) for each in (found, mixed)]
    assert ids[0] == ids[1]


@given(st.text(max_size=60), st.text(max_size=60))
def test_likeness_is_symmetrical_and_at_most_one(one: str, other: str) -> None:
    a, b = stems(one), stems(other)
    assert similarity(a, b) == similarity(b, a)
    assert 0.0 <= similarity(a, b) <= 1.0 + 1e-9
    assert not a or abs(similarity(a, a) - 1.0) < 1e-9
