"""A model call in the ledger: its fields, its record on the topic, its id."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from hashlib import sha256
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from projections.errors import EventTooLarge, InvalidEvent
from projections.events.json_limits import why_not_kept
from projections.events.size_limits import MAX_CONTROL_BYTES, MAX_NAME
from projections.events.times import present
from projections.events.type_errors import explain
from projections.events.untrusted import Undecodable, json_decoder
from projections.events.validation import Record
from projections.names import Key, Position, one_line, parse_key, parse_position
from streams.encryption.payload_cipher import NotAuthentic, PayloadCipher, open_value
from streams.log.log import Raw
from threadfold.service.documents import Format
from threadfold.service.drafts import new_id

TYPE = "threadfold.model.called.v1"
_PLACE = struct.Struct(">iq")
_CHECK = 9
MAX_RECALLED = 256
"""Memories that one call may have been sent."""
_Recalled = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]], Meta(max_length=MAX_RECALLED)
]
_DIGEST = re.compile(r"[0-9a-f]{64}")


class ModelCalled(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A call of a model, and the digest of what it was sent. On the topic of renders only.

    ``recalled`` are the ids of the memories that were sent beside the render (``recall=on``): its
    digest is without them. ``tokens`` are the render's, ``latency_ms`` milliseconds,
    ``max_tokens`` that of the context request. ``generation`` is threadfold's own: the generation
    that was live when the call was recorded.
    """

    model: str
    render_digest: str
    position: str
    format: Format
    tokens: int
    summary_id: str | None = None
    policy: str | None = None
    reported_usage: dict[str, Any] | None = None
    latency_ms: float | None = None
    max_tokens: int | None = None
    recalled: _Recalled = []
    generation: int | None = None


class StoredCall(msgspec.Struct):
    id: str
    type: str
    source: str
    data: ModelCalled
    time: str | None = None


_FIELDS = frozenset(ModelCalled.__struct_fields__) - {"generation"}
_decode = json_decoder(StoredCall)


def read_called(body: object) -> ModelCalled:
    """Validate the body of a request that records a model call.

    Raises:
        InvalidEvent: a field is missing, unknown or wrong; the message names it.
        InvalidPosition: ``position`` is not a position.
        EventTooLarge: the call is over 32 KiB.
    """
    if not isinstance(body, dict):
        raise InvalidEvent("render: expected an object")
    for field, value in body.items():
        if field not in _FIELDS:
            raise InvalidEvent(
                f"render: field {one_line(field)}: unknown (it has {', '.join(sorted(_FIELDS))})"
            )
        reason = why_not_kept(value)
        if reason is not None:
            raise InvalidEvent(f"render: field {field}: {reason}")
    try:
        called = msgspec.convert(body, ModelCalled)
    except msgspec.ValidationError as error:
        raise InvalidEvent(f"render: {explain(error, ModelCalled, 'model.called')}") from None
    _check_values(called)
    size = len(msgspec.json.encode(called))
    if size > MAX_CONTROL_BYTES:
        raise EventTooLarge(
            f"render: {size} bytes are over the limit of {MAX_CONTROL_BYTES} for a model call"
        )
    return called


def _check_values(called: ModelCalled) -> None:
    """Check what the types do not."""
    for field, text in (
        ("model", called.model),
        ("summary_id", called.summary_id),
        ("policy", called.policy),
    ):
        if text is not None and not 1 <= len(text) <= MAX_NAME:
            raise InvalidEvent(f"render: field {field}: expected 1 to {MAX_NAME} characters")
    if not _DIGEST.fullmatch(called.render_digest):
        raise InvalidEvent(
            "render: field render_digest: expected a SHA-256 as 64 lower-case hex digits, as the"
            " context gave it"
        )
    for field, number in (("tokens", called.tokens), ("latency_ms", called.latency_ms)):
        if number is not None and number < 0:
            raise InvalidEvent(f"render: field {field}: expected 0 or more")
    if called.max_tokens is not None and called.max_tokens < 1:
        raise InvalidEvent("render: field max_tokens: expected 1 or more")
    parse_position(called.position)


def record_of(key: Key, called: ModelCalled) -> Record:
    id_ = new_id()
    now = present()
    event = {
        "specversion": "1.0",
        "id": id_,
        "type": TYPE,
        "source": key.source,
        "time": now,
        "data": called,
    }
    return Record(key, id_, TYPE, msgspec.json.encode(event))


def tenant_of(raw: Raw) -> tuple[str, ...]:
    named = parse_key(raw.key or b"")
    return () if named is None else (named.tenant,)


def stored_call(raw: Raw, seals: PayloadCipher) -> StoredCall | None:
    """The call in a record, None if there is none or its key is deleted."""
    named = parse_key(raw.key or b"")
    try:
        stored = _decode(open_value(seals, raw.key or b"", raw.value or b""))
    except (NotAuthentic, Undecodable):
        return None
    return (
        stored
        if named is not None and stored.type == TYPE and stored.source == named.source
        else None
    )


def write_id(key: Key, position: Position) -> str:
    """An opaque id of a record's position. Its check, no secret, binds it to the conversation."""
    packed = _PLACE.pack(*position)
    return base64.urlsafe_b64encode(packed + check_of(key, position)).decode()


def read_id(render_id: str) -> tuple[Position, bytes] | None:
    """The place that an id names, with its check; None if it is no id."""
    try:
        raw = base64.b64decode(render_id.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(raw) != _PLACE.size + _CHECK:
        return None
    position = Position(*_PLACE.unpack(raw[: _PLACE.size]))
    return (position, raw[_PLACE.size :]) if min(position) >= 0 else None


def check_of(key: Key, position: Position) -> bytes:
    return sha256(b"render\n" + str(key).encode() + b"\n" + _PLACE.pack(*position)).digest()[
        :_CHECK
    ]
