"""Counts what searches and contexts give out, as ``memory.retrieved`` events in the log.

Nobody waits for it, and nobody is charged. One event, or as many as it takes, has what a scope gave
out in the meantime: the first comes soon, the next a minute after it. What cannot be appended is
tried again with the same id. A gateway that is lost takes the counts with it that it has not
written yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec

from projections.errors import KafkaUnavailable, Overloaded, ThreadfoldError, UnderMaintenance
from projections.events.size_limits import out_of_bounds
from projections.events.types import MemoryRetrieved, RetrievedRecord
from projections.fold.memory_acceptance import MAX_RETRIEVED
from projections.memory.background import Background
from projections.memory.identity import Scope
from projections.memory.recall import Recalled
from projections.memory.resolution import Record
from projections.names import Key, users_log
from streams.runtime.tasks import end_tasks

logger = logging.getLogger(__name__)
SOON = 2.0
EVERY = 60.0
"""Seconds from the first retrieval to its event, and between two events of one scope, at least."""
AGAIN = 5.0
"""Seconds until it is tried again while the log does not take it."""
LAST_TRY = 3.0
"""Seconds that are left for it when the gateway ends."""
MAX_SCOPES = 1_000
"""Scopes of one tenant that wait at once, or wrote within a minute; others are not counted."""


class _Event(NamedTuple):
    """An event that has its id: to be repeated until the log has it."""

    key: Key
    flat: dict[str, Any]


class _Waiting:
    """What one scope gave out and is not in the log yet, and from when on it may be written."""

    __slots__ = ("counts", "due", "events")

    def __init__(self, due: float) -> None:
        self.due = due
        self.counts: dict[str, tuple[int, int]] = {}
        self.events = deque[_Event]()


class UseCounts:
    """Gathers what one process gives out. For one event loop; stop it after use."""

    def __init__(
        self,
        append: Callable[..., Awaitable[object]],
        *,
        wanted: bool = True,
        soon: float = SOON,
        every: float = EVERY,
        again: float = AGAIN,
    ) -> None:
        """Args: ``append`` is ``ConversationService.append``, or does as it does. Unless it is
        ``wanted``, nothing is counted.
        """
        self._append = append
        self._wanted = wanted
        self._soon, self._every, self._again = soon, every, again
        self._tenants: dict[str, dict[Scope, _Waiting]] = {}
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def note(self, given: Iterable[Recalled], for_prompt: Background | None) -> None:
        """Count the records that a caller was given. A hit is what was relevant enough for a
        prompt, also by way of a composite.
        """
        records = [one.found for one in given if isinstance(one.found, Record)]
        if not self._wanted or not records:
            return
        hits = set[str]()
        for one in for_prompt.kept if for_prompt is not None else ():
            hits.update((one.id, *one.found.sources) if isinstance(one.found, Record) else ())
        now = asyncio.get_running_loop().time()
        for record in records:
            scopes = self._tenants.setdefault(record.scope.tenant, {})
            waiting = scopes.get(record.scope)
            if waiting is None:
                if len(scopes) >= MAX_SCOPES:
                    continue
                waiting = scopes[record.scope] = _Waiting(now + self._soon)
            elif not waiting.counts:
                waiting.due = max(waiting.due, now + self._soon)
            if record.id in waiting.counts or len(waiting.counts) < MAX_RETRIEVED:
                retrieved, before = waiting.counts.get(record.id, (0, 0))
                waiting.counts[record.id] = retrieved + 1, before + (record.id in hits)
        self._more.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="use-counts")

    async def stop(self) -> None:
        """Write what there is, and end."""
        await end_tasks([self._task])
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_TRY):
                await self._write(float("inf"))

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._more.clear()
            pause = self._soon if await self._write(loop.time()) else self._again
            self._forget(loop.time())
            if not self._tenants:
                await self._more.wait()
            await asyncio.sleep(pause)

    def _forget(self, now: float) -> None:
        """Forget the scopes that have nothing to write and may write at once."""
        for tenant, scopes in list(self._tenants.items()):
            for scope, waiting in list(scopes.items()):
                if not waiting.counts and not waiting.events and waiting.due <= now:
                    del scopes[scope]
            if not scopes:
                del self._tenants[tenant]

    async def _write(self, now: float) -> bool:
        """Append what is due; returns whether the log takes it."""
        due = [
            (scope, waiting)
            for scopes in self._tenants.values()
            for scope, waiting in scopes.items()
            if waiting.events or (waiting.counts and waiting.due <= now)
        ]
        taken = True
        for scope, waiting in due:
            if not waiting.events:
                counts = sorted(waiting.counts.items())
                records = [RetrievedRecord(name, *both) for name, both in counts]
                waiting.events.extend(_events_of(scope, records))
                waiting.counts, waiting.due = {}, now + self._every
            try:
                await self._write_events(scope, waiting.events)
            except UnderMaintenance:
                # Of this tenant alone, maybe: no other one waits for it.
                taken = False
            except (KafkaUnavailable, Overloaded) as error:
                logger.warning("use counts wait for the log: %s", error)
                return False
        return taken

    async def _write_events(self, scope: Scope, events: deque[_Event]) -> None:
        """Append them one by one, and take out what is to be appended no more."""
        while events:
            key, flat = events[0]
            try:
                await self._append(key.tenant, [(key, flat)], noun="use count", operator=True)
            except (UnderMaintenance, KafkaUnavailable, Overloaded):
                raise
            except ThreadfoldError as error:
                # The user was erased meanwhile, for example: there is nothing left to count.
                logger.info("use counts of tenant %s are dropped: %s", scope.tenant, error)
            except Exception:  # whatever it is, the gateway has to go on
                logger.exception("use counts of tenant %s are dropped", scope.tenant)
            events.popleft()


def _events_of(scope: Scope, records: list[RetrievedRecord]) -> list[_Event]:
    """The counts of these records, in as many events as it takes: each within an event's bounds."""
    data = MemoryRetrieved(
        user=scope.user, channel=scope.channel, taught_by=scope.conversation, records=records
    )
    if len(records) > 1 and out_of_bounds(data) is not None:
        half = len(records) // 2
        return [*_events_of(scope, records[:half]), *_events_of(scope, records[half:])]
    fields: dict[str, Any] = msgspec.to_builtins(data)
    flat = {"type": "memory.retrieved", "id": f"retrieved-{uuid4().hex}", **fields}
    return [_Event(users_log(scope.tenant, scope.user), flat)]
