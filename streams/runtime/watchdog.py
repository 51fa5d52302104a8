"""The watchdog: ends a worker that has something to do, does nothing of it, and does not say why.

Consumers can stop silently (their fetcher dies, an assignment is never finished), and a loop can
hang; a process like that keeps its partitions, and only its end gives them to others. What is
*logged* is no reason: while Kafka or Redis does not answer, and while a partition waits for a cause
that the log names, nothing would be better in another process.

Two parts: a task of the loop that compares what there is to do with what was done, and a thread
that sees the loop itself stand still. Both count the moments in which they could look, not the
clock's: a process that was frozen and woken is not to blame for the time between.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from projections.errors import ThreadfoldError

logger = logging.getLogger(__name__)
LOOKS = 10
"""Looks in a limit: what stands still is found out within 1.2 limits."""


class Look(NamedTuple):
    """One thing there is to do: how much of it (0: nothing), and a mark that changes whenever
    something of it was done or logged.
    """

    lag: int
    mark: object


Probe = Callable[[], Awaitable[Mapping[str, Look]]]


class Watchdog:
    """Watches one process; ``end`` is called once, with a sentence that says what stands still."""

    def __init__(self, probe: Probe, limit: float, end: Callable[[str], None]) -> None:
        """Args: ``limit`` is how many seconds something may stand still. ``probe`` raises a
        ThreadfoldError while it is unknown.
        """
        self._probe = probe
        self._limit = limit
        self._end = end
        self._marks: dict[str, tuple[object, float]] = {}
        self._beats = 0
        self._stopped = threading.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to watch, from the loop that is to be watched."""
        self._tasks = [
            asyncio.create_task(run(), name="watchdog") for run in (self._look_around, self._beat)
        ]
        threading.Thread(target=self._watch_loop, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Stop watching: what ends takes its time."""
        self._stopped.set()
        for task in self._tasks:
            task.cancel()

    async def _beat(self) -> None:
        while not self._stopped.is_set():
            await asyncio.sleep(self._limit / LOOKS / 2)
            self._beats += 1

    async def _look_around(self) -> None:
        step = self._limit / LOOKS
        while not self._stopped.is_set():
            await asyncio.sleep(step)
            try:
                async with asyncio.timeout(self._limit):
                    looks = await self._probe()
                stuck = self.look(looks, step)
            except (ThreadfoldError, TimeoutError) as error:
                logger.debug("the watchdog waits: %s", error)
                self._marks.clear()
                continue
            except Exception:
                logger.exception("the watchdog could not check; it tries again")
                continue
            if stuck is not None:
                self._end(f"{stuck} did not move for {self._limit:g} s, and nothing says why")
                return

    def look(self, looks: Mapping[str, Look], step: float) -> str | None:
        """Compare with the look before, ``step`` seconds ago; returns what has stood still for
        longer than the limit, None for nothing.
        """
        marks: dict[str, tuple[object, float]] = {}
        for name, look in looks.items():
            before, still = self._marks.get(name, (None, 0.0))
            still = (
                still + step
                if look.lag > 0 and name in self._marks and look.mark == before
                else 0.0
            )
            marks[name] = (look.mark, still)
        self._marks = marks
        name, (_, longest) = max(
            marks.items(), key=lambda item: item[1][1], default=("", (None, 0.0))
        )
        return f"{name} ({looks[name].lag} waiting)" if longest > self._limit else None

    def _watch_loop(self) -> None:
        """In a thread: the loop beats twice between two looks; where it does not beat at all for
        two limits, it hangs.
        """
        beats, silent = -1, 0
        while not self._stopped.wait(self._limit / LOOKS):
            silent = silent + 1 if self._beats == beats else 0
            beats = self._beats
            if silent > 2 * LOOKS:
                faulthandler.dump_traceback(file=sys.stderr)
                self._end(
                    f"the event loop did not turn for {2 * self._limit:g} s (where it stands is"
                    " printed above)"
                )
                return


def end_process(reason: str, then: str = "start it again") -> None:
    """End this process at once with exit code 2: nothing is lost by it, others go on from the
    checkpoints.
    """
    logger.critical("the worker ends: %s. Nothing is lost; %s", reason, then)
    logging.shutdown()
    os._exit(2)
