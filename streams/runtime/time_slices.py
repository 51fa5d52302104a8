"""Time slices: long computations of one event loop take turns, and between two of them everything
else that is ready runs. A loop that computes for long answers nobody, and its consumer sends no
heartbeat.
"""

from __future__ import annotations

import asyncio
import time
from types import TracebackType

SECONDS = 0.01
"""How long one computation goes on before others have their turn."""
ROUNDS = 4
"""Rounds of the event loop between two slices: what waits for several things, one after the other,
takes as many.
"""


class TimeSlices:
    """Shares one event loop among computations. What is done within its first slice never waits.

    Args:
        seconds: of a slice.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self.turn = asyncio.Lock()
        """Held by the computation that goes on beyond its first slice."""

    def begin(self) -> Slice:
        """The first slice of a computation: use it with ``with``."""
        return Slice(self)


class Slice:
    """The slices of one computation: it asks :attr:`over` often, and then awaits :meth:`rest`."""

    __slots__ = ("_all", "_held", "_until")

    def __init__(self, of: TimeSlices) -> None:
        self._all = of
        self._held = False
        self._until = 0.0

    def __enter__(self) -> Slice:
        self._until = time.perf_counter() + self._all.seconds
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.give_up()

    @property
    def over(self) -> bool:
        """Whether it is others' turn."""
        return time.perf_counter() >= self._until

    async def rest(self) -> None:
        """Let others run, and go on when it is this computation's turn again."""
        self.give_up()
        for _ in range(ROUNDS):
            await asyncio.sleep(0)
        await self._all.turn.acquire()
        self._held = True
        self._until = time.perf_counter() + self._all.seconds

    def give_up(self) -> None:
        """Let others have the turn: what comes next waits for something else."""
        if self._held:
            self._held = False
            self._all.turn.release()
