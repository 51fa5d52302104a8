"""The quick check of common events, and counting a list at once: both only faster, never
different.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from projections.errors import (
    EventTooLarge,
    InvalidEvent,
    InvalidName,
    ThreadfoldError,
)
from projections.events import encodings, token_cost, tokenizer, validation
from projections.events import types as events
from projections.events.fast_path import quick_data
from projections.events.validation import Intake, Record, make_record
from projections.names import Key
from projections.policy.policy import Rules
from tests.support.profiles import examples
from threadfold.service.drafts import LIGHT, Drafter, is_heavy, new_ids

KEY = Key("acme", "c1")
NOW = "2026-01-31T12:00:00Z"
TEXT = st.text(max_size=12) | st.sampled_from(
    ["", "\ud800", "x" * 256, "x" * 257, "\x00", "naïve 日本"]
)
ANY = (
    TEXT
    | st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.lists(TEXT, max_size=2)
)
CALL = st.fixed_dictionaries({"id": TEXT, "name": TEXT, "arguments": TEXT}, optional={"more": ANY})
PARTS = st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}), max_size=2)
FLAT = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "tool.result"])},
    optional={
        "role": st.sampled_from(["user", "assistant", "system", "robot"]),
        "content": TEXT | st.none() | PARTS,
        "name": TEXT | st.none(),
        "tool_calls": (
            st.lists(CALL, max_size=3)
            | st.just([{"id": "a", "name": "f", "arguments": "{}"}] * 65)
            | st.none()
        ),
        "tool_call_id": TEXT,
        "model": TEXT,
        "status": st.sampled_from(["complete", "interrupted", "odd"]),
        "is_error": st.booleans() | st.integers(0, 1),
        "pinned": ANY,
        "id": TEXT,
        "time": st.sampled_from(
            [NOW, "2026-01-31T12:00:00+01:00", "yesterday", "2026-02-30T00:00:00Z"]
        ),
        "traceparent": st.just("00-" + "a" * 32 + "-" + "b" * 16 + "-01") | TEXT,
        "conversation": TEXT,
        "unknown": ANY,
    },
)


def outcome(flat: Any) -> Record | tuple[type[Exception], str]:
    try:
        return make_record(KEY, flat, where="event 1", now=NOW, new_id="new-id")
    except ThreadfoldError as error:
        return type(error), str(error)


@given(flat=FLAT)
@example(flat={"type": "tool.result", "tool_call_id": "a", "pinned": "\ud800"})
@example(flat={"type": "message", "role": "user", "content": "\ud800"})
@hypothesis_settings(max_examples=examples(600), deadline=None)
def test_the_quick_check_changes_neither_records_nor_errors(flat: dict[str, Any]) -> None:
    before = dict(flat)
    quick = outcome(flat)
    assert flat == before or any(value != value for value in flat.values())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validation, "quick_data", lambda name, flat: None)
        assert quick == outcome(flat)


@pytest.mark.parametrize(
    "flat",
    [
        {"type": "message", "role": "user", "content": "x"},
        {
            "type": "message",
            "role": "assistant",
            "content": "",
            "name": "n",
            "model": "m",
            "status": "complete",
            "id": "i",
            "time": NOW,
        },
        {
            "type": "message",
            "role": "assistant",
            "tool_calls": [{"id": "a", "name": "f", "arguments": "{}"}],
            "traceparent": "t",
        },
        {
            "type": "tool.result",
            "tool_call_id": "a",
            "content": "x",
            "name": "f",
            "is_error": True,
            "pinned": False,
            "conversation": "c",
        },
    ],
)
def test_common_events_take_the_quick_way(flat: dict[str, Any]) -> None:
    assert isinstance(quick_data(flat["type"], flat), events.Message | events.ToolResult)


WORDS = st.sampled_from(
    [
        "word",
        "don't",
        "  ",
        "\n\n",
        "日本語",
        "한국",
        "é",
        "ß",
        "1234",
        "--",
        "=",
        "a" * 700,
        " ",
        "\u1acf",
        "\ud800",
        "😀",
        "\x85",
        "\u2028",
    ]
)


@given(
    texts=st.lists(
        st.tuples(st.lists(WORDS, min_size=1, max_size=6), st.sampled_from([1, 3, 600, 2500])),
        max_size=4,
    )
)
@hypothesis_settings(max_examples=examples(60), deadline=None)
@pytest.mark.parametrize("name", encodings.encodings())
def test_a_list_counted_at_once_equals_tiktoken_on_each_text(
    name: str, texts: list[tuple[list[str], int]]
) -> None:
    made = [("".join(words) * times)[: tokenizer.PIECE_CHARS] for words, times in texts]
    encode = encodings.get_encoding(name).encode_ordinary
    assert tokenizer.count_all(made, name) == ([len(encode(text)) for text in made], set())


@given(
    text=st.text(alphabet=st.sampled_from(" ab\n.'é漢1"), min_size=1, max_size=40),
    times=st.integers(1, 1500),
)
@hypothesis_settings(max_examples=examples(100), deadline=None)
def test_pieces_for_the_fast_counter_are_short_and_the_text(text: str, times: int) -> None:
    pieces = tokenizer.fast_pieces(text * times)
    if pieces is not None:
        assert "".join(pieces) == text * times
        assert max(map(len, pieces)) <= tokenizer.FAST_CHARS


def test_texts_that_are_bounds_are_reported_beside_exact_ones() -> None:
    endless = " " * 200_000
    counts, inexact = tokenizer.count_all(["a", endless, "b " * 60_000])
    assert inexact == {1}
    assert counts == [tokenizer.measure(text).count for text in ("a", endless, "b " * 60_000)]


def test_a_bill_gives_each_event_what_it_costs_alone() -> None:
    datas = [
        events.Message("user", "hello there"),
        events.TurnStarted("t"),
        events.Message(
            "assistant",
            [
                events.TextPart("one"),
                events.ReasoningPart("two"),
                events.ImagePart(events.ImageUrl("u", "low")),
            ],
        ),
        events.Message(
            "assistant", None, name="n", tool_calls=[events.ToolCall("i", "search", '{"q": "x"}')]
        ),
        events.ToolResult("i", " " * 200_000),
        events.Opened(tools=[{"type": "function"}]),
        events.ToolResult("i", None),
    ]
    bill = token_cost.Bill("o200k_base")
    for data in datas:
        bill.add(data)
    assert bill.counted() == [
        (one.count, one.exact)
        for one in (token_cost.measured(data, "o200k_base") for data in datas)
    ]
    assert [exact for _, exact in bill.counted()] == [True] * 4 + [False] + [True] * 2
    assert (
        bill.counted()[0][0]
        == token_cost.cost(datas[0], tokenizer.count)
        == 4 + tokenizer.count("hello there")
    )


def test_a_list_becomes_the_records_its_events_become_one_by_one() -> None:
    flats: list[Any] = [
        {"type": "message", "role": "user", "content": "one"},
        {"type": "turn.started", "turn_id": "t"},
        {"type": "acme.note.v1", "anything": [1, 2]},
        {"type": "message", "role": "user", "content": [{"type": "text", "text": "two"}]},
        {"type": "tool.result", "tool_call_id": "a", "content": "three three"},
    ]
    whole = Intake(now=NOW)
    for i, flat in enumerate(flats):
        whole.add(KEY, flat, where=f"event {i}", new_id=f"n{i}")
    assert whole.records() == [
        make_record(KEY, flat, where="e", now=NOW, new_id=f"n{i}") for i, flat in enumerate(flats)
    ]


def test_the_first_item_that_is_wrong_is_named_even_where_its_size_is_what_is_wrong() -> None:
    drafter = Drafter("acme", Rules(), 4, 1000)
    large = ("c", {"type": "message", "role": "user", "content": "x" * 1000})
    wrong = ("c", {"type": "message", "role": "robot", "content": "x"})
    fine = ("c", {"type": "message", "role": "user", "content": "x"})
    with pytest.raises(EventTooLarge, match=r"event 2: .*1000 bytes"):
        drafter.records([fine, large, wrong], "event", False, None)
    with pytest.raises(InvalidEvent, match="event 2: field role"):
        drafter.records([fine, wrong, large], "event", False, None)
    with pytest.raises(InvalidName, match=r"event 2: .*conversation"):
        drafter.records([fine, (["c"], fine[1])], "event", False, None)  # type: ignore[list-item]


@pytest.mark.parametrize("id_", ["summary-" + 32 * "a", "dropped-3-17"])
def test_an_id_that_an_event_of_ours_is_to_have_is_refused(id_: str) -> None:
    # The real one would be taken for a repeat: its window would stay due, and the model be paid
    # again and again.
    drafter = Drafter("acme", Rules(), 4, 10_000)
    said = {"type": "message", "role": "user", "content": "x"}
    with pytest.raises(InvalidEvent, match="event 2: field id"):
        drafter.records([("c", said), ("c", {**said, "id": id_})], "event", False, None)
    drafter.records([("c", {**said, "id": id_ + "a"})], "event", False, None)
    (record,) = drafter.records([("c", {**said, "id": id_})], "event", True, None)
    assert record.id == id_


def test_ids_made_together_differ_and_are_version_7() -> None:
    ids = new_ids(5000)
    assert len(set(ids)) == 5000
    assert all(
        len(id_) == 36 and id_[14] == "7" and [id_[i] for i in (8, 13, 18, 23)] == ["-"] * 4
        for id_ in ids
    )
    assert {id_[19] for id_ in ids} == set("89ab")
    assert new_ids(0) == []


@pytest.mark.parametrize(
    ("items", "heavy"),
    [
        ([{"role": "user", "content": "x" * 300}] * 500, False),
        ([{"content": "x" * (LIGHT + 1)}], True),
        ([{"content": [{"type": "text", "text": "x" * LIGHT}]}], True),
        ([{"content": None, "tool_calls": [{"arguments": "x" * LIGHT}]}], True),
        ([{"tools": [{"a": {"b": ["x" * LIGHT]}}]}], True),
        ([{"positions": list(range(LIGHT))}], True),
        ([None, "text", 3, []], False),
    ],
)
def test_lists_of_long_texts_are_heavy_wherever_the_text_is(items: list[Any], heavy: bool) -> None:
    assert is_heavy([("c", flat) for flat in items]) is heavy


@pytest.mark.parametrize("calls", [(), ({"id": "a", "name": "b", "arguments": "{}"},)])
def test_a_tuple_of_calls_is_refused_by_the_quick_check_too(
    calls: tuple[dict[str, str], ...],
) -> None:
    flat = {"type": "message", "role": "assistant", "content": "hi", "tool_calls": calls}
    with pytest.raises(InvalidEvent, match="a tuple is not JSON"):
        make_record(KEY, flat, where="event 1", now="2026-01-31T12:00:00Z", new_id="x")


@pytest.mark.parametrize("name", [1, b"x"])
def test_a_field_whose_name_is_no_text_is_named_in_a_plain_error(name: object) -> None:
    flat: dict[Any, object] = {"type": "message", "role": "user", "content": "hi", name: 1}
    with pytest.raises(InvalidEvent, match="field"):
        make_record(KEY, flat, where="event 1", now="2026-01-31T12:00:00Z", new_id="x")
