"""What the facts of one record come to."""

from __future__ import annotations

from typing import Any

import pytest

from projections.events import types as events
from projections.memory.identity import Scope, memory_id, normalize
from projections.memory.news import Fact
from projections.memory.resolution import Record, resolve
from projections.names import Key
from tests.support.memories import USER, saved

C1, C2 = Key("acme", "c1"), Key("acme", "c2")
MINUTE = 60_000_000


def fact(at: int, data: Any, *, log: Key = C1, offset: int | None = None) -> Fact:
    return Fact(log, at if offset is None else offset, at * MINUTE, (), data)


def record_of(*facts: Fact, as_of: int | None = None) -> Record | None:
    return resolve(facts, lambda _: True, None if as_of is None else as_of * MINUTE)


def about(data: events.MemorySaved, kind: Any, **more: Any) -> Any:
    return kind(memory_id=data.memory_id, user=USER, **more)


TEA = saved(C1, "Likes tea.")


def test_the_same_words_of_one_user_are_one_record_in_every_conversation() -> None:
    again = saved(C2, "  likes TEA!")
    assert again.memory_id == TEA.memory_id
    assert saved(C1, "Likes tea.", user="u-2").memory_id != TEA.memory_id
    assert saved(C1, "Likes tea.", channel="web").memory_id != TEA.memory_id


def test_what_an_anonymous_conversation_taught_is_its_own() -> None:
    assert (
        saved(C1, "Likes tea.", user=None).memory_id != saved(C2, "Likes tea.", user=None).memory_id
    )


@pytest.mark.parametrize(
    ("text", "plain"),
    [("Straße, 5 km!", "strasse 5 km"), ("  A\tb ", "a b"), ("ﬁne", "fine"), ("…", "")],
)
def test_case_punctuation_and_forms_of_letters_make_no_difference(text: str, plain: str) -> None:
    assert normalize(text) == plain


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Writes C++.", "Writes C#."),
        ("Writes C#.", "Writes C."),
        ("The budget is $100.", "The budget is \u20ac100."),
        ("Keep it at -5 degrees.", "Keep it at 5 degrees."),
        ("Tip 10%.", "Tip 10."),
        ("Wants x < y.", "Wants x > y."),
    ],
)
def test_signs_that_make_another_statement_make_another_record(one: str, other: str) -> None:
    assert saved(C1, one).memory_id != saved(C1, other).memory_id
    assert saved(C1, f"{one} \u00e9").memory_id != saved(C1, f"{other} \u00e9").memory_id


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("On 2026-01-31: tea - green!", "on 2026 01 31 tea green"),
        ("# Likes *tea* ~ ❤", "likes tea"),
        ("It costs $ 5.", "it costs $5"),
    ],
)
def test_other_signs_make_no_difference(one: str, other: str) -> None:
    assert normalize(one) == normalize(other)
    assert normalize("$ + - %") == normalize("\u20ac \u2212 -") == ""


def test_an_id_is_the_same_in_every_release() -> None:
    found = memory_id(Scope("acme", "u-1", None, None), "record", "likes tea")
    assert found == "06db9518037712510946a36386c3abd8667454341be3c802bd8185411ca5280d"


def test_saying_it_again_confirms_and_within_15_minutes_counts_a_duplicate() -> None:
    found = record_of(fact(0, TEA), fact(10, TEA), fact(100, TEA))
    assert found is not None
    assert (found.created, found.confirmed_at) == (0, 100 * MINUTE)
    assert (found.duplicates, found.revision) == (1, 1)


def test_a_topic_revises_and_an_earlier_text_is_found_as_of_its_time() -> None:
    one, two = saved(C1, "Tea at six.", topic="t"), saved(C1, "Tea at seven.", topic="t")
    assert one.memory_id == two.memory_id
    now, then = (
        record_of(fact(0, one), fact(60, two)),
        record_of(fact(0, one), fact(60, two), as_of=30),
    )
    assert now is not None and then is not None
    assert (now.text, now.revision) == ("Tea at seven.", 2)
    assert (then.text, then.revision) == ("Tea at six.", 1)
    assert record_of(fact(0, one), as_of=-1) is None


def test_what_supersedes_follows_from_times_and_not_from_arrival() -> None:
    over = about(TEA, events.MemorySuperseded, by="b" * 64)
    expired = record_of(fact(5, over), fact(0, TEA))
    assert expired is not None and expired.superseded_by == "b" * 64
    assert expired.expired_at == 5 * MINUTE and not expired.stands
    again = record_of(fact(5, over), fact(9, TEA), fact(0, TEA))
    assert again is not None and again.stands and again.superseded_by is None
    before = record_of(fact(5, over), fact(0, TEA), as_of=4)
    assert before is not None and before.stands


def test_text_and_provenance_are_of_the_most_trusted_statement() -> None:
    tool = saved(C2, "LIKES TEA", trust="tool", positions=["1-7"], confidence=1.0)
    user = saved(C1, "Likes tea.", trust="user", positions=["0-1"], confidence=0.5)
    found = record_of(fact(0, user), fact(60, tool, log=C2))
    assert found is not None
    assert (found.text, found.trust, found.conversation) == ("Likes tea.", "user", "c1")
    assert (found.confirmed_at, found.confidence) == (60 * MINUTE, 1.0)


def test_outcomes_are_counted_and_a_deletion_expires() -> None:
    good, bad = (about(TEA, events.MemoryOutcome, succeeded=value) for value in (True, False))
    gone = about(TEA, events.MemoryDeleted)
    found = record_of(fact(0, TEA), fact(1, good), fact(2, good), fact(3, bad), fact(4, gone))
    assert found is not None
    assert (found.use.succeeded, found.use.failed) == (2, 1)
    assert (found.expired_reason, found.stands) == ("deleted", False)
    assert record_of(fact(4, gone)) is None


def test_a_text_is_normalised_alike_whatever_letters_stand_beside_it() -> None:
    for code in range(128):
        text = f"A{chr(code)}b"
        assert normalize(f"{text} \u00e9") == f"{normalize(text)} \u00e9"
