"""What arrives on a connection that has shown no valid key: it is read in turns.

The system hands over what has come on thousands of connections in one step of the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from uvicorn.protocols.http.flow_control import FlowControl

from threadfold.gateway.keyless_turns import KeylessTurns

READ_SECONDS = 0.003
"""Of each step of the event loop, so many are spent on reading requests that may have no key."""


class Arrivals:
    """What has arrived on one connection, and is not read. No more comes meanwhile.

    Args: ``read`` gets the bytes, in order.
    """

    def __init__(
        self,
        turns: KeylessTurns,
        address: str,
        transport: asyncio.Transport,
        flow: FlowControl,
        read: Callable[[bytes], None],
    ) -> None:
        self._turns = turns
        self._address = address
        self._transport = transport
        self._flow = flow
        self._read = read
        self._held: list[bytes] = []
        self._paused = False

    def add(self, data: bytes, *, at_once: bool) -> None:
        """Read these bytes: at once, or when the turn of the address comes. They are read after
        those that came before.
        """
        if at_once and not self._held:
            self._read(data)
            return
        self._held.append(data)
        if len(self._held) == 1:
            self._turns.run(self._address, self._timed)
        if self._held:
            self._paused = True
            self._flow.pause_reading()

    def now(self) -> None:
        """Read what there is."""
        held, self._held = self._held, []
        if self._paused:
            self._paused = False
            self._flow.resume_reading()
        if held:
            self._read(held[0] if len(held) == 1 else b"".join(held))

    def forget(self) -> None:
        """Nobody is there to be answered."""
        self._held.clear()

    def _timed(self) -> float:
        since = time.perf_counter()
        if self._transport.is_closing():
            self.forget()
        else:
            self.now()
        return time.perf_counter() - since
