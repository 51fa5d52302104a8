"""Whose a conversation may be while it is parked: what waits there may give it to another user.

The log says whose a conversation is, and its window does not include what waits. So whoever erases
all of a user's asks here: the window's user, and every user whom a waiting event may name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import NamedTuple

from projections.errors import Conflict, InvalidPosition
from projections.events.types import (
    AnyEvent,
    EventDroppedEvent,
    OpenedEvent,
    RollbackEvent,
)
from projections.fold.quarantine import waiting_offsets
from projections.names import Key, Position, one_line, parse_key, parse_position, partition_of
from projections.storage.listing import QUARANTINED, Found
from projections.window.meta import Quarantine
from streams.log.history import FEW_BYTES, Pieces, offsets_of
from streams.runtime.tasks import some_at_a_time
from threadfold.service.conversations import ConversationService

PAGE = 500
AT_A_TIME = 8
"""Parked conversations whose waiting events are read at a time."""
MOST_FOLDED = 5_000
"""Events before a parked one that are read for their users, where a waiting one goes back there."""
MOST_NAMED = 5
"""Conversations that an error names."""


class Owners(NamedTuple):
    """Whose a conversation is, or may be: ``users``, None where it may be anybody's. ``parked`` is
    the position at which it is parked.
    """

    users: frozenset[str | None] | None
    parked: Position | None = None

    def are(self, user: str) -> bool:
        """Whether it is this user's, whatever becomes of what waits."""
        return self.users == frozenset((user,))

    def may_be(self, user: str) -> bool:
        """Whether it is this user's, or may be."""
        return self.users is None or user in self.users


async def check_owner(backend: ConversationService, key: Key, user: str) -> bool:
    """Whether the conversation is this user's by all that is in the log when this is called.

    Raises:
        Conflict: it is parked, and what waits there may give it to this user, or to another one.
        WaitTimedOut, Healing, CorruptWindow, KafkaUnavailable, RedisUnavailable: that is unknown
            now.
    """
    await backend.caught_up([partition_of(key, backend.log.partitions)], whose=key)
    owners = await _owners(backend, key)
    if owners is None or not owners.may_be(user):
        return False
    if not owners.are(user):
        raise _contested(f"{key.shown} is not erased", user, {key: owners})
    return True


async def check_parked(backend: ConversationService, tenant: str, user: str) -> None:
    """Check that no parked conversation of a tenant's may go from this user to another one or the
    other way round. Only parked ones are looked at; the windows have to be caught up.

    Raises:
        Conflict: there is one.
        Overloaded, Healing, CorruptWindow, KafkaUnavailable, RedisUnavailable: it is unknown now.
    """
    async with backend.turns_to_erase.of(tenant):
        await backend.keys.sync()
        keys = [key async for key in _parked(backend, tenant)]
        found = await some_at_a_time(AT_A_TIME, [partial(_owners, backend, key) for key in keys])
    contested = {
        key: owners
        for key, owners in zip(keys, found, strict=True)
        if owners is not None and owners.may_be(user) and not owners.are(user)
    }
    if contested:
        raise _contested("nothing is erased", user, contested)


def _contested(what: str, user: str, found: dict[Key, Owners]) -> Conflict:
    named = [f"{key.conversation} at {found[key].parked}" for key in sorted(found)]
    more = f", and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return Conflict(
        f"{what}: these conversations are parked, and events that wait there may give them to"
        f" user {one_line(user)} or to another one: {', '.join(named[:MOST_NAMED])}{more}. Retry"
        " each, or drop the event at which it is parked (`threadfold dead-letters`), or erase it"
        " by its name; then repeat this"
    )


async def _parked(backend: ConversationService, tenant: str) -> AsyncIterator[Key]:
    """A tenant's parked conversations, by the partitions' lists."""
    generation = backend.control.state.live_generation.number
    for partition in range(backend.log.partitions):
        before: Found | None = None
        served = backend.windows.served(partition)
        while page := await backend.store.listed(generation, partition, QUARANTINED, before, PAGE):
            for key in _of_tenant(page, tenant):
                # Earlier releases folded records in another partition than their key's.
                if partition_of(key, backend.log.partitions) == partition:
                    yield key
            before = page[-1]
        # Checked after the read: a server that took over meanwhile may answer with an older list.
        checkpoint = await backend.store.checkpoint(generation, partition)
        await backend.windows.check_served(tenant, partition, checkpoint, served)


def _of_tenant(page: list[Found], tenant: str) -> list[Key]:
    """The tenant's conversations in a list that is of all tenants."""
    keys = (parse_key(item.conversation.encode()) for item in page)
    # In a user's own log nothing names another user.
    return [key for key in keys if key and key.tenant == tenant and not key.of_user]


async def _owners(backend: ConversationService, key: Key) -> Owners | None:
    """Whose a conversation may be; None if there is none, or if it is erased."""
    if backend.keys.is_erased(str(key).encode()):
        return None
    owner = await backend.owner(key)
    if owner is None:
        return None
    if owner.quarantine is None:
        return Owners(frozenset({owner.user}))
    partition = partition_of(key, backend.log.partitions)
    others = await _users_after(backend, key, partition, owner.quarantine)
    users = None if others is None else frozenset({owner.user, *others})
    return Owners(users, owner.parked)


async def _users_after(
    backend: ConversationService, key: Key, partition: int, quarantine: Quarantine
) -> set[str] | None:
    """The users to whom the event at which a conversation is parked, and those that wait, may give
    it; None where that may be anybody.
    """
    waiting = waiting_offsets(quarantine)
    if quarantine.count > len(waiting):
        return None
    users, back = set[str](), list[AnyEvent]()
    events = Pieces(backend.log, partition, most_bytes=FEW_BYTES).events(
        key, [quarantine.offset, *waiting]
    )
    async for _, piece in events:
        for _, event in piece:
            if isinstance(event, OpenedEvent) and event.data.user:
                users.add(event.data.user)
            elif isinstance(event, RollbackEvent | EventDroppedEvent):
                back.append(event)
    if not any(_goes_back(event, partition, quarantine.offset) for event in back):
        return users
    before = await _users_before(backend, key, partition)
    return None if before is None else users | before


def _goes_back(event: AnyEvent, partition: int, parked: int) -> bool:
    """Whether an event may undo what the window includes: one that opened it, say. An id may be
    that of an event there, also where a repeat of it waits.
    """
    if isinstance(event, RollbackEvent):
        to = event.data.to
    elif isinstance(event, EventDroppedEvent):
        to = event.data.position
    else:
        return False
    try:
        position = parse_position(to)
    except InvalidPosition:
        return True
    return position.partition == partition and position.offset < parked


async def _users_before(backend: ConversationService, key: Key, partition: int) -> set[str] | None:
    """The users whom the events of a parked window name; None where these are too many to read."""
    window = await backend.window_or_none(key)
    offsets = [] if window is None else await offsets_of(backend.log, window, most=MOST_FOLDED)
    if offsets is None:
        return None
    return {
        event.data.user
        async for _, piece in Pieces(backend.log, partition, most_bytes=FEW_BYTES).events(
            key, offsets
        )
        for _, event in piece
        if isinstance(event, OpenedEvent) and event.data.user
    }
