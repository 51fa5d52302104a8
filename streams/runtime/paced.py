"""One answer for all who ask at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Paced(Generic[T]):
    """Makes one thing at a time, and one within ``pause`` seconds at most, however many ask. Each
    gets one that was begun after it asked. For one event loop.
    """

    def __init__(self, make: Callable[[], Awaitable[T]], pause: float) -> None:
        self._make = make
        self._pause = pause
        self._next: asyncio.Task[T] | None = None
        """What is not begun yet."""
        self._one = asyncio.Lock()
        self._began = float("-inf")

    async def get(self) -> T:
        """What ``make`` returns or raises."""
        if self._next is None:
            self._next = asyncio.create_task(self._in_turn(), name="paced")
            self._next.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        # One who gives up takes it from nobody else.
        return await asyncio.shield(self._next)

    async def _in_turn(self) -> T:
        clock = asyncio.get_running_loop().time
        async with self._one:
            await asyncio.sleep(self._began + self._pause - clock())
            self._next, self._began = None, clock()
            return await self._make()
