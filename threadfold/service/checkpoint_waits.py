"""Waits until windows include a position. A partition is polled while somebody waits."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from projections.errors import WaitTimedOut
from projections.names import Key, Position
from projections.storage.protocol import Checkpoints
from projections.storage.records import Checkpoint
from streams.runtime.tasks import end_tasks

FIRST_INTERVAL = 0.003
LAST_INTERVAL = 0.05
GROWTH = 1.2
"""Seconds between two reads of a checkpoint: the first while it moves, growing by that factor to
the last while it stands still and nobody new waits.
"""
LONGEST_RETRY = 30
"""``Retry-After`` in seconds of a wait that timed out, at most."""


@dataclass(slots=True)
class _Seen:
    """How far a partition was when its poller began, and is now."""

    since: float
    first: int
    reached: int


@dataclass(slots=True, eq=False)
class _Waiter:
    """Who waits for an offset, be it that of one conversation, or of a tenant's."""

    offset: int
    whose: Key | str | None
    future: asyncio.Future[None]


class CheckpointWaits:
    """Callers that wait for the live generation's checkpoints.

    All callers share one read per partition and interval. Used within one event loop; :meth:`stop`
    ends all waits.
    """

    def __init__(
        self,
        store: Checkpoints,
        generation: Callable[[], int],
    ) -> None:
        """Args: ``generation`` returns the live one; it is called at every read."""
        self._store = store
        self._generation = generation
        self._waiters: dict[int, list[_Waiter]] = {}
        self._pollers: dict[int, asyncio.Task[None]] = {}
        self._joined: dict[int, asyncio.Event] = {}
        """Set when somebody began to wait since the last read."""
        self._seen: dict[int, _Seen] = {}

    async def wait_for(
        self,
        position: Position,
        timeout: float,  # noqa: ASYNC109 (a bound, with an error of its own)
        whose: Key | str | None = None,
    ) -> None:
        """Return once the windows of the position's partition include it and may be read. With a
        conversation's key its window is enough, with a tenant's name those of the tenant: it does
        not wait while another one is restored.

        Raises:
            WaitTimedOut: they did not within ``timeout`` seconds.
            RedisUnavailable: the checkpoint cannot be read.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(position.offset, whose, future)
        waiters = self._waiters.setdefault(position.partition, [])
        waiters.append(waiter)
        self._joined.setdefault(position.partition, asyncio.Event()).set()
        if position.partition not in self._pollers:
            name = f"checkpoint-{position.partition}"
            self._pollers[position.partition] = asyncio.create_task(
                self._poll(position.partition), name=name
            )
        try:
            async with asyncio.timeout(timeout):
                await future
        except TimeoutError:
            behind, seconds = self._behind(position)
            raise WaitTimedOut(
                f"the window did not include position {position} within {timeout:g} s{behind}: the"
                " events are safe in the log, read it later",
                seconds,
            ) from None
        finally:
            if waiter in waiters:
                waiters.remove(waiter)

    def _behind(self, position: Position) -> tuple[str, int]:
        """How far a window is behind a position, in words, and in how many seconds to ask again."""
        seen = self._seen.get(position.partition)
        if seen is None or seen.reached < 0:
            return "", 1
        left = position.offset - seen.reached
        speed = (seen.reached - seen.first) / max(time.monotonic() - seen.since, 0.001)
        if speed <= 0:
            return f" (its partition is {left} events behind and stands still)", LONGEST_RETRY // 3
        return (
            f" (its partition is {left} events behind and applies about {speed:.0f} a second)",
            min(max(1, math.ceil(left / speed)), LONGEST_RETRY),
        )

    async def stop(self) -> None:
        """End the pollers; whoever still waits gets :class:`WaitTimedOut`."""
        for waiters in self._waiters.values():
            _end(
                waiters,
                WaitTimedOut(
                    "waiting ended, because this process is stopping: the events are safe in"
                    " the log"
                ),
            )
        await end_tasks(self._pollers.values())

    async def _poll(self, partition: int) -> None:
        waiters, joined = self._waiters[partition], self._joined[partition]
        interval, before = FIRST_INTERVAL, (-1, -1)
        # Not at the end: a waiter whose time is up says after it how far the partition was.
        self._seen.pop(partition, None)
        try:
            while waiters:
                joined.clear()
                checkpoint = await self._read(partition)
                reached = checkpoint.offset
                seen = self._seen.get(partition)
                if seen is None or reached < seen.first:
                    seen = self._seen[partition] = _Seen(time.monotonic(), reached, reached)
                seen.reached = reached
                for waiter in list(waiters):
                    whose = waiter.whose
                    there = checkpoint.includes(waiter.offset, whose) and (
                        whose is None or not checkpoint.heals(whose)
                    )
                    if there and not waiter.future.done():
                        waiter.future.set_result(None)
                waiters[:] = [waiter for waiter in waiters if not waiter.future.done()]
                # While a rollback is under way the others go on ahead of the checkpoint.
                moved = (reached, checkpoint.ahead) != before
                before = (reached, checkpoint.ahead)
                interval = FIRST_INTERVAL if moved else min(interval * GROWTH, LAST_INTERVAL)
                if waiters:
                    interval = await _pause(interval, joined)
        except Exception as error:  # noqa: BLE001 (it is the answer to those who wait; a later caller starts a new poller)
            _end(waiters, error)
        finally:
            self._pollers.pop(partition, None)

    async def _read(self, partition: int) -> Checkpoint:
        checkpoint = await self._store.checkpoint(self._generation(), partition)
        return Checkpoint() if checkpoint is None or checkpoint.healing else checkpoint


async def _pause(interval: float, joined: asyncio.Event) -> float:
    """Wait for an interval, or the first one where somebody begins to wait; returns it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(interval - FIRST_INTERVAL):
            await joined.wait()
            interval = FIRST_INTERVAL
    await asyncio.sleep(FIRST_INTERVAL)
    return interval


def _end(waiters: list[_Waiter], error: Exception) -> None:
    for waiter in waiters:
        if not waiter.future.done():
            waiter.future.set_exception(error)
    waiters.clear()
