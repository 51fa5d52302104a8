"""From a record of a topic to what subscribers are sent of it: the one place of this package where
records are decoded.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from projections.errors import InvalidPosition
from projections.events.types import (
    ErasedEvent,
    MessageEvent,
    SummaryEvent,
    ToolResultChunkEvent,
    is_outdated,
    short_type,
)
from projections.names import Key, Position, parse_position
from streams.encryption.payload_cipher import NotAuthentic, PayloadCipher, Unsealed, open_value
from streams.log.history import event_of
from streams.log.log import Raw, Row
from threadfold.service.pages import flat_event
from threadfold.streaming.sse_event import SseEvent

_HIDING = frozenset({"id", "time", "type", "position", "traceparent"})
_PLAIN = Unsealed()
_encode = msgspec.json.Encoder().encode
VOIDED = "threadfold.summary.voided.v1"
ERASED = "threadfold.conversation.erased.v1"


class Told(NamedTuple):
    """A record as it is told to a conversation's subscribers.

    ``judged``: the fold has to have accepted it first (summaries, and events with a condition).
    ``ends``: an assistant's message, which ends a partial text: ``complete`` or ``interrupted``.
    ``last``: the conversation is erased with it.
    """

    sent: SseEvent
    id: str
    judged: bool
    ends: str | None
    last: bool


class _Envelope(msgspec.Struct):
    id: str
    type: str
    time: str | None = None
    traceparent: str | None = None
    data: msgspec.Raw = msgspec.Raw(b"")


_envelope = msgspec.json.Decoder(_Envelope)
_names = msgspec.json.Decoder(dict[str, msgspec.Raw])


def opened(row: Row, partition: int, seals: PayloadCipher) -> Raw | None:
    """The record with its payload readable; None where nobody can read it (any more). Raises
    ``KeyUnusable``.
    """
    if row.key is None or row.value is None:
        return None
    try:
        value = open_value(seals, row.key, row.value)
    except NotAuthentic:
        return None
    return (
        None
        if value is None
        else Raw(Position(partition, row.offset), row.key, value, row.timestamp)
    )


def told(sealed: Row, partition: int, key: Key, seals: PayloadCipher) -> Told | None:
    """What subscribers of the conversation ``key`` are told of a record, None for nothing.

    ``seals`` are those of the log it was read from, which know the keys it needs
    (``PayloadCipher.ready``).

    The data is the flat event of ``threadfold.service.pages.flat_event``, joined from the record's
    own bytes where that is possible. Nothing is told of what is no event of the conversation, and
    of pieces of a spilled result, which the result that names them stands for.
    """
    row = opened(sealed, partition, seals)
    event = None if row is None else event_of(row, key, _PLAIN)
    if row is None or event is None or type(event) is ToolResultChunkEvent:
        return None
    data = _joined(row.value or b"", row.position) or _encode(flat_event(row, key, _PLAIN))
    summary = type(event) is SummaryEvent
    judged = summary or event.expect is not None or event.fence is not None
    ends = None
    if type(event) is MessageEvent and event.data.role == "assistant":
        ends = event.data.status or "complete"
    return Told(
        SseEvent("summary" if summary else "event", str(row.position), data),
        event.id,
        judged,
        ends,
        type(event) is ErasedEvent,
    )


def _joined(value: bytes, at: Position) -> bytes | None:
    """The flat event from the record's bytes as they are; None where it has to be built field by
    field.
    """
    envelope = _envelope.decode(value)
    fields = bytes(envelope.data)
    if (
        is_outdated(envelope.type)
        or not fields.startswith(b"{")
        or b"\n" in fields
        or b"\r" in fields
        or not _HIDING.isdisjoint(_names.decode(fields))
    ):
        return None
    head: dict[str, object] = {
        "id": envelope.id,
        "type": short_type(envelope.type),
        "time": envelope.time,
        "position": str(at),
    }
    if envelope.traceparent is not None:
        head["traceparent"] = envelope.traceparent
    return _encode(head)[:-1] + (b"}" if fields == b"{}" else b"," + fields[1:])


def told_summary(
    sealed: Row, partition: int, key: Key, seals: PayloadCipher
) -> tuple[str, bytes] | None:
    """What a tenant is told of a record of its summaries topic: the kind of event and its data;
    None for nothing.

    The data is flat, with ``conversation``; it has no position, as the topic's own is none of the
    log.
    """
    row = opened(sealed, partition, seals)
    if row is None or row.value is None:
        return None
    try:
        envelope = _envelope.decode(row.value)
        fields = _names.decode(envelope.data) if envelope.data else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # whoever may write the topic may write anything: it is no summary
    kind = {"threadfold.summary.v1": "summary", VOIDED: "voided", ERASED: "erased"}.get(
        envelope.type
    )
    if kind is None:
        return None
    name = "summary.voided" if kind == "voided" else short_type(envelope.type)
    flat = {
        "id": envelope.id,
        "type": name,
        "time": envelope.time,
        "conversation": key.conversation,
    }
    return kind, _encode(
        {**flat, **{field: value for field, value in fields.items() if field not in flat}}
    )


def previous_of(row: Row, key: Key, seals: PayloadCipher) -> int | None:
    """The offset of the summary event before the one in this record; None when there is none, or
    the record is no summary.
    """
    event = event_of(row, key, seals)
    if not isinstance(event, SummaryEvent) or not event.data.previous_position:
        return None
    try:
        return parse_position(event.data.previous_position).offset
    except InvalidPosition:
        return None  # another producer's summary: its way back ends here
