"""Turns of callers whom nobody knows yet: few are served at once, and addresses take turns."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from projections.errors import Overloaded

AT_ONCE = 8
MOST = 256
OF_ADDRESS = 48
"""Callers that are served at once, and that may wait: in all, and of one address. Who waits holds a
place among the connections.
"""


class AddressTurns:
    """The turns of one event loop."""

    def __init__(self) -> None:
        self._free = AT_ONCE
        self._waiting: OrderedDict[str, list[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """Wait for a turn of this address, which lasts as long as the context.

        Raises:
            Overloaded: too many wait; of too many in all, the last one of the address that has most
                of them goes.
        """
        if self._free and not self._waiting:
            self._free -= 1
        else:
            await self._wait(address)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, address: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        mine = self._waiting.setdefault(address, [])
        mine.append(turn)
        if len(mine) > OF_ADDRESS:
            self._refuse(address)
        elif sum(map(len, self._waiting.values())) > MOST:
            # Of those that have as many, it is the one whose turn comes last.
            self._refuse(max(reversed(self._waiting), key=lambda one: len(self._waiting[one])))
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._waiting.get(address, ()):
                self._remove(address, turn)
            elif not turn.cancelled() and turn.exception() is None:
                self._pass_on()  # it was given and is not used
            raise

    def _refuse(self, address: str) -> None:
        last = self._waiting[address][-1]
        self._remove(address, last)
        last.set_exception(
            Overloaded("many unknown credentials are checked now: try again shortly")
        )

    def _pass_on(self) -> None:
        while self._waiting:
            address = next(iter(self._waiting))
            turn = self._waiting[address][0]
            self._waiting.move_to_end(address)
            self._remove(address, turn)
            if not turn.done():  # its caller is about to leave
                turn.set_result(None)
                return
        self._free += 1

    def _remove(self, address: str, turn: asyncio.Future[None]) -> None:
        self._waiting[address].remove(turn)
        if not self._waiting[address]:
            del self._waiting[address]
