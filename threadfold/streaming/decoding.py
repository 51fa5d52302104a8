"""Decodes a record of a topic into the event that subscribers get."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from projections.errors import InvalidPosition
from projections.events.codec import is_outdated, short_type
from projections.events.types import (
    AnyEvent,
    ErasedEvent,
    MessageEvent,
    OtherEvent,
    RollbackEvent,
    SummaryEvent,
    ToolResultChunkEvent,
)
from projections.events.untrusted import Undecodable, json_decoder
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


class StreamRecord(NamedTuple):
    """A record as a conversation's subscribers get it.

    ``judged``: the fold has to accept it first (summaries, and events with a condition).
    ``ends``: the status of an assistant's message, which ends a text in progress: ``complete`` or
    ``interrupted``.
    ``last``: it erases the conversation.
    ``back_to``: what a rollback names as its target.
    """

    sse: SseEvent
    id: str
    judged: bool
    ends: str | None
    last: bool
    back_to: str | None


class _Envelope(msgspec.Struct):
    id: str
    type: str
    time: str | None = None
    traceparent: str | None = None
    data: msgspec.Raw = msgspec.Raw(b"")


_envelope = json_decoder(_Envelope)
_names = json_decoder(dict[str, msgspec.Raw])


def decrypted(row: Row, partition: int, seals: PayloadCipher) -> Raw | None:
    """The record with its payload decrypted; None if nobody can read it (any more).

    Raises:
        KeyUnusable: the deployment has no key for it.
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


def decode_record(
    sealed: Row, partition: int, key: Key, seals: PayloadCipher
) -> StreamRecord | None:
    """A record as subscribers of the conversation ``key`` get it; None if they do not.

    They do not get what is no event of the conversation, nor pieces of a spilled result: they get
    the result itself. The data is the flat event of ``threadfold.service.pages.flat_event``, joined
    from the record's own bytes where that is possible.

    Args:
        seals: those of the log that the record was read from. They know its keys already
            (``PayloadCipher.ready``).
    """
    row = decrypted(sealed, partition, seals)
    event = None if row is None else event_of(row, key, _PLAIN)
    if row is None or event is None or type(event) is ToolResultChunkEvent:
        return None
    data = _data_of(row, key, event)
    if data is None:
        return None
    summary = type(event) is SummaryEvent
    judged = summary or event.expect is not None or event.fence is not None
    ends = None
    if type(event) is MessageEvent and event.data.role == "assistant":
        ends = event.data.status or "complete"
    return StreamRecord(
        SseEvent("summary" if summary else "event", str(row.position), data),
        event.id,
        judged,
        ends,
        type(event) is ErasedEvent,
        event.data.to if type(event) is RollbackEvent else None,
    )


def _data_of(row: Raw, key: Key, event: AnyEvent) -> bytes | None:
    """The flat event of a record; None where it cannot be shown. The payload of a type that nobody
    knows was never read: it is shown only if it can be.
    """
    if type(event) is not OtherEvent:
        try:
            joined = _joined(row.value or b"", row.position)
        except Undecodable:  # a field that nobody knows has a name that is no text
            return None
        if joined is not None:
            return joined
    flat = flat_event(row, key, _PLAIN)
    return None if flat is None else _encode(flat)


def _joined(value: bytes, at: Position) -> bytes | None:
    """The flat event from the record's bytes as they are; None where it has to be built field by
    field.
    """
    envelope = _envelope(value)
    fields = bytes(envelope.data)
    if (
        is_outdated(envelope.type)
        or not fields.startswith(b"{")
        or b"\n" in fields
        or b"\r" in fields
        or not _HIDING.isdisjoint(_names(envelope.data))  # its nesting was looked at
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


def decode_summary(
    sealed: Row, partition: int, key: Key, seals: PayloadCipher
) -> tuple[str, bytes] | None:
    """A record of the summaries topic as its tenant gets it: the kind of event and its data; None
    for nothing, as for a summary of a conversation that is erased by now.

    The data is flat, with ``conversation``; it has no position, as the topic's own is none of the
    log.
    """
    row = decrypted(sealed, partition, seals)
    if row is None or row.value is None:
        return None
    try:
        envelope = _envelope(row.value)
        fields = _names(envelope.data) if envelope.data else {}
    except Undecodable:
        return None  # another producer may write anything: it is no summary
    kind = {"threadfold.summary.v1": "summary", VOIDED: "voided", ERASED: "erased"}.get(
        envelope.type
    )
    if kind is None or (kind == "summary" and seals.is_erased(str(key).encode())):
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
