"""JSON as callers send it: bounded before it is parsed, and decoded strictly."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from projections.errors import InvalidRequest, MalformedInput
from projections.events.json_text import MAX_DEPTH, MAX_VALUES, PIECE, decode, values_at_most
from tests.support.profiles import examples

TEXT = st.text(st.sampled_from('ab"\\:,{}[] \n\u00e9')) | st.text()
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
)


@hypothesis_settings(max_examples=examples(300), deadline=None)
@given(VALUES, st.booleans())
def test_what_is_json_is_decoded_and_its_values_are_bounded(value: Any, escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped).encode("utf-8", "replace")
    assert decode(text) == json.loads(text)
    assert values_at_most(text) >= count(json.loads(text))


def count(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(count, value.values()))
    return 1 + (sum(map(count, value)) if isinstance(value, list) else 0)


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":2}',
        b'[{"x":{"a":1,"b":2,"a":1}}]',
        b'{"a":":","a":"\\":"}',
        b'{"\\u0061":1,"a":2}',
    ],
)
def test_a_key_that_stands_twice_in_one_object_is_refused_by_name(text: bytes) -> None:
    with pytest.raises(MalformedInput, match="the body has the key 'a' twice in one object"):
        decode(text)


def test_a_key_may_stand_in_several_objects_and_colons_in_texts() -> None:
    value = [{"a": "x:y", "b": {"a": ':"a":'}}, {"a": "\\"}]
    assert decode(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        b"[" + b"[]," * 20_000_000 + b"[]]",
        b"{" + b",".join(b'"k%d":1' % i for i in range(2_000_000)) + b"}",
        b"[" + b'"",' * 10_000_000 + b'""]',
        b"[" * 30_000_000,
    ],
    ids=["lists", "keys", "texts", "open"],
)
def test_more_values_than_allowed_are_refused_before_they_are_parsed(text: bytes) -> None:
    began = time.thread_time()
    with pytest.raises(InvalidRequest, match=f"more than {MAX_VALUES} JSON values"):
        decode(text)
    assert time.thread_time() - began < 2


def test_a_text_full_of_separators_is_one_value() -> None:
    text = "[{,:" * MAX_VALUES
    assert decode(json.dumps([text]).encode()) == [text]


@pytest.mark.parametrize("before", range(8))
def test_strings_end_where_they_do_wherever_a_piece_of_a_large_text_ends(before: int) -> None:
    separators = "," * (MAX_VALUES + 1)
    texts = ["x" * before + '\\"' * (PIECE // 3) + separators, '"' * PIECE, "\\" * PIECE, "{:"]
    assert decode(json.dumps(texts).encode()) == texts
    with pytest.raises(InvalidRequest, match="JSON values"):
        decode(json.dumps([*texts, [1] * MAX_VALUES]).encode())


@pytest.mark.parametrize(("opened", "closed"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_a_text_that_nests_too_deeply_is_refused(opened: bytes, closed: bytes) -> None:
    decode(opened * MAX_DEPTH + b"0" + closed * MAX_DEPTH)
    for levels in (MAX_DEPTH + 1, 40_000):
        with pytest.raises(MalformedInput, match=f"nested more than {MAX_DEPTH} levels"):
            decode(opened * levels + b"0" + closed * levels)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "empty"),
        (b"{", "line 1, column 2"),
        (b"[NaN]", "not JSON"),
        (b"[1] x", "not JSON"),
        (b'"\xff"', "not UTF-8 at byte 1"),
        (b'"\\ud800"', "half of a surrogate pair"),
        (b'"' + b"a" * PIECE + b'\\ud800"', "half of a surrogate pair"),
        (b'["\\ud800", "' + b"a" * PIECE + b'"]', "surrogate pair .byte 8"),
        (b'"' + b"a" * PIECE, "truncated"),
    ],
)
def test_what_is_not_json_is_refused_with_its_place(text: bytes, reason: str) -> None:
    with pytest.raises(MalformedInput, match=reason):
        decode(text)


def test_a_repeated_key_is_found_at_any_depth_that_is_parsed() -> None:
    levels = MAX_DEPTH - 2
    with pytest.raises(MalformedInput, match="the key 'a' twice"):
        decode(b"[" * levels + b'{"a":1,"a":2}' + b"]" * levels)
