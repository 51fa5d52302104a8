"""Sealed payloads: what is opened is what was sealed, in its own place only; without its key an
event is opaque and never poison.
"""

from __future__ import annotations

import base64
import os

import msgspec
import orjson
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from projections.events.types import MessageEvent, OpenedEvent, OtherEvent
from projections.events.untrusted import Undecodable
from projections.events.validation import make_record
from projections.names import Key
from streams.encryption.payload_cipher import (
    KID_BYTES,
    NotAuthentic,
    Unsealed,
    is_sealed,
    kid_in,
    kid_of_body,
    open_body,
    open_value,
    read_event,
    seal_body,
    seal_event,
)

KEY = Key("acme", "c1")
NAME = str(KEY).encode()
NOW = "2026-01-31T12:00:00Z"


class One(Unsealed):
    """Seals with one key of one conversation."""

    def __init__(self) -> None:
        self.kid, self.key = os.urandom(KID_BYTES), AESGCM(os.urandom(32))

    def data_key(self, conversation: bytes, kid: bytes) -> AESGCM | None:
        return self.key if (conversation, kid) == (NAME, self.kid) else None


def value_of(flat: dict[str, object], id_: str = "e1") -> bytes:
    return make_record(KEY, flat, where="event", now=NOW, new_id=id_).value


SAID = {
    "type": "message",
    "role": "user",
    "content": 'my "secret" \\ {"data":{"kid":"x","ciphertext":"y"}} é\u2028',
}
FLATS = [
    SAID,
    {"type": "conversation.opened", "metadata": {"ciphertext": "secret"}, "user": "u"},
    {
        "type": "tool.result",
        "tool_call_id": "c",
        "content": "secret",
        "traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01",
    },
    {"type": "acme.note.v1", "secret": [1, 2.5, None]},
    {"type": "turn.started", "turn_id": "t"},
]


@pytest.mark.parametrize("flat", FLATS)
def test_what_is_opened_is_byte_for_byte_what_was_sealed_and_the_envelope_stays(
    flat: dict[str, object],
) -> None:
    seals, plain = One(), value_of(flat)
    sealed = seal_event(plain, seals.kid, seals.key)
    before, after = orjson.loads(plain), orjson.loads(sealed)
    assert b"secret" not in sealed
    assert is_sealed(sealed) and not is_sealed(plain)
    assert kid_in(sealed) == seals.kid
    assert set(after["data"]) == {"kid", "nonce", "ciphertext"}
    assert {k: v for k, v in after.items() if k != "data"} == {
        k: v for k, v in before.items() if k != "data"
    }
    assert open_value(seals, NAME, sealed) == plain
    assert open_value(seals, NAME, plain) == plain
    assert seal_event(sealed, seals.kid, seals.key) == sealed


def test_the_same_event_sealed_twice_shows_nothing_of_being_the_same() -> None:
    seals = One()
    first, second = (
        orjson.loads(seal_event(value_of(SAID), seals.kid, seals.key))["data"] for _ in range(2)
    )
    assert first["nonce"] != second["nonce"]
    assert first["ciphertext"] != second["ciphertext"]


def test_another_producers_order_of_fields_is_read_as_well() -> None:
    seals = One()
    data = orjson.loads(value_of(SAID))["data"]
    whole = orjson.loads(seal_event(value_of(SAID), seals.kid, seals.key))
    sealed = orjson.dumps(
        {
            "data": dict(reversed(whole["data"].items())),
            **{k: v for k, v in whole.items() if k != "data"},
        }
    )
    event = read_event(seals, NAME, sealed)
    assert isinstance(event, MessageEvent)
    assert event.data.content == data["content"]
    shuffled = orjson.dumps(
        {"data": data, **{k: v for k, v in orjson.loads(value_of(SAID)).items() if k != "data"}}
    )
    again = read_event(seals, NAME, seal_event(shuffled, seals.kid, seals.key))
    assert again == event


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("id", "e2"),
        ("type", "threadfold.tool.result.v1"),
        ("source", "/tenants/acme/conversations/c2"),
    ],
)
def test_a_payload_moved_to_another_event_is_no_event(field: str, other: str) -> None:
    seals = One()
    moved = orjson.dumps(
        {**orjson.loads(seal_event(value_of(SAID), seals.kid, seals.key)), field: other}
    )
    with pytest.raises(Undecodable, match="does not authenticate"):
        read_event(seals, NAME, moved)


def test_a_payload_of_another_conversation_finds_no_key() -> None:
    seals = One()
    assert isinstance(
        read_event(seals, b"acme/c2", seal_event(value_of(SAID), seals.kid, seals.key)), OtherEvent
    )


@pytest.mark.parametrize("field", ["nonce", "ciphertext"])
def test_a_changed_payload_is_no_event_and_its_cause_says_nothing_of_it(field: str) -> None:
    seals = One()
    whole = orjson.loads(seal_event(value_of(SAID), seals.kid, seals.key))
    raw = bytearray(base64.b64decode(whole["data"][field]))
    raw[0] ^= 1
    for changed in (base64.b64encode(raw).decode(), "!", "QQ=="):
        whole["data"][field] = changed
        with pytest.raises(Undecodable, match="does not authenticate"):
            read_event(seals, NAME, orjson.dumps(whole))


@pytest.mark.parametrize("flat", FLATS)
def test_without_its_key_an_event_is_one_of_a_type_that_nobody_knows(
    flat: dict[str, object],
) -> None:
    seals = One()
    event = read_event(Unsealed(), NAME, seal_event(value_of(flat), seals.kid, seals.key))
    assert isinstance(event, OtherEvent)
    assert (event.id, event.source) == ("e1", KEY.source)


def test_events_that_only_look_sealed_are_read_as_they_are() -> None:
    looks = value_of(
        {
            "type": "conversation.opened",
            "metadata": {"kid": "x" * 16, "nonce": "n", "ciphertext": "c"},
        }
    )
    assert isinstance(read_event(Unsealed(), NAME, looks), OpenedEvent)
    assert isinstance(
        read_event(Unsealed(), NAME, value_of({"type": "acme.note.v1", "ciphertext": "c"})),
        OtherEvent,
    )


def test_what_a_sealed_payload_gets_wrong_is_not_quoted() -> None:
    seals = One()
    plain = value_of(SAID).replace(b'"user"', b'"a secret"')
    with pytest.raises(Undecodable) as found:
        read_event(seals, NAME, seal_event(plain, seals.kid, seals.key))
    assert "role" in str(found.value)
    assert "secret" not in str(found.value)


def test_a_snapshots_body_is_opened_for_its_own_conversation_only() -> None:
    seals, body = One(), msgspec.msgpack.encode(("meta", "secret", b"ids"))
    sealed = seal_body(NAME, body, seals.kid, seals.key)
    assert b"secret" not in sealed
    assert kid_of_body(sealed) == seals.kid
    assert kid_of_body(body) is None
    assert open_body(seals, NAME, sealed) == body
    assert open_body(seals, NAME, body) == body
    assert open_body(Unsealed(), NAME, sealed) is None
    with pytest.raises(NotAuthentic):
        open_body(seals, NAME, sealed[:-1] + bytes([sealed[-1] ^ 1]))
