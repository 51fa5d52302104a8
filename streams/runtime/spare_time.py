"""Work that can wait: as fast as it can while nothing else wants the processor, else a tenth of the
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

SHARE = 0.1
"""Of the time, what such work takes while the others are busy."""
LONGEST_PAUSE = 5.0
"""Seconds: work that took long may have waited most of it."""
LOOK = 0.05
"""Seconds between two looks whether they still are."""


class SpareTime:
    """Gives turns to work that can wait. For one event loop."""

    def __init__(self, busy: Callable[[], bool]) -> None:
        """Args: ``busy`` returns whether work that cannot wait would be slowed."""
        self._busy = busy
        self._one = asyncio.Lock()
        self._next = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold a turn. It comes at once while the others are not busy. Else one piece of work is
        done at a time, and after each there is a pause: no piece waits for ever.
        """
        if self._busy():
            async with self._one:
                if await self._still_busy():
                    loop = asyncio.get_running_loop()
                    begin = loop.time()
                    try:
                        yield
                    finally:
                        end = loop.time()
                        pause = (end - begin) * (1 / SHARE - 1)
                        self._next = end + min(pause, LONGEST_PAUSE)
                    return
        yield

    async def _still_busy(self) -> bool:
        """Whether they are at the end of the pause; False as soon as they are not."""
        loop = asyncio.get_running_loop()
        while self._busy():
            left = self._next - loop.time()
            if left <= 0:
                return True
            await asyncio.sleep(min(left, LOOK))
        return False
