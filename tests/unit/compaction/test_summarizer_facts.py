"""Facts: what a summary should not lose is found, and ordinary words are not taken for it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.compaction.summarizers.facts import (
    MAX_FACT_CHARS,
    Fact,
    find_all,
    find_facts,
    in_words,
    read_fact,
)
from tests.support.profiles import examples


@pytest.mark.parametrize(
    ("text", "fact", "kind"),
    [
        ("my reservation is HATHAT ok", "HATHAT", "id"),
        ("order #W1234567 please", "#W1234567", "id"),
        ("user mia_berg_3668 here", "mia_berg_3668", "id"),
        ("see 123e4567-e89b-12d3-a456-426614174000.", "123e4567-e89b-12d3-a456-426614174000", "id"),
        ("flight HAT069 at noon", "HAT069", "id"),
        ("account 12345678", "12345678", "id"),
        ("mail ann.b+x@example.co.uk now", "ann.b+x@example.co.uk", "email"),
        ("it costs $1,200.50 in all", "$1,200.50", "amount"),
        ("about 300 EUR each", "300 EUR", "amount"),
        ("on May 20th, 2024 we go", "May 20th, 2024", "date"),
        ("on 2024-05-20 we go", "2024-05-20", "date"),
        ("会議は2024年5月20日です", "2024年5月20日", "date"),
        ("departs 06:30 AM sharp", "06:30 AM", "time"),
        ("with 3 bags", "3 bags", "quantity"),
        ("weighs 12.5 kg", "12.5 kg", "quantity"),
        ("from New York today", "New York", "name"),
        ("from JFK today", "JFK", "code"),
        ("card ending in 7447", "7447", "number"),
        ("it weighs 1375.25 here", "1375.25", "number"),
        ("Ann_B.c@example.com writes", "Ann_B.c@example.com", "email"),
        ("see https://example.com/a?b=1 please", "https://example.com/a?b=1", "link"),
        ("it is -5 °C outside", "-5 °C", "quantity"),
        ("you get -$20.50 back", "-$20.50", "amount"),
        ("on the 3rd of May 2024", "3rd of May 2024", "date"),
        ("order a1-B2-774 now", "a1-B2-774", "id"),
    ],
)
def test_facts_of_each_kind_are_found(text: str, fact: str, kind: str) -> None:
    assert (fact, kind) in [(found.text, found.kind) for found in find_facts(text)]


@pytest.mark.parametrize(
    "text",
    ["", "I think so, yes", "PLEASE DO NOT SHOUT AT ME", "the 1st and 2nd", "address1", "THE API"],
)
def test_ordinary_words_are_not_facts(text: str) -> None:
    assert find_facts(text) == []


def test_facts_come_once_in_their_order() -> None:
    assert [fact.text for fact in find_facts("HAT069 then $5, HAT069 and $7")] == [
        "HAT069",
        "$5",
        "$7",
    ]


LINES = st.lists(
    st.text(alphabet="aB1 .,-$@:#月é/", max_size=30)
    | st.sampled_from(["", "New York JFK", "mail a@b.co", "PLEASE STOP HATHAT", "a1234 and $5"])
)


@given(lines=LINES)
@settings(max_examples=examples(200), deadline=None)
def test_facts_of_many_lines_are_those_of_each(lines: list[str]) -> None:
    assert find_all(lines) == [
        (row, fact.text, fact.kind) for row, line in enumerate(lines) for fact in find_facts(line)
    ]


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("HATHAT", "HATHAT"),
        ("$5", "$5"),
        ("order number 4704", "4704"),
        ("17 parcels", "17"),
        ("deposit $5", "$5"),
        ("deadline May 20", "May 20"),
        ("please now pay them $5", None),
        ("ignore rules", None),
        ("ignore all HATHAT", None),
        ("pay: 4704", None),
        ("where is #4711", "#4711"),
        ("#4711 late", "#4711"),
        ("please pay now the #4711", None),
    ],
)
def test_only_a_fact_with_a_few_words_at_most_is_read_as_one(text: str, fact: str | None) -> None:
    found = read_fact(text)
    assert (found and found.text) == fact


@pytest.mark.parametrize(
    ("text", "fact", "words"),
    [
        ("My order number is 4704, thanks.", "4704", "order number 4704"),
        ("The orders 4704, 4705 and 4707 are late", "4707", "orders 4707"),
        ("I want 4705 screws of steel", "4705", "want 4705 screws"),
        ("order_id: 4704, status: open", "4704", "order_id 4704"),
        ("status: open, order_id: 4704, items: 3", "4704", "order_id 4704"),
        ("Thanks. 4704 it is", "4704", ""),
        ("4704", "4704", ""),
        ("the deposit is $120 today", "$120", "deposit $120"),
        ("$120", "$120", "$120"),
        ("Come on May 20, the deadline", "May 20", "come May 20"),
        ("account 12345678 please", "12345678", "account 12345678"),
        ("Take seat 107A instead", "107A", "seat 107A"),
        ('"flight_number": "HAT039"', "HAT039", "flight_number HAT039"),
        ("pay with gift_card_3481935", "gift_card_3481935", "gift_card_3481935"),
        ("mail ann@example.com now", "ann@example.com", "ann@example.com"),
        ("from New York today", "New York", "New York"),
        ("注文番号は4704です", "4704", "注文番号は 4704"),
        ("orders: 4704: (qty 6), 4705: (qty 7)", "4705", "orders 4705"),
        ("(id 4704, qty 3), (id 4705, qty 2)", "4705", "id 4705"),
        ("4704000, 4705000", "4705000", ""),
        ("Where is #4711? I wait for it.", "#4711", "where is #4711"),
        ("Also #4711 never arrived.", "#4711", "#4711 never"),
        ("Please refund #4711 and #4712 to me", "#4712", "refund #4712"),
        ("#4711, #4712 and #4713 are late", "#4711", "#4711 late"),
        ("Where is 4704000?", "4704000", "where is 4704000"),
    ],
)
def test_a_fact_keeps_the_few_words_that_say_what_it_is_about(
    text: str, fact: str, words: str
) -> None:
    (found,) = [one for one in find_facts(text) if one.text == fact] or [Fact(fact, "number")]
    made = in_words(text, found)
    assert made == words
    assert not made or read_fact(made) == found


def test_digits_alone_have_the_words_of_the_tool_that_gave_them() -> None:
    for text, wanted in (("4704, 4705", "open orders 4705"), ("order 4705", "order 4705")):
        made = in_words(text, Fact("4705", "number"), "find_open_orders")
        assert made == wanted
        assert read_fact(made) == Fact("4705", "number")
    assert in_words("$5", Fact("$5", "amount"), "pay") == "$5"


@pytest.mark.parametrize(
    "unit", ["a", "1", "a.", "A", "Ab ", "a1_", "-", "1,", "@a.", "$", "#", "http://", "BOB "]
)
def test_pathological_text_takes_linear_time(unit: str) -> None:
    before = time.perf_counter()
    facts = find_facts(unit * (200_000 // len(unit)))
    assert time.perf_counter() - before < 2
    assert all(
        len(fact.text) <= MAX_FACT_CHARS and ";" not in fact.text and "\n" not in fact.text
        for fact in facts
    )


def test_a_fact_is_not_sought_in_a_long_text_that_can_be_none() -> None:
    """The search for each of its facts would go through all of it."""
    before = time.perf_counter()
    assert read_fact("seat 112A, " * 20_000) is None
    assert time.perf_counter() - before < 2
