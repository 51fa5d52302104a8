"""Pages of a conversation's history, newest first, read from the log.

A page follows the tail's positions, then the summaries' spans (``streams.log.history``). Its cursor
names the page's last event and the summary whose span holds it. The next page begins there, so deep
pages cost the same.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from projections.errors import InvalidPosition
from projections.events.codec import present_form, short_type
from projections.names import Key, Position, parse_position
from projections.window.window import Window
from streams.encryption.payload_cipher import PayloadCipher, open_value
from streams.log.history import event_of, pieces_backwards
from streams.log.log import Log, Raw
from threadfold.service import cursors

MAX_PAGE = 500
"""The maximum number of events in a page of history."""
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
    )
    offset, span_of = _PLACE.unpack(packed)
    return Place(offset, None if span_of < 0 else span_of)


async def page(log: Log, window: Window, before: str | None, limit: int) -> dict[str, Any]:
    """At most ``limit`` events older than the cursor ``before`` (None: the newest), as
    :func:`flat_event`, newest first.

    Returns ``{"events": […], "next_before": cursor or None}``; None after the oldest event.
    Repeated events and the pieces of spilled results are left out. A result names its pieces and
    comes before them, so most pieces are not read.

    Raises:
        InvalidPosition: the cursor is not one of this conversation.
        KafkaUnavailable: the log cannot be read.
    """
    place = None if before is None else read_cursor(window.key, before)
    found: list[tuple[Place, dict[str, Any]]] = []
    pieces: set[int] = set()
    waiting: list[Place] = []
    async for more in _places(log, window, place):
        waiting += more
        while len(waiting) > limit - len(found) and len(found) <= limit:
            found += await _listed(log, window, waiting, limit + 1 - len(found), pieces)
        if len(found) > limit:
            break
    while waiting and len(found) <= limit:
        found += await _listed(log, window, waiting, limit + 1 - len(found), pieces)
    more_there = len(found) > limit
    found = found[:limit]
    return {
        "events": [flat for _, flat in found],
        "next_before": write_cursor(window.key, found[-1][0]) if more_there else None,
    }


async def _listed(
    log: Log, window: Window, waiting: list[Place], count: int, pieces: set[int]
) -> list[tuple[Place, dict[str, Any]]]:
    """Remove up to ``count`` places from the front of ``waiting`` and read their events. The
    offsets of spilled pieces are added to ``pieces`` and not read.
    """
    places: list[Place] = []
    while waiting and len(places) < count:
        place = waiting.pop(0)
        if place.offset not in pieces:
            places.append(place)
    rows = await log.read(Position(window.partition, place.offset) for place in places)
    found = []
    for place in places:
        raw = rows.get(Position(window.partition, place.offset))
        flat = None if raw is None else flat_event(raw, window.key, log.seals)
        if flat is not None and flat["type"] != "tool.result.chunk":
            found.append((place, flat))
            pieces.update(_pieces_of(flat))
    return found


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


def flat_event(raw: Raw, key: Key, seals: PayloadCipher) -> dict[str, Any] | None:
    """A record as one flat object ``{"id", "type", "time", "position", …fields}``, None when it is
    no event of this conversation.

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
    whole = msgspec.json.decode(opened or raw.value)
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
