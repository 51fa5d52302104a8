"""How far windows are behind the log, and why: the log's ends are looked at now and then."""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_right
from collections.abc import Awaitable, Callable
from contextlib import suppress
from operator import itemgetter

from projections.errors import RedisUnavailable, ThreadfoldError, WaitTimedOut
from projections.names import Position
from projections.redis.store import RedisStore
from streams.control.state import State
from streams.log.log import Log
from streams.runtime.tasks import end_tasks

logger = logging.getLogger(__name__)
LOOKS = 4
"""How often the log's ends are looked at within the lag from which a window is called stale."""
SHORTEST = 0.25
ASKING = 1.0
"""Seconds in which Redis has to report why it takes no writes, and the log where it ends."""
REMEMBERED = 1000
"""Ends of a partition that are remembered; beyond, every other one is left out."""


async def explained(
    error: WaitTimedOut, position: Position, store: RedisStore, log: Log
) -> WaitTimedOut:
    """The error of a wait for a position, with its reason if one is known: the log does not have
    the position, or Redis reports why it takes no writes.

    The log is asked no earlier: just after a broker failed, another one may not know of what was
    acknowledged last.
    """
    with suppress(ThreadfoldError, TimeoutError):
        async with asyncio.timeout(ASKING):
            if position.offset >= (await log.end_offsets())[position.partition]:
                return WaitTimedOut(
                    f"position {position} is beyond the end of the log: no event has it yet"
                )
    with suppress(RedisUnavailable, TimeoutError):
        async with asyncio.timeout(ASKING):
            if why := (await store.ping())["refuses"]:
                return WaitTimedOut(f"{error} ({why})", error.retry_after)
    return error


def refuse_halted(state: State, position: Position) -> None:
    """Raise :class:`WaitTimedOut` for a position that is not folded for now."""
    halt = state.halted().get(position.partition)
    if halt is not None and position.offset > halt.offset:
        raise WaitTimedOut(
            f"partition {position.partition} is halted since {halt.since}, so the window does not"
            f" include position {position} for now: too many of its events could not be"
            " folded, and an operator has to let it go on. The events are"
            " safe in the log, read it later"
        )


def name_halt(document: bytes, state: State, partition: int) -> bytes:
    """A context document that says ``"halted_since"`` if its partition is halted: a time."""
    halt = state.halted().get(partition) if state.halts else None
    if halt is None:
        return document
    return b'%s,"halted_since":"%s"}' % (document.removesuffix(b"}"), halt.since.encode())


class Lag:
    """When which end of each partition was first seen. For one event loop; a lag is shown up to two
    looks late.
    """

    def __init__(
        self, log: Log, stale_after: float, applied: Callable[[int], Awaitable[int]]
    ) -> None:
        """Args:
        stale_after: the seconds from which a lag counts; 0: never.
        applied: returns the offset that windows of a partition include now.
        """
        self._log = log
        self._stale_after = stale_after
        self._applied = applied
        self._seen: dict[int, list[tuple[int, float]]] = {}
        self._reached: dict[int, int] = {}
        """What some windows of each partition include. Others are folded later, which are being
        restored: ends that are reached are kept for those.
        """
        self._suspects: set[int] = set()
        self._last: dict[int, int] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        if self._stale_after:
            self._task = asyncio.create_task(self._look(), name="lag")

    async def stop(self) -> None:
        """End the looks."""
        await end_tasks([self._task])

    def stale(self, partition: int, applied: int) -> float | None:
        """For how many seconds windows that include offset ``applied`` have missed an event that
        was in the log; None where that is not longer than ``stale_after``.
        """
        ends = self._seen.get(partition, [])
        self._reached[partition] = max(applied, self._reached.get(partition, -1))
        at = bisect_right(ends, applied + 1, key=itemgetter(0))
        if at == len(ends):
            return None
        seconds = time.monotonic() - ends[at][1]
        if seconds <= self._stale_after:
            return None
        if self._last.get(partition, 0) > applied + 1:
            return seconds
        self._suspects.add(partition)
        return None

    def stamped(self, document: bytes, partition: int, applied: int) -> bytes:
        """A context document that says ``"stale"`` if it is: seconds, as :meth:`stale`."""
        seconds = self.stale(partition, applied)
        if seconds is None:
            return document
        return b'%s,"stale":%.1f}' % (document.removesuffix(b"}"), seconds)

    async def _look(self) -> None:
        pause = max(SHORTEST, self._stale_after / LOOKS)
        while True:
            try:
                self._note(await self._log.end_offsets())
                await self._suspect()
                if self._suspects:
                    # An end may be that of a transactional producer's marks: those are no events,
                    # and looking for the last event costs a read of each partition.
                    last = await self._log.last_records()
                    self._last |= {partition: last[partition] for partition in self._suspects}
                    self._suspects.clear()
            except ThreadfoldError as error:
                logger.debug("the log's ends are not known now: %s", error)
            await asyncio.sleep(pause)

    async def _suspect(self) -> None:
        """Look which partitions are behind before anybody reads their windows."""
        for partition, ends in self._seen.items():
            if ends[-1][0] > self._reached.get(partition, -1) + 1:
                self.stale(partition, await self._applied(partition))

    def _note(self, found: dict[int, int]) -> None:
        now = time.monotonic()
        for partition, end in found.items():
            ends = self._seen.setdefault(partition, [])
            if ends and end < ends[-1][0]:  # another log, or one that lost its tail
                ends.clear()
                self._reached.pop(partition, None)
            if not ends or end > ends[-1][0]:
                ends.append((end, now))
            if len(ends) > REMEMBERED:
                # The oldest stays: it tells for how long a partition has stood still.
                del ends[1::2]
