"""Which records of the keys topic an export has: none that a later one replaces, deletes or voids."""

from __future__ import annotations

import base64

import msgspec

from streams.encryption.key_table import ERASED, Erasure, encode_key, key_place
from streams.encryption.master_keys import WRAPPED_BYTES
from streams.encryption.payload_cipher import KID_BYTES
from streams.log.topic_copies import Copied
from streams.maintenance.newest_keys import NewestKeys

NAME = b"acme/c1"
PLACE = key_place(NAME, b"k" * KID_BYTES)
ERASURE = NAME + b"/" + ERASED


def wrapped(by: str) -> bytes:
    return encode_key(by, b"w" * WRAPPED_BYTES)


def erasure(state: str) -> bytes:
    return msgspec.json.encode(Erasure(state, "2026-01-31T12:00:00Z", "opaque"))  # type: ignore[arg-type]


def standing(*rows: tuple[bytes, bytes | None]) -> list[int]:
    """The offsets of the records that an export of these has."""
    records = [Copied(offset, 0, key, value, ()) for offset, (key, value) in enumerate(rows)]
    newest = NewestKeys()
    for record in records:
        newest.put(record)
    return [record.offset for record in records if newest.stands(record)]


def test_of_a_key_that_was_wrapped_anew_the_newest_record_stands() -> None:
    other = key_place(b"acme/c2", b"o" * KID_BYTES)
    assert standing((PLACE, wrapped("old")), (other, wrapped("old")), (PLACE, wrapped("new"))) == [
        1,
        2,
    ]


def test_of_a_deleted_key_nothing_stands_not_even_that_it_is_deleted() -> None:
    assert standing((PLACE, wrapped("a")), (PLACE, None)) == []


def test_a_key_stands_while_its_conversations_erasure_is_not_done() -> None:
    assert standing((PLACE, wrapped("a")), (ERASURE, erasure("begun"))) == [0, 1]


def test_of_an_erased_conversation_only_the_erasure_stands_also_where_keys_are_not_deleted_yet() -> (
    None
):
    late = key_place(NAME, b"l" * KID_BYTES)
    assert standing(
        (PLACE, wrapped("a")),
        (ERASURE, erasure("begun")),
        (ERASURE, erasure("done")),
        (late, wrapped("a")),
    ) == [2]
    # One that was wrapped anew at the same time comes after its deletion.
    assert standing(
        (PLACE, wrapped("a")), (ERASURE, erasure("done")), (PLACE, None), (PLACE, wrapped("b"))
    ) == [1]


def test_a_record_that_nobody_can_read_replaces_none() -> None:
    assert standing((PLACE, wrapped("a")), (PLACE, b"{")) == [0, 1]


def test_records_of_kinds_that_this_release_does_not_know_are_treated_alike() -> None:
    kind = NAME + b"/" + base64.urlsafe_b64encode(b"short")
    assert standing((b"!roll", b"{}"), (kind, b"1"), (b"!roll", b"{}"), (kind, b"2")) == [2, 3]
