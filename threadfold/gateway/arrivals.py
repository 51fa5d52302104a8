"""What arrives on a connection: it is read in turns, a small piece in each.

The system hands over what has come on thousands of connections in one step of the event loop, up to
256 KiB of each: seconds of work.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from threadfold.gateway.departed import has_departed
from threadfold.gateway.loop_turns import KEYLESS_REST, Turns

logger = logging.getLogger(__name__)

READ_SECONDS = 0.001
"""Of each step of the event loop, so many are spent on what arrives on connections that have shown
a valid key, and as many on the others.
"""
PIECE, SMALL_PIECE = 8 << 10, 1 << 10
"""Bytes that are read in one turn, and of those who have shown no valid key: 1 KiB of TLS may be 40
changes of keys, a millisecond of work.
"""
CRUMB = 64
"""Bytes on average of a body's chunks, below which its connection waits with others like it: 8 KiB
in chunks of one byte take a millisecond.
"""
CRUMBS_REST = 4.0
"""After a step in which such bodies were read, for how many times as long none is."""
BODY_PIECE = 64 << 10
"""Bytes of a body of known length that are read in one turn: they are copied, where as many bytes
of small requests would be hundreds of them.
"""


class ReadingTurns:
    """The turns of one server in which it reads what has arrived. Who has shown a valid key does
    not wait for those who have not, nor for bodies in ``crumbs``. Tenants take turns: behind a
    balancer all have one address.
    """

    def __init__(self, most: float = READ_SECONDS) -> None:
        self.keyed, self.others = Turns(most), Turns(most, rest=KEYLESS_REST)
        self.crumbs = Turns(most, rest=CRUMBS_REST)


class Arrivals:
    """What has arrived on one connection, and is not read. No more comes meanwhile. Who reads it
    pauses and resumes it here instead of at the transport.

    Args:
        whose: returns the tenant whose valid key it has shown; empty: none.
        read: gets the bytes, in order.
    """

    def __init__(
        self,
        turns: ReadingTurns,
        address: str,
        transport: asyncio.Transport,
        whose: Callable[[], str],
        read: Callable[[memoryview], None],
    ) -> None:
        self._turns = turns
        self._address = address
        self._transport = transport
        self._whose = whose
        self._read = read
        self._held = memoryview(b"")
        self._stopped = self._waits = self._paused = False
        self._plain, self._piece, self._body_left = True, 0, 0
        self._in_crumbs = False

    def go_through(self, transport: asyncio.Transport, read: Callable[[memoryview], None]) -> None:
        """From now on what arrives comes from another transport, and somebody else decrypts it."""
        self._transport, self._read, self._plain = transport, read, False

    def keyed(self) -> bool:
        """Whether it has shown a valid key."""
        return self._whose() != ""

    def add(self, data: bytes) -> None:
        """Read these bytes, after those that came before."""
        self._held = memoryview(bytes(self._held) + data) if self._held else memoryview(data)
        self._wait()
        self._settle()

    def pause_reading(self) -> None:
        """Read nothing until :meth:`resume_reading`."""
        self._stopped = True
        self._settle()

    def resume_reading(self) -> None:
        """Go on, but not within this call: who reads it is not done with what it does."""
        self._stopped = False
        asyncio.get_running_loop().call_soon(self._wait)
        self._settle()

    def now(self) -> None:
        """Read what there is."""
        while self._held:
            self._read_piece()

    @property
    def behind(self) -> bool:
        """Whether something has arrived that is not read yet."""
        return bool(self._held)

    def came_in(self, chunks: int, size: int) -> None:
        """A part of a body, of so many bytes, came in so many chunks."""
        self._in_crumbs = chunks > 1 and size < CRUMB * chunks

    def body_ended(self) -> None:
        """Whatever the body came in, the next request need not."""
        self._in_crumbs = False

    def expect(self, length: int) -> bool:
        """A request's head was read: a body of that length follows; 0: its length is not known.
        False: its client has left before it has sent the body, and is not there to be answered.
        """
        if not self._plain:  # bytes of TLS are not those of the body
            return not has_departed(self._transport, 0)
        self._body_left = length
        return not has_departed(self._transport, length - len(self._held) - self._piece)

    def forget(self) -> None:
        """Nobody is there to be answered."""
        self._held = memoryview(b"")

    def end(self) -> None:
        """The connection is gone. Nothing refers to who reads it any more."""
        self.forget()
        self._whose, self._read = str, _pass_over

    def _wait(self) -> None:
        if self._held and not self._waits and not self._stopped:
            self._waits = True
            if tenant := self._whose():
                turns = self._turns.crumbs if self._in_crumbs else self._turns.keyed
                turns.run(tenant, self._take_turn)
            else:
                self._turns.others.run(self._address, self._take_keyless_turn)

    def _take_keyless_turn(self) -> float:
        """Read in a turn of those without a key; who has shown one meanwhile waits with the
        others of its tenant: new clients of its address are read now.
        """
        if not self.keyed():
            return self._take_turn()
        self._waits = False
        self._wait()
        return 0.0

    def _take_turn(self) -> float:
        since = time.perf_counter()
        self._waits = False
        if self._transport.is_closing():
            self.forget()
        if self._held and not self._stopped:
            try:
                self._read_piece()
            except Exception:  # it may be another connection's call that makes this turn
                logger.exception("what arrived cannot be read: its connection is closed")
                self.forget()
                self._transport.abort()
            self._wait()
            self._settle()
        return time.perf_counter() - since

    def _read_piece(self) -> None:
        size = SMALL_PIECE
        if self.keyed() and not self._in_crumbs:
            size = max(PIECE, min(self._body_left, BODY_PIECE))
        piece, self._held = self._held[:size], self._held[size:]
        self._piece, self._body_left = len(piece), max(0, self._body_left - size)
        self._read(piece)

    def _settle(self) -> None:
        """Have the transport deliver what comes, or not."""
        paused = self._stopped or bool(self._held)
        if paused == self._paused or self._transport.is_closing():
            return
        self._paused = paused
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


def _pass_over(_came: memoryview) -> None:
    """Nobody reads it."""
