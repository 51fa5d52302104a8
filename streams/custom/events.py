"""An event as a team's own projection gets it: where it stands, what it is, and its data as a plain
dictionary.
"""

from __future__ import annotations

import time
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from projections.events.codec import decode_event, decode_opaque, short_type
from projections.events.types import AnyEvent, OtherEvent
from projections.events.untrusted import Undecodable, json_decoder
from projections.names import Key, Position, parse_key
from streams.encryption.payload_cipher import MARK, NotAuthentic, PayloadCipher, open_value
from streams.log.log import Row
from streams.partition.step import astray

MOST_TOKENS = 2**31 - 1
"""A claim beyond it counts as none: no event has room for so much."""
_DAY_MS = 86_400_000
_json = json_decoder()


class Event:
    """One event of the log. Everything here follows from its record alone, so a fold over it gives
    the same each time.

    Attributes:
        tenant, conversation: whose it is. position: where it stands in the log (opaque). at: when
        the broker took it, in ms since 1970; within a partition it does not go back. type:
        ``message``, ``tool.result``, …; of a type or version that this release does not know the
        whole name, like ``acme.note.v1``. id: its id; a repeat has the same. time: when its
        producer says it happened (RFC 3339), or None. tokens: what its producer counted, 0 where it
        did not. A claim: the gateway counts, another producer may err. readable: whether its data
        can be read; False when its payload was sealed and its conversation erased since.
    """

    def __init__(
        self, key: Key, position: Position, at: int, event: AnyEvent, readable: bool
    ) -> None:
        self.tenant = key.tenant
        self.conversation = key.conversation
        self.position = str(position)
        self.at = at
        self.type = (
            short_type(event.type) if isinstance(event, OtherEvent) else _name_of(type(event))
        )
        self.id = event.id
        self.time = event.time
        self.tokens = _tokens(event)
        self.readable = readable
        self._event = event

    def __repr__(self) -> str:
        return f"Event({self.position}, {self.tenant}/{self.conversation}, {self.type})"

    @property
    def day(self) -> str:
        """The UTC day of :attr:`at`, like ``2026-01-31``."""
        return _day(self.at // _DAY_MS)

    @cached_property
    def data(self) -> dict[str, Any]:
        """The event's fields as in ``threadfold schemas``, those at their defaults left out; empty
        where nothing can be read.
        """
        if not self.readable:
            return {}
        data = self._event.data
        if isinstance(data, msgspec.Struct):
            found = msgspec.to_builtins(data)
        elif data is msgspec.UNSET:
            return {}
        else:
            try:
                found = _json(data)
            except Undecodable:  # of a type that nobody knows: its payload was never read
                return {}
        return found if isinstance(found, dict) else {"data": found}


def event_of_row(seals: PayloadCipher, partition: int, row: Row, partitions: int) -> Event | str:
    """The event of a record, or why it is none (a dead letter of the projector). ``seals.ready``
    was awaited. Raises ``KeyUnusable``.
    """
    key = parse_key(row.key) if row.key is not None else None
    if row.key is None or key is None:
        return "the record's key is not tenant/conversation"
    if (wrong := astray(key, partition, partitions)) is not None:
        return wrong.cause
    if row.value is None:
        return "the record has no value"
    try:
        value = open_value(seals, row.key, row.value) if MARK in row.value else row.value
        event = decode_opaque(row.value) if value is None else decode_event(value)
    except (Undecodable, NotAuthentic) as error:
        return f"the value is not an event: {error}"
    if event.source != key.source:
        return f"source {event.source[:300]!r} is not that of the record's key"
    return Event(key, Position(partition, row.offset), row.timestamp, event, value is not None)


@lru_cache(maxsize=64)
def _name_of(kind: type[Any]) -> str:
    return short_type(str(kind.__struct_config__.tag))


@lru_cache(maxsize=4096)
def _day(days: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(days * 86_400))


def _tokens(event: AnyEvent) -> int:
    claim = event.tokens
    count = claim.get("count") if isinstance(claim, dict) else getattr(claim, "count", None)
    return count if type(count) is int and 0 <= count <= MOST_TOKENS else 0
