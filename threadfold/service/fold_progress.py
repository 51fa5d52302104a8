"""How far what a process appended is folded, by partition. Those who wait share the looks at it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from projections.errors import ThreadfoldError
from projections.names import Position
from projections.storage.records import Checkpoint
from streams.runtime.tasks import end_tasks

LOOK = 0.03
"""Seconds between two looks at the checkpoints, while somebody waits."""
ASKING = 1.0
"""Seconds in which Redis has to answer a look; else nobody waits for the next ``UNKNOWN``."""
UNKNOWN = 2.0
STILL, RESTORES = 2.0, 6.0
"""Seconds after which a partition whose checkpoint does not move is not waited for: its worker is
gone, or it is halted, and appends go on. The second where a conversation is being restored, which
may take that long.
"""
FORGOTTEN = 60.0
"""Seconds for which an event counts at most, but for those that wait behind a rollback."""
MANY = 10_000
"""So many lists are known before a look whose events may all be folded."""


class Appended(NamedTuple):
    """A tenant's events of one append in one partition: the last offset, as how many they count,
    and when.
    """

    offset: int
    tenant: str
    events: int
    at: float


@dataclass(slots=True)
class _Waiting:
    """What waits in one partition, how far it is folded as far as is known (None: nobody has
    looked), and since when its checkpoint was seen to stand (None: it moves).
    """

    appended: deque[Appended] = field(default_factory=deque)
    events: dict[str, int] = field(default_factory=dict)
    reached: Checkpoint | None = None
    stands_since: float | None = None

    def note(self, one: Appended) -> None:
        self.appended.append(one)
        self.events[one.tenant] = self.events.get(one.tenant, 0) + one.events

    def look(self, reached: Checkpoint, now: float) -> list[Appended]:
        """Take out what is folded, or too old to count."""
        known = self.reached
        if known is None or (known.offset, known.latest) != (reached.offset, reached.latest):
            self.stands_since = None
        elif self.stands_since is None:
            self.stands_since = now
        self.reached = reached
        gone = self._take_gone(reached, now - FORGOTTEN)
        for one in gone:
            left = self.events[one.tenant] - one.events
            if left:
                self.events[one.tenant] = left
            else:
                del self.events[one.tenant]
        if not self.appended:
            self.stands_since = None
        return gone

    def _take_gone(self, reached: Checkpoint, forgotten: float) -> list[Appended]:
        latest, gone, stay = reached.latest, list[Appended](), list[Appended]()
        waits = _first_of_tenants(reached)
        while self.appended and (
            self.appended[0].offset <= latest or self.appended[0].at < forgotten
        ):
            one = self.appended.popleft()
            is_apart = waits.get(one.tenant, latest + 1) <= one.offset <= latest
            (stay if is_apart else gone).append(one)
        self.appended.extendleft(reversed(stay))
        return gone

    def stands(self, now: float) -> bool:
        """Whether nobody folds it now, or ever has."""
        if self.reached is None:
            return False
        patience = RESTORES if self.reached.restoring else STILL
        return self.reached.latest < 0 or (
            self.stands_since is not None and now - self.stands_since > patience
        )


def _first_of_tenants(reached: Checkpoint) -> dict[str, int]:
    """The first event of each tenant that waits behind a rollback while others are folded: what
    ``Checkpoint.includes`` says of one event, for thousands that are looked up at once.
    """
    found: dict[str, int] = {}
    for name, offset in reached.rollbacks if reached.restoring else ():
        tenant = name.partition("/")[0]
        found[tenant] = min(offset, found.get(tenant, offset))
    return found


class FoldProgress:
    """Knows what waits in each partition, and looks how far it is folded. For one event loop."""

    def __init__(
        self,
        reached: Callable[[int], Awaitable[Checkpoint]],
        looked: Callable[[Sequence[Appended]], Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args: ``reached`` returns how far a partition is folded now. ``looked`` is awaited after
        each look with what is folded since the one before, or too old to count.
        """
        self._reached = reached
        self._looked = looked
        self._clock = clock
        self._partitions: dict[int, _Waiting] = {}
        self._looking: asyncio.Task[None] | None = None
        self._unknown_until = 0.0

    async def stop(self) -> None:
        """End the look that is under way."""
        await end_tasks([self._looking])

    @property
    def unknown(self) -> bool:
        """Whether Redis did not answer the last look, and nobody waits for now."""
        return self._clock() < self._unknown_until

    @property
    def long(self) -> bool:
        """Whether so much is known that a look is due, though nobody waits."""
        return sum(len(one.appended) for one in self._partitions.values()) > MANY

    def note(self, tenant: str, positions: Sequence[Position], weights: Sequence[int]) -> None:
        """Note where events of a tenant are, and as how many each counts."""
        last: dict[int, int] = {}
        counts: dict[int, int] = {}
        for (partition, offset), weight in zip(positions, weights, strict=True):
            last[partition] = max(offset, last.get(partition, -1))
            counts[partition] = counts.get(partition, 0) + weight
        now = self._clock()
        for partition, offset in last.items():
            one = self._partitions.setdefault(partition, _Waiting())
            one.note(Appended(offset, tenant, counts[partition], now))

    def standing(self) -> list[dict[str, int]]:
        """The events by tenant of each partition that nobody folds now."""
        now = self._clock()
        return [one.events for one in self._partitions.values() if one.stands(now)]

    def look(self) -> asyncio.Task[None]:
        """Look at the checkpoints shortly; those who wait share one look."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="fold-progress")
        return self._looking

    async def _look(self) -> None:
        await asyncio.sleep(LOOK)
        await self._looked(await self._gone())

    async def _gone(self) -> list[Appended]:
        waiting = {number: one for number, one in self._partitions.items() if one.appended}
        if not waiting or self.unknown:
            return []
        try:
            async with asyncio.timeout(ASKING):
                found = await asyncio.gather(*map(self._reached, waiting))
        except (ThreadfoldError, TimeoutError):
            self._unknown_until = self._clock() + UNKNOWN
            return []
        now, gone = self._clock(), list[Appended]()
        for one, reached in zip(waiting.values(), found, strict=True):
            gone += one.look(reached, now)
        return gone
