"""Which records become a composite: what is alike, in whatever order it is found."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from projections.memory.extraction.candidate import Candidate
from projections.memory.extraction.fusion import MOST, clusters, composite
from projections.memory.extraction.memory_events import Taught, memory_events
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


def fact(text: str, offset: int = 0, **more: object) -> Candidate:
    fields = {"memory_type": "fact", "time": None, "role": "user", "trust": "user"}
    return Candidate(
        text=text,
        offsets=(offset,),
        confidence=0.5,
        **{**fields, **more},  # type: ignore[arg-type]
    )


def texts(found: list[list[Candidate]]) -> list[list[str]]:
    return [[one.text for one in cluster] for cluster in found]


def test_records_of_much_the_same_words_are_one_cluster() -> None:
    found = clusters([fact(text, offset) for offset, text in enumerate(TEXTS)])
    assert texts(found) == [
        ["The user never flies at night.", "The user does not fly at night or on Sundays."],
        ["The user has two kids.", "The user has two kids and a dog."],
        ["The user's sister lives in Oslo.", "The user's sister Anna lives in Oslo."],
    ]


def test_what_must_not_meet_stays_apart() -> None:
    one, other = TEXTS[:2]
    assert clusters([fact(one), fact(one, 1)]) == []  # the same words are one record
    assert clusters([fact(one), fact(other, 1, memory_type="event")]) == []
    assert clusters([fact(one), fact(other, 1, topic="flies")]) == []  # its value may change
    many = [fact(f"The user never flies at night {n}.", n) for n in range(MOST + 1)]
    assert clusters(many) == []


def test_another_likeness_takes_the_place_of_the_stems() -> None:
    pair = [fact("The user likes tea."), fact("A hot drink is what they want.", 1)]
    assert clusters(pair) == []
    assert len(clusters(pair, lambda one, other: 0.9)) == 1
    assert clusters(pair, lambda one, other: 0.75) == []


def test_a_composite_says_all_and_is_trusted_as_its_least_source() -> None:
    one = fact(TEXTS[0], 3, trust="model", entities=("Oslo",))
    other = fact(TEXTS[1], 5, entities=("Oslo", "Rome"))
    made = composite([one, other])
    assert (made.text, made.offsets, made.trust) == (f"{TEXTS[0]} {TEXTS[1]}", (3, 5), "model")
    assert made.entities == ("Oslo", "Rome")


@given(st.lists(st.tuples(st.sampled_from(TEXTS), st.integers(0, 30)), max_size=12), st.randoms())
def test_the_order_in_which_records_are_found_makes_no_difference(
    said: list[tuple[str, int]], rng: random.Random
) -> None:
    found = [fact(text, offset) for text, offset in said]
    mixed = rng.sample(found, len(found))
    assert clusters(found) == clusters(mixed)
    taught = Taught(KEY, 0, "ann", None, None)
    ids = [sorted({flat["id"] for flat in memory_events(taught, each)}) for each in (found, mixed)]
    assert ids[0] == ids[1]


@given(st.text(max_size=60), st.text(max_size=60))
def test_likeness_is_symmetrical_and_at_most_one(one: str, other: str) -> None:
    a, b = stems(one), stems(other)
    assert similarity(a, b) == similarity(b, a)
    assert 0.0 <= similarity(a, b) <= 1.0 + 1e-9
    assert not a or abs(similarity(a, a) - 1.0) < 1e-9
