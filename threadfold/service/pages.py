"""Pages of a conversation's history, newest first, straight from the log.

A page follows the tail's positions and then the summaries' spans (``streams.log.history``). Its
cursor names the last event given and the summary event whose span that one is in, so the next page
begins there, however deep it is.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from projections.errors import InvalidPosition
from projections.events.types import present_form, short_type
from projections.names import Key, Position, parse_position
from projections.window.window import Window
from streams.encryption.payload_cipher import PayloadCipher, open_value
from streams.log.history import event_of, pieces_backwards
from streams.log.log import Log, Raw
from threadfold.service import cursors

MAX_PAGE = 500
"""Events in one page of history at most."""
_PLACE = struct.Struct(">qq")
_ENVELOPE = ("id", "time", "type", "position", "traceparent")


class Place(NamedTuple):
    """Where a page ended: the offset of its oldest event, and of the summary event whose span that
    is in (None: the tail).
    """

    offset: int
    span_of: int | None


def write_cursor(key: Key, place: Place) -> str:
    """An opaque cursor of this conversation's history."""
    return cursors.write_cursor(
        f"history\n{key}", _PLACE.pack(place.offset, -1 if place.span_of is None else place.span_of)
    )


def read_cursor(key: Key, cursor: str) -> Place:
    """The place a cursor names.

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

    Returns ``{"events": […], "next_before": cursor or None}``; None when these are the oldest.
    Repeated events are not in it: a repeat has no place in the window. Neither are the pieces of
    spilled results: the result that names them comes first, so most are passed over unread (those
    in the same read as their result are read in vain, at most ``limit`` + 1 at once).

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
    """Take up to ``count`` places from the front of ``waiting`` and read those events; ``pieces``
    learns which offsets not to read.
    """
    places: list[Place] = []
    taken = 0
    for place in waiting:
        if len(places) == count:
            break
        taken += 1
        if place.offset not in pieces:
            places.append(place)
    del waiting[:taken]
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
        # Another producer may have written anything: what is no position names no piece.
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

    Known types are short (``message``), others whole. A field that would hide one of the envelope's
    (another producer's ``id``, an ``event.dropped``'s ``position``) stands under ``data`` instead,
    with all its neighbours of that kind. An event that nobody can read any more has the fields of
    its sealed payload, and ``"opaque": true``.
    """
    event = event_of(raw, key, seals)
    if event is None or raw.key is None or raw.value is None:
        return None
    opened = open_value(seals, raw.key, raw.value)
    # The envelope as it was written: the typed event has forgotten fields that a newer version
    # added. Only an outdated version is lifted, unless it cannot be read: what is sealed is no data
    # of any version.
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
