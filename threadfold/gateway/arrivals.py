"""What arrives on a connection: it is read in turns, a small piece in each.

The system hands over what has come on thousands of connections in one step of the event loop, up to
256 KiB of each: seconds of work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from threadfold.gateway.turns import Turns

READ_SECONDS = 0.003
"""Of each step of the event loop, so many are spent on what arrives on connections that have shown
a valid key, and as many on the others.
"""
PIECE = 8 << 10
"""Bytes that are read in one turn."""


class ReadingTurns:
    """The turns of one server in which it reads what has arrived. Who has shown a valid key does
    not wait for those who have not.
    """

    def __init__(self, most: float = READ_SECONDS) -> None:
        self.keyed, self.others = Turns(most), Turns(most)


class Arrivals:
    """What has arrived on one connection, and is not read. No more comes meanwhile.

    Args:
        keyed: whether it has shown a valid key.
        read: gets the bytes, in order.
    """

    def __init__(
        self,
        turns: ReadingTurns,
        address: str,
        transport: asyncio.Transport,
        keyed: Callable[[], bool],
        read: Callable[[memoryview], None],
    ) -> None:
        self._turns = turns
        self._address = address
        self._transport = transport
        self._keyed = keyed
        self._read = read
        self._held = memoryview(b"")
        self._stopped = False
        """Who reads it has paused the transport: that is not undone here."""

    def add(self, data: bytes) -> None:
        """Read these bytes, after those that came before."""
        self._stopped = False
        if self._held:
            self._held = memoryview(bytes(self._held) + data)
        else:
            self._held = memoryview(data)
            self._wait()
        if self._held and not self._stopped and not self._transport.is_closing():
            self._transport.pause_reading()

    def now(self) -> None:
        """Read what there is."""
        while self._held:
            self._read_piece()

    def forget(self) -> None:
        """Nobody is there to be answered."""
        self._held = memoryview(b"")

    def _wait(self) -> None:
        turns = self._turns.keyed if self._keyed() else self._turns.others
        turns.run(self._address, self._take_turn)

    def _take_turn(self) -> float:
        since = time.perf_counter()
        if self._transport.is_closing():
            self.forget()
        if self._held:
            self._read_piece()
        if self._held:
            self._wait()
        return time.perf_counter() - since

    def _read_piece(self) -> None:
        piece, self._held = self._held[:PIECE], self._held[PIECE:]
        # Whoever reads the piece sees the transport as it would be without this class.
        if not self._stopped:
            self._transport.resume_reading()
        self._read(piece)
        if self._transport.is_closing():
            self.forget()
            return
        self._stopped = not self._transport.is_reading()
        if self._held and not self._stopped:
            self._transport.pause_reading()
