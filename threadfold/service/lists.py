"""Lists: a tenant's open suspensions, a user's conversations, and a conversation's summaries.

Every partition keeps the tenant's lists beside its windows (``projections.storage.listing``), and
they heal with the windows. Here the partitions' lists are merged. Each partition is read at a
moment of its own: a conversation that is active while pages are read can appear twice or be missed.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from projections.errors import CorruptWindow, Erased, InvalidPosition, InvalidRequest
from projections.events.types import SummaryEvent
from projections.events.untrusted import Undecodable, refusing
from projections.formats.context_document import suspension_of
from projections.names import Key, Position, make_key, parse_position, partition_of
from projections.storage.listing import Found, place
from streams.log.history import event_of
from streams.runtime.log_fields import about
from threadfold.service.conversations import ConversationService
from threadfold.service.cursors import read_cursor, write_cursor
from threadfold.service.pages import PAGE_BYTES, flat_event_beside

logger = logging.getLogger(__name__)

MAX_LISTED = 200
"""The maximum number of items in a page."""
FIRST, AT_A_TIME = 8, 16
"""Windows that a page of suspensions reads at first, before it is known how much they say, and at a
time then.
"""
_cursor = refusing(msgspec.msgpack.Decoder(tuple[int, str]).decode)


class Place(NamedTuple):
    """A conversation of a list and its partition."""

    found: Found
    partition: int


async def suspensions(
    backend: ConversationService, tenant: str, *, before: str | None = None, limit: int = 50
) -> dict[str, Any]:
    """A page of the open suspensions of a tenant: ``{"suspensions": […], "next_before"}``.

    ``limit`` counts conversations. The one that began to wait last comes first, with all its open
    suspensions. Each is as in a context, with its ``conversation``, as JSON. ``unreadable`` names
    those whose windows cannot be read. A page ends with the conversation that makes it 4 MiB.
    Raises like :func:`conversations`.
    """
    check_limit(limit)
    kind = f"waiting:{tenant}"
    after = place_of(kind, before, "this tenant's suspensions")
    async with backend.turns_to_list.of(tenant) as turn, turn.resting():
        places = await merged(backend, tenant, kind, after, limit + 1)
        found = await _suspended(backend, tenant, places[:limit])
    shown = places[: len(found)]
    unreadable = [
        place.found.conversation
        for place, of_one in zip(shown, found, strict=True)
        if of_one is None
    ]
    return {
        "suspensions": [one for of_one in found for one in of_one or ()],
        "unreadable": unreadable,
        "next_before": cursor_of(kind, shown[-1].found) if len(places) > len(shown) else None,
    }


async def _suspended(
    backend: ConversationService, tenant: str, places: list[Place]
) -> list[list[msgspec.Raw] | None]:
    """The open suspensions of each of these conversations, up to the one that makes them
    :data:`PAGE_BYTES`; None for one that cannot be read. They are read some at a time: fewer, where
    they are large.
    """
    found, size = list[list[msgspec.Raw] | None](), 0
    while len(found) < len(places) and size < PAGE_BYTES:
        fit = 1 + (PAGE_BYTES - size) * len(found) // max(1, size) if found else FIRST
        some = places[len(found) : len(found) + min(fit, AT_A_TIME)]
        keys = [make_key(tenant, place.found.conversation) for place in some]
        for of_one in await asyncio.gather(*(_suspensions_of(backend, key) for key in keys)):
            if size >= PAGE_BYTES:
                break
            found.append(of_one)
            size += sum(len(memoryview(one)) for one in of_one or ())
    return found


async def of_user(backend: ConversationService, tenant: str, user: str, limit: int) -> list[str]:
    """At most ``limit`` conversations that belong to this ``user`` now, without erased ones. Lists
    that former releases wrote name former users' conversations, too: so each is looked at.

    Raises:
        Healing, CorruptWindow, RedisUnavailable: it cannot be known now.
    """
    kind, names = place("user", tenant, user), list[str]()
    places, before = list[Place](), None
    while len(names) < limit:
        places = await merged(backend, tenant, kind, before, limit)
        keys = [make_key(tenant, one.found.conversation) for one in places]
        owners = await asyncio.gather(*map(backend.owner, keys))
        names += [
            key.conversation
            for key, owner in zip(keys, owners, strict=True)
            if owner is not None and owner.user == user
        ]
        if len(places) < limit:
            break
        before = places[-1].found
    return names[:limit]


async def summaries(
    backend: ConversationService,
    tenant: str,
    conversation: str,
    *,
    before: str | None = None,
    limit: int = 20,
) -> dict[str, Any]:
    """The active summary and its predecessors, newest first: ``{"summaries": [flat events],
    "next_before"}``. A page ends with the summary that makes it 4 MiB.

    Raises:
        InvalidRequest: ``limit`` is not 1 to 200.
        InvalidPosition: ``before`` is not a cursor of this list.
        UnknownConversation, Erased, Healing, RedisUnavailable, KafkaUnavailable: as
            ``ConversationService.window`` says.
    """
    check_limit(limit)
    window = await backend.window(tenant, conversation)
    key = window.key
    about = f"summaries {key}"
    if before is None:
        at = (
            None
            if window.meta.summary is None
            else Position(window.partition, window.meta.summary.offset)
        )
    else:
        at = parse_position(
            read_cursor(about, before, f"the summaries of conversation {conversation}").decode(
                "utf-8", "replace"
            )
        )
    del window  # it may be large
    found, size = list[dict[str, Any]](), 0
    async with backend.turns_to_list.of(tenant) as turn, turn.resting():
        while at is not None and len(found) < limit and size < PAGE_BYTES:
            raw = (await backend.log.read([at])).get(at)
            event = None if raw is None else event_of(raw, key, backend.log.seals)
            if raw is None or not isinstance(event, SummaryEvent):
                at = None
                break
            flat = await flat_event_beside(raw, key, backend.log.seals, turn)
            if flat is not None:
                found.append(flat)
                size += len(raw.value or b"")
            earlier = event.data.previous_position
            at = parse_position(earlier) if earlier else None
    return {
        "summaries": found,
        "next_before": None if at is None else write_cursor(about, str(at).encode()),
    }


def cursor_of(kind: str, found: Found) -> str:
    """A cursor of a stored list, for the page after this conversation."""
    return write_cursor(kind, msgspec.msgpack.encode(tuple(found)))


def place_of(kind: str, before: str | None, whose: str) -> Found | None:
    """The place in a stored list that a cursor names; raises :class:`InvalidPosition`."""
    if before is None:
        return None
    try:
        return Found(*_cursor(read_cursor(kind, before, whose)))
    except Undecodable:
        raise InvalidPosition(
            f"cursor {before[:40]!r} is not one of {whose}: use next_before of the last page"
        ) from None


async def merged(
    backend: ConversationService,
    tenant: str,
    name: str,
    before: Found | None,
    limit: int,
    since: int = 0,
) -> list[Place]:
    """The first ``limit`` items of all partitions' lists of a tenant's, merged; without those
    before ``since`` (ms). Raises :class:`Healing`, :class:`RedisUnavailable`.
    """
    generation = backend.control.state.live_generation.number

    def at_home(found: Found, partition: int) -> bool:
        key = make_key(tenant, found.conversation)
        return partition_of(key, backend.log.partitions) == partition

    async def of_one(partition: int) -> list[Place]:
        served = backend.windows.served(partition)
        found, at, more = list[Place](), before, True
        while more and len(found) < limit:
            listed = await backend.store.listed(generation, partition, name, at, limit, since)
            # Earlier releases folded records in another partition than their key's.
            found += [Place(one, partition) for one in listed if at_home(one, partition)]
            more = len(listed) == limit
            at = listed[-1] if listed else at
        # Checked after the read: a server that took over meanwhile may answer with an older list.
        await backend.windows.check_served(
            tenant, partition, await backend.store.checkpoint(generation, partition), served
        )
        return found

    parts = await asyncio.gather(*map(of_one, range(backend.log.partitions)))
    return sorted(chain.from_iterable(parts), reverse=True)[:limit]


async def _suspensions_of(backend: ConversationService, key: Key) -> list[msgspec.Raw] | None:
    try:
        window = await backend.window_or_none(key)
    except Erased:
        return []
    except CorruptWindow as error:
        logger.warning("open suspensions are not known: %s", error, extra=about(key))
        return None
    if window is None or backend.keys.is_erased(str(key).encode()):
        return []
    shown = [
        {"conversation": key.conversation, **suspension_of(window.partition, open_)}
        for open_ in window.state.suspensions
    ]
    return [msgspec.Raw(msgspec.json.encode(one)) for one in shown]


def check_limit(limit: int) -> None:
    """Raise :class:`InvalidRequest` unless a page may have this many items."""
    if not 1 <= limit <= MAX_LISTED:
        raise InvalidRequest(f"limit is {limit}: it must be 1 to {MAX_LISTED}")
