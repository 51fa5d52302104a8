"""The head of lists and tables: what is kept, what is counted, and what is no table."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.reducers.tables import head_of, items_in

AT = "3-7"


def head(text: str, top: int = 2) -> str:
    found = head_of(text, top, AT)
    assert found is not None
    return found


def test_a_list_keeps_its_first_items_and_says_how_many_there_were_and_where() -> None:
    kept, note = head('[1, {"a": [2, 3, 4]}, 5, 6]').split("\n")
    assert json.loads(kept) == [1, {"a": [2, 3, 4]}]
    assert note == "[the first 2 of 4 items: the whole stands at position 3-7]"


def test_of_an_object_the_longest_list_is_shortened_and_all_else_stays() -> None:
    kept, note = head('{"total": 9, "few": [1], "rows": [1, 2, 3, 4], "more": [1, 2, 3]}').split(
        "\n"
    )
    assert json.loads(kept) == {"total": 9, "few": [1], "rows": [1, 2], "more": [1, 2, 3]}
    assert "2 of 4 items of rows" in note


@pytest.mark.parametrize(
    ("table", "kept"),
    [
        (
            "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n| 5 | 6 |",
            "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |",
        ),
        ("| a | b |\n| 1 | 2 |\n| 3 | 4 |\n| 5 | 6 |", "| a | b |\n| 1 | 2 |\n| 3 | 4 |"),
        ("a,b\n1,2\n3,4\n5,6\n", "a,b\n1,2\n3,4"),
        ("a;b\n1;2\n3;4\n5;6", "a;b\n1;2\n3;4"),
        ("a\tb\n1\t2\n3\t4\n5\t6", "a\tb\n1\t2\n3\t4"),
        ("\na,b\n\n1,2\n3,4\n\n5,6", "\na,b\n1,2\n3,4"),
    ],
)
def test_a_table_keeps_its_heading_and_first_rows(table: str, kept: str) -> None:
    assert head(table) == f"{kept}\n[the first 2 of 3 rows: the whole stands at position 3-7]"


@pytest.mark.parametrize(
    "text",
    ["", "plain words", "[1, 2]", "{}", '{"a": 1}', '{"a": [1, 2]}', "1", "[1, 2, 3", "a,b\n1,2", "a,b\n1,2\n3", "one\ntwo\nthree\nfour",
     "Well, yes.\nI see.\nNo, not, that.", "| a |\n|---|\n| 1 |\n| 2 |", "| a |\n|---|\n| 1 |\nand so on\n| 2 |\n| 3 |", "\ud800,\ud800"],
)  # fmt: skip
def test_what_is_neither_or_has_no_more_is_left_alone(text: str) -> None:
    assert head_of(text, 2, AT) is None


def test_json_that_is_nested_too_deep_is_no_list() -> None:
    deep = "[" * 2_000 + "]" * 2_000
    assert head_of(f"[{deep}, 1, 2, 3]", 2, AT) is None


@given(st.lists(st.integers() | st.text(max_size=5), max_size=12), st.integers(1, 12))
def test_any_list_keeps_exactly_its_head(items: list[object], top: int) -> None:
    found = head_of(json.dumps(items), top, AT)
    if len(items) <= top:
        assert found is None
    else:
        assert found is not None and json.loads(found.rsplit("\n", 1)[0]) == items[:top]


_PIECES = st.sampled_from(
    [
        "[1, 2, 3]",
        "[]",
        '{"a": [1, 2], "b": [3]}',
        "| a |\n",
        "|---|\n",
        "a,b\n",
        "1;2\r\n",
        " ",
        "x",
    ]
)


@given(st.lists(_PIECES, max_size=7).map("".join), st.integers(1, 8))
def test_a_head_is_made_exactly_where_there_are_more_items(text: str, top: int) -> None:
    assert (head_of(text, top, AT) is None) == (items_in(text) <= top)
