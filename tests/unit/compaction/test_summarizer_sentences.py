"""Sentences: any text becomes short lines, in order and in linear time."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.compaction.summarizers.sentences import (
    MAX_CHARS,
    flatten,
    split_sentences,
    split_texts,
)
from tests.support.profiles import examples


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("---\n\n***", []),
        ("I agree. Do it! Why not? ok", ["I agree.", "Do it!", "Why not? ok"]),
        ("Dr. Lee paid $3.50 to J. Doe. Done.", ["Dr. Lee paid $3.50 to J. Doe.", "Done."]),
        ("今日は雨です。明日は晴れ！本当？はい", ["今日は雨です。", "明日は晴れ！", "本当？", "はい"]),
        ("one line\r\nanother\u2028third", ["one line", "another", "third"]),
        ("| id | price |\n|---|---|\n| A1 | 20 |", ["id | price", "A1 | 20"]),
        ("1. **Flight XY12**\n   - Price: $5\n   - Seats: 7\n2. Flight ZZ34", ["1. Flight XY12, Price: $5, Seats: 7", "2. Flight ZZ34"]),
        ("👍", ["👍"]),
    ],
)  # fmt: skip
def test_text_is_split_where_its_sentences_end(text: str, expected: list[str]) -> None:
    assert split_sentences(text) == expected


def test_json_becomes_a_sentence_a_record_with_its_path() -> None:
    value = {
        "user": {"name": "Ann", "vip": True, "note": None},
        "orders": [
            {"id": "A1", "items": [{"sku": "x", "more": {"n": 1}}]},
            {"id": "B2", "total": 9.5},
        ],
    }
    assert split_sentences(json.dumps(value)) == [
        "user: (name Ann, vip true)",
        "orders: (id B2, total 9.5)",
        "orders: id: A1",
        "orders items: sku: x, more: (n 1)",
    ]


@pytest.mark.parametrize(
    "text", ['{"a": ', "[" * 100_000 + "x", '{"a":"\ud800"}', "[1, 2", "{not json}"]
)
def test_what_only_looks_like_json_is_read_as_text(text: str) -> None:
    assert "".join(split_sentences(text)) or not any(c.isalnum() for c in text)


@given(text=st.text(max_size=2_000) | st.text(alphabet='ab .!?,\n。字-*{}[]":1', max_size=2_000))
@settings(max_examples=examples(200), deadline=None)
def test_sentences_are_bounded_single_lines(text: str) -> None:
    for sentence in split_sentences(text):
        assert 0 < len(sentence) <= MAX_CHARS
        assert sentence == flatten(sentence)
        assert len(sentence.splitlines()) == 1


TEXTS = st.text(max_size=200) | st.text(alphabet='aB .!?,\n。字-*"|M r.', max_size=200)


@given(texts=st.lists(TEXTS | st.sampled_from(["Mr. B", "3. C. D", '[{"a": "X. Y"}]']), max_size=8))
@settings(max_examples=examples(200), deadline=None)
def test_texts_split_together_are_split_as_each_alone(texts: list[str]) -> None:
    assert split_texts(texts) == [split_sentences(text) for text in texts]


@given(words=st.lists(st.text(alphabet="abcXYZ123字é", min_size=1, max_size=12), max_size=200))
@settings(max_examples=examples(100), deadline=None)
def test_prose_loses_no_word(words: list[str]) -> None:
    assert "".join(split_sentences(" ".join(words))).replace(" ", "") == "".join(words)


@pytest.mark.parametrize(
    "unit",
    [
        "word and 123 ",
        "x",
        "日本語のテキスト",
        ". ",
        "a. B",
        "- a\n",
        " ",
        "\n",
        "[",
        "Mr. ",
        "(((",
        '"',
        "| a ",
    ],
)
def test_a_megabyte_of_anything_is_split_in_linear_time(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    before = time.perf_counter()
    sentences = split_sentences(text)
    assert time.perf_counter() - before < 2
    assert all(len(sentence) <= MAX_CHARS for sentence in sentences)


def test_a_very_long_text_keeps_its_head_and_its_tail() -> None:
    sentences = split_sentences("first words\n" + "middle\n" * 100_000 + "last words")
    assert sentences[0] == "first words"
    assert sentences[-1] == "last words"
