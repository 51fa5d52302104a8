"""The list of a tenant's conversations: filtered, paged, each with what a reader picks it by.

A filter chooses the shortest of the stored lists that hold all that it wants, and each conversation
is then looked at. What is shown stands beside the window: no window is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from projections.errors import CorruptWindow, KafkaUnavailable
from projections.events.times import micros_of, rfc3339
from projections.events.types import MessageEvent
from projections.names import Key, Position, make_key
from projections.render.read_header import AWAITING
from projections.storage.card import (
    CARD,
    Card,
    LastMessage,
    decode_card,
    last_message,
    preview,
)
from projections.storage.layout import HEAD, Head, decode_head, last_message_of
from projections.storage.listing import Found, place
from projections.storage.records import stored_form
from projections.storage.stubs import STUB, Stub, decode_stub
from streams.log.history import event_of
from streams.log.log import Raw
from streams.runtime.log_fields import about
from streams.runtime.tasks import some_at_a_time
from threadfold.service.conversations import ConversationService
from threadfold.service.documents import beside
from threadfold.service.lists import MAX_LISTED, Place, check_limit, cursor_of, merged, place_of

logger = logging.getLogger(__name__)

UNREADABLE = "unreadable"
"""The state of a conversation whose window cannot be read, in lists."""
MAX_LOOKED = 2_000
"""Conversations that one page looks at, where a filter passes over most of them."""
PAGE = 50
AT_A_TIME = 16
"""Conversations of one list that are read at a time."""
FIRST, LOG_BYTES = 4, 4 << 20
"""Records of the log that a list reads at first, before it is known how large they are, and about
how many bytes of them it reads at a time then.
"""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which conversations a list shows: those that have all that is given. ``since`` and ``until``
    bound the time of the last activity, both included. ``names`` are all that may be shown.
    """

    user: str | None = None
    channel: str | None = None
    state: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    names: frozenset[str] | None = None

    def kind(self, tenant: str) -> str:
        """The stored list that holds all these conversations; of several, the shortest."""
        if self.user is not None:
            return place("user", tenant, self.user)
        if self.state in AWAITING:
            return place("state", tenant, self.state)
        return (
            f"recent:{tenant}" if self.channel is None else place("channel", tenant, self.channel)
        )

    def named(self, places: list[Place]) -> list[Place]:
        """Those of a stored list that may be shown. The others are passed over unread, so that a
        page ends at one that may be shown: its cursor can be read.
        """
        names = self.names
        return places if names is None else [at for at in places if at.found.conversation in names]

    def admits(self, shown: dict[str, Any]) -> bool:
        """Whether a conversation is one of these. A stored list may be ahead of its window, and
        one that a former release wrote has conversations that were given to another user.
        """
        return all(
            wanted is None or shown[name] == wanted
            for name, wanted in (
                ("user", self.user),
                ("channel", self.channel),
                ("state", self.state),
            )
        )


EVERY = Filter()


async def conversations(
    backend: ConversationService,
    tenant: str,
    *,
    only: Filter = EVERY,
    before: str | None = None,
    limit: int = 50,
) -> dict[str, Any]:
    """A page of the tenant's conversations, last active first, without erased ones:
    ``{"conversations": […], "next_before"}``.

    Each is ``{"conversation", "active_at" (RFC 3339), "state", "position", "count", "tokens",
    "user", "channel", "title", "metadata", "metadata_cut", "last_message"}``. A page looks at
    2,000 conversations at most: it may have fewer than ``limit`` and still name a next page. One
    whose window cannot be read has the state :data:`UNREADABLE` and no position; who asks for a
    user, a channel or a state is not shown it.

    Raises:
        InvalidRequest: ``limit`` is not 1 to 200.
        InvalidPosition: ``before`` is not a cursor of this list.
        Healing, RedisUnavailable: the list cannot be read now.
        Overloaded: the tenant reads many lists, and no turn came within 5 s.
    """
    check_limit(limit)
    async with backend.turns_to_list.of(tenant) as turn, turn.resting():
        return await _listed(backend, tenant, only, before, limit)


async def _listed(
    backend: ConversationService, tenant: str, only: Filter, before: str | None, limit: int
) -> dict[str, Any]:
    kind = only.kind(tenant)
    after = place_of(kind, before, "this tenant's conversations, listed in this way")
    if only.until is not None:
        last = Found(_ms(only.until) + 1, "")
        after = last if after is None else min(after, last)
    found: list[tuple[Place, Head | Stub | None, dict[str, Any]]] = []
    looked, more = 0, True
    while more and len(found) < limit and looked < MAX_LOOKED:
        size = min(MAX_LISTED, max(limit - len(found), PAGE) if looked else limit)
        if only.names is not None:
            size = MAX_LOOKED
        places = await merged(backend, tenant, kind, after, size + 1, _ms(only.since))
        places, more = places[:size], len(places) > size
        if only.names is None:
            looked += len(places)
        for one, head, shown in await _described(backend, tenant, only.named(places)):
            after = one.found
            if shown and only.admits(shown):
                found.append((one, head, shown))
                if len(found) == limit:
                    more = more or one is not places[-1]
                    break
        else:
            after = places[-1].found if places else after
    await _add_last_messages(backend, tenant, found)
    cursor = cursor_of(kind, after) if more and after else None
    return {"conversations": [shown for _, _, shown in found], "next_before": cursor}


async def _described(
    backend: ConversationService, tenant: str, places: list[Place]
) -> list[tuple[Place, Head | Stub | None, dict[str, Any]]]:
    """Head and description of each conversation, or the stub of one that sleeps (it stays asleep);
    None for one that cannot be read, and without a description for one that is gone.
    """

    async def one(at: Place) -> tuple[Place, Head | Stub | None, dict[str, Any]]:
        key = make_key(tenant, at.found.conversation)
        if backend.keys.is_erased(str(key).encode()):
            return at, None, {}  # its window may have to wait for that
        try:
            return await readable(at, key)
        except CorruptWindow as error:
            # One must not hide the others.
            logger.warning("a list shows %s as unreadable: %s", key, error, extra=about(key))
            return at, None, _unreadable(at)

    async def readable(at: Place, key: Key) -> tuple[Place, Head | Stub | None, dict[str, Any]]:
        fields = await backend.windows.fields(key, [HEAD, STUB, CARD])
        with stored_form(key):
            if HEAD in fields:
                head = decode_head(fields[HEAD])
                if head.erased:
                    return at, None, {}
                return at, head, _shown(at, head, decode_card(fields.get(CARD, b"")))
            if STUB in fields:
                stub = decode_stub(fields[STUB])
                return at, stub, _shown(at, stub, decode_card(stub.card))
            return at, None, {}

    return await some_at_a_time(AT_A_TIME, [partial(one, at) for at in places])


def _content_of(head: Head | Stub, user: str | None) -> Hashable:
    """What the last message of a window follows from, as far as ``user`` may have said it."""
    if isinstance(head, Stub):
        return user, head.last
    return user, head.skip, head.base, *head.chunks.items()


async def _last_of(
    backend: ConversationService,
    tenant: str,
    at: Place,
    head: Head | Stub | None,
    shown: dict[str, Any],
) -> tuple[LastMessage | None, Hashable]:
    """A conversation's last message, without a role where only the log has it, and the content that
    it is of; None if there is none, or if it cannot be read.
    """
    if head is None:
        return None, None
    user = shown["user"]
    if isinstance(head, Stub):
        return head.last, _content_of(head, user)
    key = make_key(tenant, at.found.conversation)
    try:
        # What is large is read one after another: a place is taken for the first of a list.
        async with backend.turns_to_read.together(tenant):
            last = await _newest(backend, key, head, user)
            return last if last[0] else await _last_of_all(backend, key, user)
    except CorruptWindow:
        return None, None


async def _newest(
    backend: ConversationService, key: Key, head: Head, user: str | None
) -> tuple[LastMessage | None, Hashable]:
    """The last message of a window's newest chunk, if that has one of the same user."""
    if not head.chunks:
        return None, None
    name = b"%d" % max(head.chunks)
    fields = await backend.windows.fields(key, [HEAD, CARD, name])
    with stored_form(key):
        if name not in fields or HEAD not in fields or _user_of(fields) != user:
            return None, None
        head = decode_head(fields[HEAD])  # the chunk is of this one, which may be a later one
        skip = head.skip if len(head.chunks) == 1 else 0
        make = partial(last_message, fields[name], skip)
        last = await beside(len(fields[name]), backend.turns_to_read, key.tenant, make)
        is_newest = int(name) == max(head.chunks, default=-1)
        return last, _content_of(head, user) if is_newest else None


async def _last_of_all(
    backend: ConversationService, key: Key, user: str | None
) -> tuple[LastMessage | None, Hashable]:
    """The last message of a whole window. Nothing was said lately, or what was said has left the
    tail: that is rare.
    """
    _, stored = await backend.windows.read(key, recent_ids=False)
    with stored_form(key):
        if stored is None or stored.asleep or _user_of(stored.fields) != user:
            return None, None
        make = partial(last_message_of, stored.fields)
        last = await beside(stored.size, backend.turns_to_read, key.tenant, make)
        return last, _content_of(decode_head(stored.fields[HEAD]), user)


async def _add_last_messages(
    backend: ConversationService,
    tenant: str,
    found: list[tuple[Place, Head | Stub | None, dict[str, Any]]],
) -> None:
    """Add the begin of each conversation's last message. Where only the log has it, it is null
    while Kafka is away, and so it is where the conversation was given to another user meanwhile:
    that one may have said it.
    """
    previews, left = backend.windows.previews, []
    for listed in found:
        at, head, shown = listed
        known = None
        if head is not None:
            key = make_key(tenant, at.found.conversation)
            known = previews.find(key, _content_of(head, shown["user"]))
        if known is None:
            left.append(listed)
        elif known.last is not None:
            shown["last_message"] = _shown_message(at, known.last)
    if left:
        await _read_last_messages(backend, tenant, left)


async def _read_last_messages(
    backend: ConversationService,
    tenant: str,
    found: list[tuple[Place, Head | Stub | None, dict[str, Any]]],
) -> None:
    """Add last messages that are not known. What is large is read within one turn of the tenant."""
    async with backend.turns_to_read.together(tenant):
        lasts = await some_at_a_time(
            AT_A_TIME, [partial(_last_of, backend, tenant, *listed) for listed in found]
        )
        wanted = {
            Position(at.partition, last.offset): make_key(tenant, at.found.conversation)
            for (at, _, _), (last, _) in zip(found, lasts, strict=True)
            if last is not None and not last.role
        }
        logged: dict[Position, LastMessage | None] = {}
        if wanted:
            with suppress(KafkaUnavailable):
                logged = await _from_log(backend, tenant, wanted)
    for (at, _, shown), (last, content) in zip(found, lasts, strict=True):
        is_known = content is not None
        if last is not None and not last.role:
            last = logged.get(Position(at.partition, last.offset))
            is_known = is_known and last is not None
        if is_known:
            backend.windows.previews.keep(make_key(tenant, at.found.conversation), content, last)
        if last is not None:
            shown["last_message"] = _shown_message(at, last)


def _shown_message(at: Place, last: LastMessage) -> dict[str, str]:
    position = str(Position(at.partition, last.offset))
    return {"role": last.role, "text": last.text, "position": position}


def _user_of(fields: Mapping[bytes, bytes]) -> str | None:
    return decode_card(fields.get(CARD, b"")).user


async def _from_log(
    backend: ConversationService, tenant: str, wanted: Mapping[Position, Key]
) -> dict[Position, LastMessage | None]:
    """The messages at these positions: some at a time, fewer of large records."""
    found: dict[Position, LastMessage | None] = {}
    left, count = list(wanted), FIRST
    async with backend.turns_to_read.of(tenant) as turn:
        while left:
            some, left = left[:count], left[count:]
            rows = await backend.log.read(some)
            sizes = {at: len(raw.value or b"") for at, raw in rows.items()}
            for at in some:
                if (raw := rows.pop(at, None)) is not None:
                    make = partial(_message_of, backend, wanted[at], raw)
                    found[at] = await turn.work(sizes[at], make)
            fit = LOG_BYTES * len(some) // max(1, sum(sizes.values()))
            count = max(1, min(2 * len(some), fit))
    return found


def _message_of(backend: ConversationService, key: Key, raw: Raw) -> LastMessage | None:
    event = event_of(raw, key, backend.log.seals)
    if not isinstance(event, MessageEvent):
        return None
    data = msgspec.to_builtins(event.data)
    return LastMessage(data["role"], preview(data.get("content")), raw.position.offset)


def _shown(at: Place, head: Head | Stub, card: Card) -> dict[str, Any]:
    header = head.read_header if isinstance(head, Head) else head
    begun = head.position >= 0  # not one that is parked at its first event
    return {
        **_said(at, header.state, card),
        "position": str(Position(at.partition, head.position)) if begun else None,
        "count": head.count,
        "tokens": header.tokens,
    }


def _unreadable(at: Place) -> dict[str, Any]:
    return {**_said(at, UNREADABLE, Card()), "position": None, "count": 0, "tokens": 0}


def _said(at: Place, state: str, card: Card) -> dict[str, Any]:
    active = datetime.fromtimestamp(at.found.at_ms / 1000, UTC)
    return {
        "conversation": at.found.conversation,
        "active_at": rfc3339(active, "milliseconds"),
        "state": state,
        "user": card.user,
        "channel": card.channel,
        "title": card.title,
        "metadata": card.metadata,
        "metadata_cut": card.cut,
        "last_message": None,
    }


def _ms(at: datetime | None) -> int:
    """A time in ms since 1970; 0 for none, and for all before."""
    return 0 if at is None else max(0, micros_of(at) // 1000)
