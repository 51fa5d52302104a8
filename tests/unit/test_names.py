"""Names, keys, positions and the partitioner."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.errors import InvalidName, InvalidPosition
from projections.names import (
    Key,
    Position,
    check_name,
    make_key,
    murmur2,
    one_line,
    parse_key,
    parse_position,
    partition_of,
    quoted,
)

NAMES = st.text("abzAZ09._:-", min_size=1, max_size=128)


@pytest.mark.parametrize("name", ["a", "A-Z.0_9:x", "x" * 128])
def test_a_name_of_allowed_characters_is_taken(name: str) -> None:
    assert check_name("tenant", name) == name


@pytest.mark.parametrize(
    "name", ["", "x" * 129, "a/b", "a b", "ä", "٣", "a\n", "\ud800", None, 7, b"a", ["a"]]
)
def test_another_name_is_refused_with_what_it_was_to_name(name: object) -> None:
    with pytest.raises(InvalidName, match=r"^tenant .* is not a name"):
        check_name("tenant", name)


def test_a_long_bad_name_is_shown_by_its_beginning() -> None:
    with pytest.raises(InvalidName) as caught:
        check_name("conversation", "/" * 10_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("memory-1", "memory-1"),
        ("tool_calls[0].größe", "tool_calls[0].größe"),
        ("a b", "'a b'"),
        ("", "''"),
        ("\n\rX", r"'\n\rX'"),
        ("\ud800", r"'\ud800'"),
        ("y" * 81, f"'{'y' * 60}…'"),
        (7, "7"),
    ],
)
def test_what_a_caller_sent_is_shown_as_it_is_or_quoted(text: object, shown: str) -> None:
    assert one_line(text) == shown


def test_a_long_value_is_quoted_by_its_beginning() -> None:
    assert quoted("\n" * 500, 3) == r"'\n\n\n…'"
    assert quoted(["y" * 500], 5) == "['yyy…"


def test_which_part_of_a_key_is_wrong_is_said() -> None:
    with pytest.raises(InvalidName, match=r"^tenant"):
        make_key("a b", "c")
    with pytest.raises(InvalidName, match=r"^conversation"):
        make_key("a", "")


@given(NAMES, NAMES)
def test_a_key_reads_back_from_its_record(tenant: str, conversation: str) -> None:
    key = make_key(tenant, conversation)
    assert parse_key(str(key).encode()) == key
    assert key.source == f"/tenants/{tenant}/conversations/{conversation}"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"a",
        b"/",
        b"a/",
        b"/b",
        b"a/b/c",
        b"a/b ",
        b"a\n/b",
        b"\xff/b",
        "ä/b".encode(),
        b"a/b\n",
    ],
)
def test_a_record_key_of_another_form_belongs_to_nobody(raw: bytes) -> None:
    assert parse_key(raw) is None


@given(st.integers(0, 10**9 - 1), st.integers(0, 10**18 - 1))
def test_a_position_reads_back(partition: int, offset: int) -> None:
    position = Position(partition, offset)
    assert parse_position(str(position)) == position


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1-",
        "-1",
        "1-2-3",
        "a-b",
        "1-2\n",
        " 1-2",
        "٣-٤",
        "1-" + "9" * 19,
        "1--2",
        None,
        12,
        b"1-2",
    ],
)
def test_another_text_is_no_position(text: object) -> None:
    with pytest.raises(InvalidPosition, match="does not come from threadfold"):
        parse_position(text)


@pytest.mark.parametrize(
    ("data", "signed"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536),
     (b"a-little-bit-longer-string", -1486304829), (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
     (b"abc", 479470107)],
)  # fmt: skip
def test_murmur2_gives_the_values_of_kafkas_own_test(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed & 0xFFFFFFFF


@given(NAMES, st.integers(1, 1_000))
def test_a_partition_is_one_of_those_there_are(name: str, partitions: int) -> None:
    assert 0 <= partition_of(Key("acme", name), partitions) < partitions


def test_keys_that_are_too_long_are_nobodys_and_are_not_kept() -> None:
    assert parse_key(f"{'t' * 128}/{'c' * 128}".encode()) == Key("t" * 128, "c" * 128)
    tracemalloc.start()
    try:
        for i in range(50):
            assert parse_key(b"t/" + b"x" * 100_000 + str(i).encode()) is None
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000
