"""Pages of a conversation's history, newest first, read from the log.

A page follows the tail's positions, then the summaries' spans (``streams.log.history``). Its cursor
names the page's last event and the summary whose span holds it. The next page begins there, so deep
pages cost the same.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Collection, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from projections.errors import InvalidPosition, InvalidRequest
from projections.events.codec import DATA_TYPES, present_form, short_type
from projections.events.untrusted import Undecodable, json_decoder
from projections.names import Key, Position, parse_position
from projections.window.window import Window
from streams.encryption.payload_cipher import PayloadCipher, open_value
from streams.log.history import event_of, pieces_backwards
from streams.log.log import Log, Raw
from streams.runtime.keyed_limit import Turn
from threadfold.service import cursors
from threadfold.service.documents import ENTRY, fields_in

MAX_PAGE = 500
"""The maximum number of events in a page of history."""
PAGE_TYPES = tuple(sorted(set(DATA_TYPES) - {"tool.result.chunk"}))
"""The types of events that a page may be asked for."""
MAX_LOOKED = 2_000
"""Events that a page of some types reads."""
VALUES = 4
"""As so many bytes each byte of a record counts: it may be of thousands of values, each of which is
read and written anew.
"""
PAGE_BYTES = 4 << 20
"""Bytes of records after which a page ends: it has one event at least."""
FIRST, MOST = 20, 32
"""Places that are read at first, before it is known how large a conversation's records are, and at
most; of some types, ten times as many.
"""
PAGES = 4
"""Pages, or single events, that are read at a time for one tenant: their records may be large."""
_PLACE = struct.Struct(">qq")
_ENVELOPE = ("id", "time", "type", "position", "traceparent")


class Place(NamedTuple):
    """The end of a page: the offset of its oldest event, and the offset of the summary event whose
    span holds it (None: it is in the tail).
    """

    offset: int
    span_of: int | None


def write_cursor(key: Key, place: Place) -> str:
    """An opaque cursor of this conversation's history."""
    return cursors.write_cursor(
        f"history\n{key}", _PLACE.pack(place.offset, -1 if place.span_of is None else place.span_of)
    )


def read_cursor(key: Key, cursor: str) -> Place:
    """The place that a cursor names.

    Raises:
        InvalidPosition: it is not a cursor of this conversation.
    """
    packed = cursors.read_cursor(
        f"history\n{key}",
        cursor,
        f"conversation {key.conversation}",
        "next_before of its last page",
        _PLACE.size,
    )
    offset, span_of = _PLACE.unpack(packed)
    return Place(offset, None if span_of < 0 else span_of)


async def page(
    log: Log,
    window: Window,
    before: str | None,
    limit: int,
    types: Set[str] | None = None,
    turn: Turn | None = None,
) -> dict[str, Any]:
    """At most ``limit`` events older than the cursor ``before`` (None: the newest), as
    :func:`flat_event`, newest first; of ``types`` alone, if given.

    Returns ``{"events": […], "next_before": cursor or None}``; None after the oldest event.
    Repeated events and the pieces of spilled results are left out. A result names its pieces and
    comes before them, so most pieces are not read. A page of ``types`` reads 2,000 events at most,
    and each page ends after 4 MiB: it may be short, or empty, and still name a next one.

    Raises:
        InvalidPosition: the cursor is not one of this conversation.
        KafkaUnavailable: the log cannot be read.
    """
    place = None if before is None else read_cursor(window.key, before)
    read = _Reading(log, window, types, turn or Turn())
    async for more in _places(log, window, place):
        read.waiting += more
        while len(read.waiting) > limit - len(read.found) and read.goes_on(limit):
            await read.some(limit + 1 - len(read.found))
        if not read.goes_on(limit):
            break
    while read.waiting and read.goes_on(limit):
        await read.some(limit + 1 - len(read.found))
    found = read.found[:limit]
    end = None
    if not read.goes_on(limit):
        end = found[-1][0] if len(read.found) > limit else read.last
    return {
        "events": [flat for _, flat in found],
        "next_before": None if end is None else write_cursor(window.key, end),
    }


@dataclass(slots=True)
class _Reading:
    """The events that a page has found, the places that it has not read, and the last it read.

    ``pieces`` are the offsets of spilled pieces, which are not read.
    """

    log: Log
    window: Window
    types: Set[str] | None
    turn: Turn
    found: list[tuple[Place, dict[str, Any]]] = field(default_factory=list)
    waiting: list[Place] = field(default_factory=list)
    pieces: set[int] = field(default_factory=set)
    last: Place | None = None
    looked: int = 0
    size: int = 0
    names: tuple[bytes, ...] = field(init=False)
    """The types as records hold them."""

    def __post_init__(self) -> None:
        self.names = tuple(name.encode() for name in self.types or ())

    def goes_on(self, limit: int) -> bool:
        """Whether the page reads more: one event more than it shows, to know of a next page."""
        return (
            len(self.found) <= limit
            and (self.types is None or self.looked < MAX_LOOKED)
            and (self.size < PAGE_BYTES or not self.looked)
        )

    def _may_be_of(self, value: bytes) -> bool:
        """Whether a record has to be decoded to know that it is of none of the types: it has the
        name of one, or may have it escaped, or names pieces.
        """
        return b"\\u" in value or b'"spill"' in value or any(name in value for name in self.names)

    async def some(self, count: int) -> None:
        """Read up to ``count`` places; of ``types``, more at a time, and fewer of large records."""
        count = count if self.types is None else max(count, MAX_PAGE)
        if self.looked:
            fit = (PAGE_BYTES - self.size) * self.looked // max(1, self.size)
            most = MOST if self.types is None else 10 * MOST
            count = min(count, 1 + fit, 2 * self.looked, most)
        else:
            count = min(count, FIRST)
        places: list[Place] = []
        while self.waiting and len(places) < count:
            place = self.waiting.pop(0)
            if place.offset not in self.pieces:
                places.append(place)
        number, key = self.window.partition, self.window.key
        positions = [Position(number, place.offset) for place in places]
        began = time.monotonic()
        rows, read = await self.log.read_within(positions, PAGE_BYTES - self.size)
        if self.types is not None:
            self.turn.read(time.monotonic() - began)
        self.waiting[:0] = places[read:]
        for place in places[:read]:
            if self.looked and self.size >= PAGE_BYTES:
                break
            self.looked += 1
            self.last = place
            raw = rows.pop(Position(number, place.offset), None)
            flat = None
            if raw is not None:
                self.size += len(raw.value or b"")
                if self.looked % MOST == 0:
                    await asyncio.sleep(0)  # others' requests have their turn
                if self.types is None or self._may_be_of(raw.value or b""):
                    flat = await flat_event_beside(raw, key, self.log.seals, self.turn)
            if flat is None or flat["type"] == "tool.result.chunk":
                continue
            self.pieces.update(_pieces_of(flat))
            if self.types is None or flat["type"] in self.types:
                self.found.append((place, flat))


def _pieces_of(flat: dict[str, Any]) -> list[int]:
    """The offsets of a spilled result's pieces."""
    if flat["type"] != "tool.result" or not flat.get("spill"):
        return []
    found = []
    for text in flat["spill"]["chunks"]:
        # Another producer may have written anything.
        with suppress(InvalidPosition):
            found.append(parse_position(text).offset)
    return found


async def _places(log: Log, window: Window, after: Place | None) -> AsyncIterator[list[Place]]:
    below = None if after is None else after.offset
    async for span_of, piece in pieces_backwards(
        log, window, below=below, span_of=after.span_of if after else None
    ):
        yield [Place(offset, span_of) for offset in piece]


def known_types(types: Collection[str] | None) -> frozenset[str] | None:
    """These types, each once; raises :class:`InvalidRequest` if one is not an event's, or there is
    none.
    """
    if types is None:
        return None
    once = dict.fromkeys(types)
    wrong = next((name for name in once if name not in PAGE_TYPES), None)
    if wrong is not None or not once:
        raise InvalidRequest(
            f"type {(wrong or '')[:60]!r} is not one of {', '.join(PAGE_TYPES)}: several are"
            " separated by commas"
        )
    return frozenset(once)


_json = json_decoder()


async def flat_event_beside(
    raw: Raw, key: Key, seals: PayloadCipher, turn: Turn
) -> dict[str, Any] | None:
    """:func:`flat_event`, of a large record made beside others' requests within ``turn``."""
    value = raw.value or b""
    size = VALUES * len(value) + ENTRY * fields_in(value)
    return await turn.work(size, partial(flat_event, raw, key, seals))


def flat_event(raw: Raw, key: Key, seals: PayloadCipher) -> dict[str, Any] | None:
    """A record as one flat object ``{"id", "type", "time", "position", …fields}``, None when it is
    no event of this conversation, or cannot be shown.

    Known types have their short name (``message``). Fields whose name is one of the envelope's
    (``id`` of another producer, ``position`` of ``event.dropped``) are under ``data``. An event
    whose key is deleted has the fields of its sealed payload, and ``"opaque": true``.
    """
    event = event_of(raw, key, seals)
    if event is None or raw.key is None or raw.value is None:
        return None
    opened = open_value(seals, raw.key, raw.value)
    # The envelope as written, because the typed event lacks fields of newer versions. An outdated
    # version is upcast, unless its payload is sealed.
    try:
        whole = _json(opened or raw.value)
    except Undecodable:
        return None  # of a type that nobody knows: its payload was never read
    if opened is not None:
        whole = present_form(whole)
    flat = {
        "id": whole["id"],
        "type": short_type(whole["type"]),
        "time": whole.get("time"),
        "position": str(raw.position),
    }
    if whole.get("traceparent") is not None:
        flat["traceparent"] = whole["traceparent"]
    if opened is None:
        flat["opaque"] = True
    data = whole.get("data")
    if not isinstance(data, dict):
        return flat if data is None else {**flat, "data": data}
    hidden = {name: value for name, value in data.items() if name in _ENVELOPE}
    flat.update((name, value) for name, value in data.items() if name not in _ENVELOPE)
    if hidden:
        flat["data"] = {**hidden, **({"data": data["data"]} if "data" in data else {})}
    return flat
