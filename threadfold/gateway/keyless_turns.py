"""Turns of requests that need no key: a few begin in each step of the event loop, whatever comes at
once. Whoever has no key could hold up all tenants with them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque

IN_A_STEP = 4
"""Requests, or their answers, that begin in one step: less than a millisecond of work."""


class KeylessTurns:
    """The turns of one event loop. Addresses take turns."""

    def __init__(self, most: int = IN_A_STEP) -> None:
        self.most = most
        self._left = most
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._planned = False

    async def take(self, address: str) -> None:
        """Wait for a turn of this address."""
        if not self._planned:
            self._planned = True
            asyncio.get_running_loop().call_soon(self._step)
        if self._left and not self._waiting:
            self._left -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append(turn)
        await turn

    def _step(self) -> None:
        self._planned, self._left = bool(self._waiting), self.most
        if self._planned:
            asyncio.get_running_loop().call_soon(self._step)
        while self._left and self._waiting:
            address, mine = next(iter(self._waiting.items()))
            turn = mine.popleft()
            self._waiting.move_to_end(address)
            if not mine:
                del self._waiting[address]
            if not turn.done():  # its client has left
                turn.set_result(None)
                self._left -= 1
