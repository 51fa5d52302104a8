"""Intake: what a caller hands in becomes a record for the log, or one error that names the event
and the field.

Everything here is pure. A list is checked whole before anything of it is appended.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
import orjson

from projections.errors import EventTooLarge, InvalidEvent, InvalidPosition, RequestTooLarge
from projections.events import codec, token_cost
from projections.events import types as events
from projections.events.fast_path import quick_data
from projections.events.json_limits import why_not_kept
from projections.events.known_fields import explain_unknown, known_fields, unknown_field
from projections.events.size_limits import out_of_bounds
from projections.events.tokenizer import SlowText
from projections.events.type_errors import explain, word_for
from projections.names import Key, one_line, parse_position, quoted

MAX_ID = 256
RESERVED = frozenset({"event.dropped", "conversation.erased"})
"""Types that only an operator's command writes."""
OWN = frozenset({"tool.result.chunk", *codec.MEMORY})
"""Types that only threadfold itself writes."""
_ENVELOPE = ("conversation", "id", "time", "traceparent")
_SEALED = {"kid", "nonce", "ciphertext"}
"""The fields of a sealed payload (``streams.encryption.payload_cipher``): an event of just these
would be taken for one, and would not be sealed.
"""
_FULL_TYPES = {name: codec.full_type(name) for name in codec.DATA_TYPES}
_OTHER_TYPE = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*)+\.v[0-9]{1,3}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt"
    r" ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


class Record(msgspec.Struct, frozen=True):
    """An event ready for the log: its conversation, its id, and the value to append as it is."""

    key: Key
    id: str
    type: str
    value: bytes


def make_record(
    key: Key,
    flat: object,
    *,
    where: str,
    now: str,
    new_id: str,
    encoding: str = "o200k_base",
    max_bytes: int = 8 << 20,
    operator: bool = False,
) -> Record:
    """Check one flat event and wrap it into its CloudEvents envelope, tokens counted: an
    :class:`Intake` of one.

    Raises:
        InvalidEvent: a field is missing, unknown or wrong; the message names event and field.
        EventTooLarge: the value is over ``max_bytes``.
    """
    intake = Intake(now=now, encoding=encoding, max_bytes=max_bytes, operator=operator)
    intake.add(key, flat, where=where, new_id=new_id)
    return intake.records()[0]


class Intake:
    """Checks flat events one by one, then counts the texts of all of them at once and wraps each
    into its CloudEvents envelope.

    Args:
        now: the time an event gets when it has none, RFC 3339.
        encoding: the tokenizer its text is counted with.
        max_bytes: the limit for a whole value.
        operator: whether the reserved types are allowed.
        expect: the first event's condition ``expect`` (``projections.fold.conditions``); the others
            expect the one before them.
        fence: every event's condition ``fence``.
        traceparent: of the events that have none.
        slow_text: what of it the whole request may hold; None: this is all of it.
    """

    def __init__(
        self,
        *,
        now: str,
        encoding: str = "o200k_base",
        max_bytes: int = 8 << 20,
        operator: bool = False,
        expect: str | None = None,
        fence: int | None = None,
        traceparent: str | None = None,
        slow_text: SlowText | None = None,
    ) -> None:
        self._now = now
        self._now_is_a_time = _is_time(now)
        self._max_bytes = max_bytes
        self._operator = operator
        self._expect = expect
        self._fence = fence
        self._traceparent = traceparent
        self._encoding = encoding
        self._bill = token_cost.Bill(encoding, slow_text)
        self._drafts: list[tuple[Key, str, dict[str, Any]]] = []
        self.tokens: list[int] = []
        """Of each event added, in order, once :meth:`records` has counted them."""

    def add(self, key: Key, flat: object, *, where: str, new_id: str) -> None:
        """Check one event and keep it for :meth:`records`.

        Args:
            key: the conversation it goes to.
            flat: the decoded JSON object ``{"type", "id"?, "time"?, …fields}``; it is not changed.
            where: how errors name it, like ``event 3``.
            new_id: the id it gets when it has none.

        Raises:
            InvalidEvent: a field is missing, unknown or wrong; the message names event and field.
        """
        if not isinstance(flat, dict):
            raise InvalidEvent(f"{where}: expected an object, got {word_for(flat)}")
        name = flat.get("type")
        if not isinstance(name, str):
            raise InvalidEvent(
                f"{where}: field type: "
                + ("missing" if name is None else f"expected text, got {word_for(name)}")
            )
        # What is made here is not checked again for each event: this runs a hundred thousand times
        # a second.
        id_ = new_id if new_id and "id" not in flat else _id(flat, where, new_id)
        time = (
            self._now
            if self._now_is_a_time and "time" not in flat
            else _time(flat, where, self._now)
        )
        envelope: dict[str, Any] = {
            "specversion": "1.0",
            "id": id_,
            "type": name,
            "source": _source(key),
            "time": time,
        }
        fields = dict(flat)
        del fields["type"]
        if self._expect is not None:
            envelope["expect"] = self._expect
            self._expect = id_
        if self._fence is not None:
            envelope["fence"] = self._fence
        if "traceparent" in flat:
            envelope["traceparent"] = _traceparent(flat["traceparent"], where)
        elif self._traceparent is not None:
            envelope["traceparent"] = self._traceparent
        for field in _ENVELOPE:
            fields.pop(field, None)
        data = quick_data(name, flat)
        if data is None:
            _check_kept(fields, where)
            data = _checked(name, fields, where, self._operator)
        if data is not None:
            envelope["type"] = _FULL_TYPES[name]
            envelope["tokens"] = None
            self._bill.add(data)
        envelope["data"] = fields
        self._drafts.append((key, where, envelope))

    def records(self) -> list[Record]:
        """The records of the events added, in order.

        Raises:
            InvalidEvent: an event holds what JSON cannot carry.
            EventTooLarge: a value is over the limit.
            RequestTooLarge: too much of the text takes long to count.
        """
        try:
            counted = iter(self._bill.counted())
        except RequestTooLarge:
            for _, where, envelope in self._drafts:
                self._value(envelope, where)  # an error that names an event says more
            raise
        records = []
        self.tokens = []
        for key, where, envelope in self._drafts:
            count = 0
            if "tokens" in envelope:
                count, exact = next(counted)
                envelope["tokens"] = {"count": count, "encoding": self._encoding, "exact": exact}
            value = self._value(envelope, where)
            self.tokens.append(count)
            records.append(Record(key, envelope["id"], envelope["type"], value))
        return records

    def _value(self, envelope: dict[str, Any], where: str) -> bytes:
        value = _dump(envelope, where)
        if len(value) > self._max_bytes:
            raise EventTooLarge(
                f"{where}: {len(value)} bytes are over the limit of {self._max_bytes} bytes for"
                " one event"
            )
        return value


@lru_cache(maxsize=16384)
def _source(key: Key) -> str:
    return key.source


def _checked(
    name: str, fields: dict[str, Any], where: str, operator: bool
) -> msgspec.Struct | None:
    """The data of an event of a known type, None for one of another family's; every rule is
    checked, and broken ones are named.
    """
    if name in codec.DATA_TYPES:
        return _typed(name, fields, where, operator)
    if _OTHER_TYPE.fullmatch(name) and not codec.is_known(name):
        if fields.keys() == _SEALED:
            raise InvalidEvent(
                f"{where}: fields kid, nonce, ciphertext: these three together mark an encrypted"
                " payload: rename them"
            )
        return None
    taken = codec.DATA_TYPES.keys() - (frozenset() if operator else RESERVED | OWN)
    own = f"{name}.v1" if _OTHER_TYPE.fullmatch(f"{name}.v1") else "acme.note.v1"
    raise InvalidEvent(
        f"{where}: field type: {quoted(name)} is not one of {', '.join(sorted(taken))}; your own"
        f" type must end in a version, like {quoted(own)}"
    )


def _typed(name: str, fields: dict[str, Any], where: str, operator: bool) -> msgspec.Struct:
    if (name in RESERVED or name in OWN) and not operator:
        writer = "threadfold itself" if name in OWN else "an operator's command"
        raise InvalidEvent(f"{where}: field type: {name!r} may be written only by {writer}")
    struct = codec.DATA_TYPES[name]
    known = known_fields(struct)
    unknown = unknown_field(fields, known)
    if unknown is not None:
        raise InvalidEvent(f"{where}: {explain_unknown(unknown, name, known)}")
    try:
        data = msgspec.convert(fields, struct)
    except msgspec.ValidationError as error:
        raise InvalidEvent(f"{where}: {explain(error, struct, name)}") from None
    if isinstance(data, events.ToolResult) and data.spill is not None:
        raise InvalidEvent(
            f"{where}: field spill: only threadfold writes it: append the complete result"
        )
    _check_ids(data, where)
    beyond = out_of_bounds(data)
    if beyond is not None:
        raise InvalidEvent(f"{where}: field {beyond[0]}: {beyond[1]}")
    _check_positions(data, where)
    if (
        isinstance(data, events.Suspension)
        and data.expires_at is not None
        and not _is_time(data.expires_at)
    ):
        raise _not_a_time(where, "expires_at")
    return data


def _check_kept(fields: dict[str, Any], where: str) -> None:
    for field, value in fields.items():
        reason = why_not_kept(field) or why_not_kept(value)
        if reason is not None:
            raise InvalidEvent(f"{where}: field {one_line(field)}: {reason}")


def _check_ids(data: msgspec.Struct, where: str) -> None:
    """Calls and their results are paired by ids that a provider must take: none may be empty."""
    calls = data.tool_calls or [] if isinstance(data, events.Message) else []
    for i, call in enumerate(calls):
        for field, text in (("id", call.id), ("name", call.name)):
            if not text:
                raise InvalidEvent(
                    f"{where}: field tool_calls[{i}].{field}: expected 1 or more characters"
                )
    if isinstance(data, events.ToolResult) and not data.tool_call_id:
        raise InvalidEvent(f"{where}: field tool_call_id: expected 1 or more characters")


def _check_positions(data: msgspec.Struct, where: str) -> None:
    """Positions inside an event must be positions; a rollback's target may be an event id, too."""
    named: list[tuple[str, str | None]] = []
    if isinstance(data, events.SessionClosed):
        named = [("after", data.after)]
    elif isinstance(data, events.EventDropped):
        named = [("position", data.position)]
    elif isinstance(data, events.Summary):
        named = [
            ("span.from", data.span.from_),
            ("span.to", data.span.to),
            ("rollback", data.rollback),
        ]
        named.append(("previous_position", data.previous_position))
    for field, text in named:
        if text is not None:
            try:
                parse_position(text)
            except InvalidPosition as error:
                raise InvalidEvent(f"{where}: field {field}: {error}") from None
    if isinstance(data, events.Summary):
        _check_stands(data.span, where)


def _check_stands(span: events.Span, where: str) -> None:
    stands = span.stands
    if stands is not None and (len(stands) != len(span.positions) or set(stands) - {"0", "1"}):
        raise InvalidEvent(
            f"{where}: field span.stands: expected a 0 or 1 for each of the"
            f" {len(span.positions)} positions"
        )


def _id(flat: dict[str, Any], where: str, new_id: str) -> str:
    id_ = flat.get("id", new_id)
    if not isinstance(id_, str) or not 1 <= len(id_) <= MAX_ID or not id_.isprintable():
        raise InvalidEvent(
            f"{where}: field id: expected a string of 1 to {MAX_ID} printable characters"
        )
    return id_


def _time(flat: dict[str, Any], where: str, now: str) -> str:
    time = flat.get("time", now)
    if isinstance(time, str) and len(time) <= 64 and _is_time(time):
        return time
    raise _not_a_time(where, "time")


@lru_cache(maxsize=1024)
def _is_time(text: str) -> bool:
    """Whether a text is an RFC 3339 time; a list's events mostly have the same one."""
    if not _RFC3339.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text.upper())
    except ValueError:
        return False
    return True


def _not_a_time(where: str, field: str) -> InvalidEvent:
    return InvalidEvent(
        f"{where}: field {field}: expected an RFC 3339 time with its zone, like"
        " 2026-01-31T12:00:00Z"
    )


def _traceparent(value: object, where: str) -> str:
    if not isinstance(value, str) or not _TRACEPARENT.fullmatch(value):
        raise InvalidEvent(f"{where}: field traceparent: expected a W3C trace parent")
    return value


def _dump(envelope: dict[str, Any], where: str) -> bytes:
    try:
        return orjson.dumps(envelope)
    except (TypeError, orjson.JSONEncodeError) as error:
        _check_kept(
            envelope["data"], where
        )  # the quick check leaves lone surrogates to be found here
        raise InvalidEvent(f"{where}: it cannot be written as JSON: {error}") from None
