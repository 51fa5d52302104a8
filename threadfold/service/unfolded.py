"""How much of what a process appended waits for the workers, by tenant. Who appends faster than the
workers fold waits here, where other tenants pass, and not in the log, which is folded in its order.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass

from projections.errors import QuotaExceeded
from projections.events.codec import full_type
from projections.events.validation import Record
from projections.names import Position
from projections.storage.records import Checkpoint
from streams.runtime.keyed_limit import KeyedLimit
from streams.runtime.other_tenants import OtherTenants
from streams.runtime.tasks import end_tasks
from threadfold.service.fair_turns import FairTurns
from threadfold.service.fold_progress import Appended, FoldProgress

_ROLLBACK, _MESSAGE = full_type("rollback"), full_type("message")
MOST = 400
"""Events of a tenant that may wait for the workers when it appends more, while others append: in a
measurement with lists of 400 new conversations others then waited 0.2 s for their windows, with
2,000 0.5 s, and with 4,000 1 s. The lists took 2,300, 3,600 and 4,400 events a second.
"""
ALL = 800
"""Events of all tenants, while several append."""
SMALL = 100
"""Events of a tenant that may wait for the workers, however many of others do; of many tenants they
have a share of ``ALL`` each,
"""
FEW = 25
"""but not fewer than these, which do not count among those of all."""
ALONE = 2_000
"""Events of a tenant that may wait while no other one has appended for ``ACTIVE`` seconds."""
ACTIVE = 10.0
PATIENCE = 8.0
"""Seconds that an append waits at most before it is refused."""
ROLLBACK = 50
"""Events that a rollback counts as: in a long conversation it takes as long as hundreds of them."""
BYTES = 4_096
"""Bytes of an event that count as one more: a conversation that opens with 18 KB of metadata takes
a hundred times as long as a short message, one that is long text much less.
"""
CALLS = 8
"""Tool calls of a message that count as one more event: a message with 64 takes 3 to 4 ms."""
_CALL = b'"arguments":'
"""Within text its quotes are escaped."""
_ENOUGH = 16 * BYTES
"""A longer event counts as many whatever it holds, and is not looked through."""


class Room:
    """Room for an append: there always is, as nobody counts what waits."""

    async def fit(self, events: int) -> None:
        """So many events are appended: wait for room for them, if they are more than was said."""

    def note(self, positions: Sequence[Position], weights: Sequence[int] | None = None) -> None:
        """These are the positions of what was appended, with :func:`weights_of` it; None: each
        counts as one.
        """


def room_in(
    unfolded: Unfolded | None, tenant: str, events: int, *, waits: bool = False
) -> AbstractAsyncContextManager[Room]:
    """:meth:`Unfolded.room`; None: there is always room."""
    if unfolded is None:
        return nullcontext(Room())
    return unfolded.room(tenant, events, waits=waits)


def weights_of(records: Iterable[Record]) -> list[int]:
    """As how many events each of these counts."""
    return [_weight(record) for record in records]


def _weight(record: Record) -> int:
    if record.type == _ROLLBACK:
        return ROLLBACK
    size = len(record.value)
    calls = record.value.count(_CALL) if record.type == _MESSAGE and size < _ENOUGH else 0
    return 1 + size // BYTES + calls // CALLS


class Unfolded:
    """Counts what waits, and lets appends of one tenant wait in order. For one event loop."""

    def __init__(
        self,
        reached: Callable[[int], Awaitable[Checkpoint]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args: ``reached`` returns how far a partition is folded now."""
        self._progress = FoldProgress(reached, self._folded, clock)
        self._clock = clock
        self._all: dict[str, int] = {}
        """Events by tenant, those on their way into the log, too."""
        self._total = 0
        self._beyond = 0
        """Events by which tenants have more than ``FEW``."""
        self._others = OtherTenants()
        self._lines = KeyedLimit(1)
        self._turns = FairTurns()
        self._giving: asyncio.Task[None] | None = None
        self._full = False
        """Whether a tenant waits only because of other tenants."""

    async def stop(self) -> None:
        """End what is under way."""
        await end_tasks([self._giving])
        await self._progress.stop()

    @asynccontextmanager
    async def room(self, tenant: str, events: int, *, waits: bool) -> AsyncIterator[Room]:
        """Append so many events of a tenant, or as many as :meth:`Room.fit` says, in this context.

        Args: ``waits``: first until no more than :meth:`most` of the tenant's wait for the workers,
        and no more than ``ALL`` of all tenants, or of this one no more than a few. Tenants that
        wait because of others take turns.

        Raises:
            QuotaExceeded: they were more for ``PATIENCE`` seconds.
        """
        self._others.note(tenant, self._clock())
        room = _CountedRoom(self, tenant)
        try:
            if waits:
                await room.fit(events)
            else:
                room.change(events)
            yield room
        finally:
            room.leave()

    def most(self, tenant: str) -> int:
        """How many of the tenant's events may wait when it appends more."""
        return MOST if self._others.than(tenant, self._clock() - ACTIVE) else ALONE

    def waiting(self, tenant: str) -> int:
        """How many of the tenant's events wait, but for partitions that nobody folds now."""
        standing = self._progress.standing()
        return self._all.get(tenant, 0) - sum(one.get(tenant, 0) for one in standing)

    async def take(self, tenant: str, events: int) -> None:
        """Count these events, once there is room for them."""
        if not self._take_at_once(tenant, events):
            await self._wait(tenant, events)

    async def _wait(self, tenant: str, events: int) -> None:
        since = self._clock()
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE), self._lines.of(tenant):
                if not self._take_at_once(tenant, events):
                    await self._turn(tenant, events)
                return
        raise QuotaExceeded(
            f"tenant {tenant} appends faster than its events are folded, or all tenants together"
            f" do: {self.waiting(tenant)} of its events (a rollback counts as {ROLLBACK}, and each"
            f" {BYTES >> 10} KiB of an event or {CALLS} tool calls as one more) wait for the"
            f" workers after {self._clock() - since:.0f} s, and nothing of this request was"
            " appended: send it again later",
            retry_after=2,
        )

    async def _turn(self, tenant: str, events: int) -> None:
        given = self._turns.add(tenant, events)
        if self._giving is None or self._giving.done():
            self._giving = asyncio.create_task(self._give_turns(), name="unfolded-turns")
        try:
            await given
        except asyncio.CancelledError:
            if not given.cancelled():
                self.add(tenant, -events)  # it had come, but too late
            raise
        finally:
            self._turns.leave(tenant)

    async def _give_turns(self) -> None:
        while self._turns:
            await self._progress.look()
            left = self._turns.give(self._take)
            self._full = any(self.waiting(one) <= self.most(one) for one in left)
        self._full = False

    def _take_at_once(self, tenant: str, events: int) -> bool:
        """Take room for these events, not before others that wait for theirs, but for a few."""
        at_once = not self._full or self._are_few(tenant, events)
        return at_once and self._take(tenant, events)

    def _are_few(self, tenant: str, events: int) -> bool:
        """Whether these may wait, however many of other tenants do."""
        few = max(FEW, min(SMALL, ALL // max(1, len(self._all)))) - events
        return self._all.get(tenant, 0) <= few or self.waiting(tenant) <= few

    def _take(self, tenant: str, events: int) -> bool:
        if not self._has_room(tenant, events):
            return False
        self.add(tenant, events)
        return True

    def _has_room(self, tenant: str, events: int) -> bool:
        if self._progress.unknown:
            return True
        most = self.most(tenant)
        if self._all.get(tenant, 0) > most and self.waiting(tenant) > most:
            return False
        return (
            most == ALONE
            or self._beyond <= ALL
            or self._are_few(tenant, events)
            or self._beyond_waiting() <= ALL
        )

    def _beyond_waiting(self) -> int:
        """Events by which tenants have more than ``FEW``, but for partitions that nobody folds."""
        stand: Counter[str] = Counter()
        for one in self._progress.standing():
            stand.update(one)
        left = ((self._all.get(tenant, 0), events) for tenant, events in stand.items())
        return self._beyond - sum(_beyond(all_) - _beyond(all_ - events) for all_, events in left)

    def add(self, tenant: str, events: int) -> None:
        """Count these events; fewer than 0: no longer."""
        self._total += events
        before = self._all.get(tenant, 0)
        left = before + events
        self._beyond += _beyond(left) - _beyond(before)
        if left:
            self._all[tenant] = left
        else:
            self._all.pop(tenant, None)

    def note(self, tenant: str, positions: Sequence[Position], weights: Sequence[int]) -> None:
        """Note where events of a tenant are, which are counted."""
        self._progress.note(tenant, positions, weights)
        many = self._all.get(tenant, 0) > self.most(tenant) // 2 or self._total > ALL // 2
        if many or self._progress.long:
            self._progress.look()  # so that the next one need not wait for that

    async def _folded(self, gone: Sequence[Appended]) -> None:
        for one in gone:
            self.add(one.tenant, -one.events)


def _beyond(events: int) -> int:
    return max(0, events - FEW)


@dataclass(slots=True)
class _CountedRoom(Room):
    """Room for ``events`` of a tenant, of which ``noted`` are in the log."""

    of: Unfolded
    tenant: str
    events: int = 0
    noted: int = 0

    async def fit(self, events: int) -> None:
        if events <= self.events:
            self.change(events - self.events)
            return
        # Who waits for more has none of it, or those that wait would wait for each other.
        self.leave()
        await self.of.take(self.tenant, events)
        self.events = events

    def change(self, events: int) -> None:
        """Have room for so many more, or fewer, without a wait."""
        self.of.add(self.tenant, events)
        self.events += events

    def note(self, positions: Sequence[Position], weights: Sequence[int] | None = None) -> None:
        counts = [1] * len(positions) if weights is None else weights
        self.noted = sum(counts)
        self.of.note(self.tenant, positions, counts)

    def leave(self) -> None:
        """Have room no longer but for what is in the log."""
        self.change(self.noted - self.events)
