"""Sealed payloads: an event whose ``data`` only who holds its conversation's data key can read.
Pure: no clock, no network, no key store.

The envelope stays (id, type, source, time, tokens); ``data`` becomes ``{"kid", "nonce",
"ciphertext"}`` (base64), AES-256-GCM over the JSON bytes that were ``data``. Type, id and source
are authenticated with it, so a payload cannot be moved to another event or conversation. What is
opened is the value as it was before it was sealed, byte for byte. ``streams.control.key_ring`` has
the keys.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec
import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from projections.events.codec import decode_event, decode_opaque
from projections.events.types import AnyEvent
from projections.events.untrusted import Undecodable, json_decoder
from projections.events.validation import Record

MARK = b'"ciphertext":"'
"""What every sealed value has in it; within a text of JSON its quotes would be escaped."""
KID_BYTES = 12
KEY_BYTES = 32
NONCE_BYTES = 12
"""Random nonces of 96 bits: good for 2^32 events under one key (NIST SP 800-38D, 8.3); a
conversation has one of its own.
"""
_KID = b'"kid":"'
_KID_TEXT = 16
_BODY = b"\xc1sealed\x00"
"""How a sealed snapshot's body begins: no msgpack does."""


class NotAuthentic(ValueError):
    """A ciphertext is not what its key sealed, or not for this place."""


class _Row(Protocol):
    @property
    def key(self) -> bytes | None: ...

    @property
    def value(self) -> bytes | None: ...


class PayloadCipher(Protocol):
    """Who seals and opens; ``streams.control.key_ring.KeyRing`` is the real one. Conversations are
    named as in keys: ``tenant/conversation``.
    """

    async def seal(self, records: Sequence[Record]) -> list[Record]:
        """The records as they may stand in a topic: those of conversations that are encrypted are
        sealed.

        Raises:
            Erased: a conversation was erased; nothing but its erasure is appended to it.
            KeyUnusable: no master key is configured, or (of a conversation that is new) one that is
                in use is missing or another.
            KafkaUnavailable: a new key could not be stored.
        """

    async def ready(self, rows: Iterable[_Row]) -> None:
        """Make sure that each key these rows need is known, or known to be deleted; to be awaited
        before they are read.
        """

    async def find(self, keys: Iterable[tuple[bytes | None, bytes]]) -> None:
        """The same for keys by conversation and kid."""

    def data_key(self, conversation: bytes, kid: bytes) -> AESGCM | None:
        """A conversation's data key, None where it is deleted (or :meth:`ready` was not awaited).

        Raises:
            KeyUnusable: it is there, and its master key is not.
        """

    def snapshot_key(self, conversation: bytes) -> tuple[bytes, AESGCM] | None:
        """The key to seal a conversation's snapshot with, None where nothing of it is sealed;
        raises like :meth:`data_key`.

        For one that is being erased, or was, it may be a key that nobody keeps.
        """

    def is_erased(self, conversation: bytes) -> bool:
        """Whether the conversation was erased, or is being erased."""

    def erased_at(self, conversation: bytes) -> str | None:
        """The position of a finished erasure, None without one."""


class Unsealed:
    """No keys at all: nothing is sealed, and what is sealed is opaque."""

    async def seal(self, records: Sequence[Record]) -> list[Record]:
        return list(records)

    async def ready(self, rows: Iterable[_Row]) -> None:
        return None

    async def find(self, keys: Iterable[tuple[bytes | None, bytes]]) -> None:
        return None

    def data_key(self, conversation: bytes, kid: bytes) -> AESGCM | None:
        return None

    def snapshot_key(self, conversation: bytes) -> tuple[bytes, AESGCM] | None:
        return None

    def is_erased(self, conversation: bytes) -> bool:
        return False

    def erased_at(self, conversation: bytes) -> str | None:
        return None


class _Payload(msgspec.Struct, forbid_unknown_fields=True):
    kid: str
    nonce: str
    ciphertext: str


class _Envelope(msgspec.Struct):
    id: str
    type: str
    source: str
    data: msgspec.Raw


class _SealedEnvelope(msgspec.Struct):
    id: str
    type: str
    source: str
    data: _Payload


_envelope = json_decoder(_Envelope)
_sealed_envelope = json_decoder(_SealedEnvelope)
_encode = msgspec.json.Encoder().encode


def seal_event(value: bytes, kid: bytes, key: AESGCM) -> bytes:
    """Seal the payload of an event's value, which intake made; one without ``data``, or sealed
    already, stays as it is.
    """
    if is_sealed(value):
        return value
    try:
        event = _envelope(value)
    except Undecodable:
        return value
    data = bytes(event.data)
    if not value.endswith(data + b"}"):
        whole = orjson.loads(value)
        whole["data"] = whole.pop("data")
        value = orjson.dumps(whole)
        data = bytes(_envelope(value).data)
    nonce = os.urandom(NONCE_BYTES)
    ciphertext = key.encrypt(nonce, data, _encode((event.type, event.id, event.source)))
    parts = (
        value[: -len(data) - 1],
        b'{"kid":"',
        base64.urlsafe_b64encode(kid),
        b'","nonce":"',
        base64.b64encode(nonce),
        b'","ciphertext":"',
        base64.b64encode(ciphertext),
        b'"}}',
    )
    return b"".join(parts)


def is_sealed(value: bytes) -> bool:
    """Whether a value is of a sealed event."""
    return MARK in value and _sealed(value) is not None


def kid_in(value: bytes | None) -> bytes | None:
    """The kid of a value that seems to be sealed, found without decoding it; None for any other."""
    if value is None or MARK not in value:
        return None
    at = value.rfind(_KID) + len(_KID)
    return _kid_of(value[at : at + _KID_TEXT])


def _kid_of(text: bytes) -> bytes | None:
    if len(text) != _KID_TEXT:
        return None
    try:
        return base64.b64decode(text, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None


def _sealed(value: bytes) -> _SealedEnvelope | None:
    try:
        return _sealed_envelope(value)
    except Undecodable:
        return None


def open_value(seals: PayloadCipher, conversation: bytes, value: bytes) -> bytes | None:
    """An event's value with its payload readable, as it was before it was sealed; None where its
    key is deleted.

    Raises:
        NotAuthentic: the ciphertext is not what the key sealed, or not of this event.
        KeyUnusable: the key is there, and its master key is not.
    """
    if MARK not in value:
        return value
    event = _sealed(value)
    if event is None:
        return value
    kid = _kid_of(event.data.kid.encode())
    key = seals.data_key(conversation, kid) if kid is not None else None
    if key is None:
        return None
    try:
        nonce, ciphertext = (
            binascii.a2b_base64(event.data.nonce),
            binascii.a2b_base64(event.data.ciphertext),
        )
        data = key.decrypt(nonce, ciphertext, _encode((event.type, event.id, event.source)))
    except (InvalidTag, ValueError):
        raise NotAuthentic("its sealed payload does not authenticate under its key") from None
    at = value.rfind(b'"data":{')
    if at < 0 or not value.endswith(event.data.ciphertext.encode() + b'"}}'):
        # Another producer's order of fields.
        try:
            whole = orjson.loads(value)
        except orjson.JSONDecodeError:
            raise NotAuthentic("beside its sealed payload it is not JSON") from None
        return orjson.dumps({**whole, "data": orjson.loads(data)})
    return b"".join((value[: at + 7], data, b"}"))


def read_event(seals: PayloadCipher, conversation: bytes, value: bytes) -> AnyEvent:
    """Decode a record's value, sealed or not, into its typed event; one whose key is deleted is an
    :class:`OtherEvent` of its type.

    Raises:
        Undecodable: as ``projections.events.codec.decode_event`` says, or its payload does not
            authenticate.
        KeyUnusable: the key is there, and its master key is not.
    """
    if MARK not in value:
        return decode_event(value)
    try:
        opened = open_value(seals, conversation, value)
    except NotAuthentic as error:
        raise Undecodable(str(error)) from None
    return decode_opaque(value) if opened is None else decode_event(opened)


# -- snapshots


def seal_body(conversation: bytes, body: bytes, kid: bytes, key: AESGCM) -> bytes:
    """Seal a snapshot's body (``projections.storage.snapshots``) for its conversation."""
    nonce = os.urandom(NONCE_BYTES)
    return _BODY + kid + nonce + key.encrypt(nonce, body, b"snapshot\n" + conversation)


def body_sealer(
    seals: PayloadCipher, conversation: bytes, *, erased: bool = False
) -> Callable[[bytes], bytes]:
    """What seals the bodies of a conversation's snapshots, and leaves them as they are where
    nothing of it is sealed.

    They hold pinned text and the summary. A window that is ``erased`` holds nothing, and has to
    stay readable. Raises like :meth:`PayloadCipher.snapshot_key`.
    """
    key = None if erased else seals.snapshot_key(conversation)
    return bytes if key is None else lambda body: seal_body(conversation, body, *key)


def kid_of_body(body: bytes) -> bytes | None:
    """The kid of a sealed body, None for one that is not."""
    return body[len(_BODY) : len(_BODY) + KID_BYTES] if body.startswith(_BODY) else None


def open_body(seals: PayloadCipher, conversation: bytes, body: bytes) -> bytes | None:
    """A snapshot's body as it was before it was sealed; None where its key is deleted. Raises like
    :func:`open_value`.
    """
    kid = kid_of_body(body)
    if kid is None:
        return body
    key = seals.data_key(conversation, kid)
    if key is None:
        return None
    at = len(_BODY) + KID_BYTES
    try:
        return key.decrypt(
            body[at : at + NONCE_BYTES], body[at + NONCE_BYTES :], b"snapshot\n" + conversation
        )
    except (InvalidTag, ValueError):
        raise NotAuthentic("a sealed snapshot does not authenticate under its key") from None
