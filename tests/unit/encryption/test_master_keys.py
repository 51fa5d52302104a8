"""Master keys and the table of what the keys topic says."""

from __future__ import annotations

import base64
import os
from itertools import permutations
from pathlib import Path

import msgspec
import pytest

from projections.errors import InvalidSettings, KeyUnusable
from streams.encryption.key_table import Erasure, KeyTable, encode_key, key_place
from streams.encryption.master_keys import MasterKeys, master_keys_of, new_master
from streams.encryption.payload_cipher import KID_BYTES
from streams.settings.settings import Settings

NAME = b"acme/c1"
DONE = msgspec.json.encode(Erasure("done", "2026-01-31T12:00:00Z", "opaque", position="0-5"))
BEGUN = msgspec.json.encode(Erasure("begun", "2026-01-31T12:00:00Z", "opaque"))


def of(**values: object) -> MasterKeys:
    return master_keys_of(Settings.load(env={}, **values))


def test_a_data_key_is_unwrapped_in_its_own_place_by_its_own_master_key_only() -> None:
    first, second, data = new_master("a"), new_master("b"), os.urandom(32)
    wrapped = of(master_keys=first).wrap(b"place", data)
    both = of(master_keys=f"{second},{first}")
    assert both.current == "b"
    assert both.unwrap(b"place", "a", wrapped) == data
    with pytest.raises(KeyUnusable, match="cannot be unwrapped"):
        both.unwrap(b"elsewhere", "a", wrapped)
    with pytest.raises(KeyUnusable, match="cannot be unwrapped"):
        of(master_keys=new_master("a")).unwrap(b"place", "a", wrapped)
    with pytest.raises(KeyUnusable, match="not configured"):
        of(master_keys=second).unwrap(b"place", "a", wrapped)
    with pytest.raises(KeyUnusable, match="no master key is configured"):
        of().wrap(b"place", data)


def test_a_file_has_one_key_a_line_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# the current one\n{new_master('new')}\n\n  {new_master('old')}  \n")
    assert of(master_keys_file=str(path)).ids == ("new", "old")


SHORT = base64.b64encode(b"a secret that is short").decode()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"master_keys": f"a:{SHORT}"}, "entry 1"),
        ({"master_keys": f"{new_master('a')},{SHORT}"}, "entry 2"),
        ({"master_keys": f"a b:{SHORT}"}, "entry 1"),
        ({"master_keys": ",".join([new_master("a"), new_master("a")])}, "earlier one"),
        ({"master_keys": new_master(), "master_keys_file": "x"}, "both set"),
        ({"master_keys_file": "no-such-file"}, "cannot be read"),
    ],
)
def test_what_is_wrong_with_master_keys_is_said_without_them(
    values: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidSettings, match=said) as found:
        of(**values)
    for secret in values.get("master_keys", "").split(","):
        assert secret.partition(":")[2][:12] not in str(found.value) or not secret.partition(":")[2]
    assert SHORT[:12] not in str(found.value)


def test_neither_settings_nor_master_keys_show_them() -> None:
    entry = new_master("a")
    settings = Settings.load(env={}, master_keys=entry)
    for shown in (repr(settings), str(settings), f"{settings!r}", repr(master_keys_of(settings))):
        assert entry.partition(":")[2] not in shown


def rows(*kids: bytes) -> list[tuple[bytes, bytes | None]]:
    return [
        (key_place(NAME, kid), encode_key(f"m{i}", bytes([i]) * 60)) for i, kid in enumerate(kids)
    ]


def table_of(records: list[tuple[bytes, bytes | None]]) -> KeyTable:
    table = KeyTable()
    for place, value in records:
        table.put(place, value)
    return table


def test_several_keys_of_a_conversation_stand_beside_each_other_and_go_one_by_one() -> None:
    one, two = os.urandom(KID_BYTES), os.urandom(KID_BYTES)
    table = table_of(rows(one, two))
    assert [(w.kid, w.master, w.wrapped) for w in table.of(NAME)] == [
        (one, "m0", bytes(60)),
        (two, "m1", b"\1" * 60),
    ]
    assert table.find(NAME, two) == table.of(NAME)[1]
    assert table.find(NAME, os.urandom(KID_BYTES)) is None
    table.put(key_place(NAME, one), None)
    assert [w.kid for w in table.of(NAME)] == [two]
    table.put(key_place(NAME, two), None)
    assert not table.has(NAME)
    assert len(table) == 0


def test_a_key_that_is_wrapped_anew_keeps_its_kid() -> None:
    one = os.urandom(KID_BYTES)
    table = table_of(rows(one))
    table.put(key_place(NAME, one), encode_key("other", b"x" * 60))
    assert [(w.kid, w.master) for w in table.of(NAME)] == [(one, "other")]


def test_an_erased_conversation_has_no_key_in_whatever_order_the_records_come() -> None:
    one, two = os.urandom(KID_BYTES), os.urandom(KID_BYTES)
    for order in permutations([*rows(one, two), (NAME + b"/erased", DONE)]):
        table = table_of(list(order))
        assert not table.has(NAME)
        assert table.find(NAME, one) is None
        assert table.is_done(NAME)
        # Whoever sees them deletes them.
        assert table.void == {key_place(NAME, one), key_place(NAME, two)}
        table.put(key_place(NAME, one), None)
        assert table.void == {key_place(NAME, two)}


def test_keys_stay_while_an_erasure_has_only_begun_and_one_that_is_done_is_final() -> None:
    one = os.urandom(KID_BYTES)
    table = table_of([*rows(one), (NAME + b"/erased", BEGUN)])
    assert table.is_erased(NAME)
    assert not table.is_done(NAME)
    assert table.find(NAME, one) is not None
    table.put(NAME + b"/erased", DONE)
    table.put(NAME + b"/erased", BEGUN)
    table.put(NAME + b"/erased", DONE.replace(b"0-5", b"0-9"))
    found = table.erasure(NAME)
    assert found is not None
    assert (found.state, found.position) == ("done", "0-5")
    table.put(NAME + b"/erased", BEGUN.replace(b"{", b'{"user":"u",', 1))
    table.put(NAME + b"/erased", DONE)
    found = table.erasure(NAME)
    assert found is not None
    assert (found.state, found.user) == ("done", "u"), "on whose behalf stays"


def test_records_of_other_kinds_are_left_alone_and_broken_ones_are_reported() -> None:
    table = table_of(
        [(b"!roll", b"{}"), (b"no-name", b"x"), (NAME + b"/later-kind", b"x"), (b"a/b/c/d", b"x")]
    )
    assert len(table) == 0
    for value in (b"{", encode_key("m", b"short")):
        with pytest.raises(ValueError):
            table.put(key_place(NAME, os.urandom(KID_BYTES)), value)
