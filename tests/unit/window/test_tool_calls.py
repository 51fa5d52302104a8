"""What makes two tool calls the same, and which ids were used before."""

from __future__ import annotations

import time
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.events.content import ToolCall
from projections.window.tool_calls import Used, call_hash, named_calls


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1,"b":2}', '{ "b" : 2,\n"a" : 1 }'),
        ('{"a":{"y":[1,2],"x":null}}', '{"a":{"x":null,"y":[1,2]}}'),
        ('{"name":"\\u00e9"}', '{"name":"é"}'),
        ("[]", " [ ] "),
    ],
)
def test_arguments_that_say_the_same_are_the_same_call(one: str, other: str) -> None:
    assert call_hash("look", one) == call_hash("look", other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1}', '{"a":2}'),
        ('{"a":1}', '{"a":"1"}'),
        ("[1,2]", "[2,1]"),
        ("not json", "not  json"),
        ("", "{}"),
        ('{"a":1', '{"a": 1'),
    ],
)
def test_arguments_that_differ_and_what_is_no_json_are_other_calls(one: str, other: str) -> None:
    assert call_hash("look", one) != call_hash("look", other)


def test_the_hash_is_of_tool_and_canonical_json_and_tools_do_not_run_together() -> None:
    assert call_hash("look", '{"b":1, "a":2}') == sha256(b'look\n{"a":2,"b":1}').digest()
    assert call_hash("a", "b") != call_hash("ab", "")


@pytest.mark.parametrize(
    "arguments", ["[" * 5_000 + "]" * 5_000, '{"n":1e999}', "\ud800", '{"n":' + "9" * 400 + "}"]
)
def test_what_cannot_be_made_canonical_counts_as_it_is_written(arguments: str) -> None:
    assert (
        call_hash("look", arguments)
        == call_hash("look", arguments)
        != call_hash("look", arguments + " x")
    )


def test_arguments_of_a_message_that_are_long_together_count_as_they_are_written() -> None:
    one, other = '{"a":1,"b":2}', '{"b":2,"a":1}'
    long = "x" * 65_500
    for more, same in ((long, True), (long + "x" * 40, False)):
        [(_, _, first), _] = named_calls([ToolCall("c1", "look", one), ToolCall("c2", "f", more)])
        [(_, _, again), _] = named_calls([ToolCall("c1", "look", other), ToolCall("c2", "f", more)])
        assert (first == again) == same
        assert named_calls([ToolCall("c3", "f", more)])[0][2] == call_hash("f", more)


@pytest.mark.parametrize("count", [1, 100])
def test_megabytes_of_arguments_are_hashed_in_time(count: int) -> None:
    arguments = "[" + ", ".join(["[ ]"] * (1_200_000 // count)) + "]"
    calls = [ToolCall(f"c{i}", "look", arguments) for i in range(count)]
    begun = time.thread_time()
    named_calls(calls)
    assert time.thread_time() - begun < 0.1


@given(st.lists(st.text(max_size=8), max_size=30))
def test_ids_that_were_used_are_known(ids: list[str]) -> None:
    used = b""
    for id_ in ids:
        used = Used.add(used, id_)
    assert all(Used.holds(used, id_) for id_ in ids)
    assert not Used.holds(used, "an id that nobody used")


def test_only_the_last_256_ids_are_kept() -> None:
    used = b""
    for i in range(300):
        used = Used.add(used, f"call_{i}")
    assert len(used) == 4 * 256
    assert [i for i in range(300) if Used.holds(used, f"call_{i}")] == list(range(44, 300))


def test_bytes_that_lie_across_two_marks_are_no_id() -> None:
    mark = Used.add(b"", "a")
    assert Used.holds(b"abcd" + mark, "a")
    assert not Used.holds(b"x" + mark + b"yzx", "a")
    assert Used.holds(b"x" + mark + b"yzx" + mark, "a"), "a false start does not hide the real one"
