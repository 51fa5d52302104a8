"""Turns of callers whom nobody knows yet: few are served at once, and addresses take turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from projections.errors import Overloaded
from threadfold.gateway.address_queue import AddressQueue

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
        self._waiting = AddressQueue[asyncio.Future[None]]()

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
        self._waiting.add(address, turn)
        too_many = self._waiting.of(address) > OF_ADDRESS
        if too_many or len(self._waiting) > MOST:
            self._waiting.last(address if too_many else None).set_exception(
                Overloaded("many unknown credentials are checked now: try again shortly")
            )
        try:
            await turn
        except asyncio.CancelledError:
            waited = self._waiting.remove(address, turn)
            if not waited and not turn.cancelled() and turn.exception() is None:
                self._pass_on()  # it was given and is not used
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            turn = self._waiting.next()
            if not turn.done():  # its caller is about to leave
                turn.set_result(None)
                return
        self._free += 1
