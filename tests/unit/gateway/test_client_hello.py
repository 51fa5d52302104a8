"""TLS begins with a client's whole first message, however it is cut up."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.certificates import first_message
from threadfold.gateway.client_hello import HEADER, MOST, RECORDS, ClientHello, NoHello

MESSAGE = first_message()[HEADER:]


def records(message: bytes, cuts: list[int]) -> bytes:
    """A message in records that end at these places."""
    places = sorted({0, len(message), *(cut for cut in cuts if cut < len(message))})
    parts = [message[a:b] for a, b in pairwise(places)]
    return b"".join(b"\x16\x03\x01" + len(part).to_bytes(2) + part for part in parts)


@given(
    st.lists(st.integers(1, len(MESSAGE)), max_size=RECORDS - 1),
    st.lists(st.integers(1, 2 * len(MESSAGE))),
)
def test_a_message_is_whole_with_its_last_byte_in_whatever_records_and_pieces(
    cuts: list[int], ends: list[int]
) -> None:
    sent, hello = records(MESSAGE, cuts), ClientHello()
    for end in sorted(end for end in ends if end < len(sent)):
        assert not hello.is_whole(sent[:end])
    assert not hello.is_whole(sent[:-1])
    assert hello.is_whole(sent + b"more")


def test_a_message_that_comes_byte_by_byte_is_whole_at_its_end() -> None:
    sent, hello = records(MESSAGE, list(range(RECORDS))), ClientHello()
    assert [hello.is_whole(sent[:end]) for end in range(1, len(sent) + 1)] == (
        [False] * (len(sent) - 1) + [True]
    )


def test_a_message_in_very_many_records_is_refused_though_all_came_at_once() -> None:
    within, beyond = list(range(RECORDS)), list(range(RECORDS + 1))
    assert ClientHello().is_whole(records(MESSAGE, within))
    with pytest.raises(NoHello):
        ClientHello().is_whole(records(MESSAGE, beyond))


@pytest.mark.parametrize(
    "sent",
    [
        b"G",
        b"\x80\x2e\x01\x03\x01",
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"\x16\x02",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\x40\x01",
        b"\x16\x03\x01\x00\x01\x02",
        records(b"\x01\x00\xff\xff", []) + records(bytes(MOST), []),
    ],
    ids=[
        "http",
        "sslv2",
        "an alert",
        "another version",
        "an empty record",
        "a record that is too long",
        "a message of a server",
        "a message that is too long",
    ],
)
def test_what_never_becomes_a_first_message_is_refused(sent: bytes) -> None:
    with pytest.raises(NoHello):
        ClientHello().is_whole(sent)
