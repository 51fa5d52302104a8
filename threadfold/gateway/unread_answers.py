"""Answers that their client does not read: their connection ends.

A transport that is closed stays open until all of it is sent, so a client that reads nothing would
hold a file descriptor, and what was answered, for ever.
"""

from __future__ import annotations

import asyncio

SECONDS = 30.0
RATE = 1_024
"""Bytes a second that are read at least, in each ``SECONDS``, while something waits to be read."""
FLUSH = 0.1
"""Seconds in which a connection that makes way still sends what it has to say."""
LINGER = 1.0
"""Seconds for which one that waited for its refusal stays open: its client comes again when it is
closed, and would drive out the next one at once.
"""


class Unread:
    """Looks after what one connection has not sent yet, while nothing is added to it: it is paused,
    or being closed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop = loop
        self._transport = transport
        self._next: asyncio.TimerHandle | None = None
        self._ends = False

    def watch(self) -> None:
        """Nothing is added from now on: see to it that what there is is read."""
        left = self._transport.get_write_buffer_size()
        if left and self._next is None and not self._ends:
            self._next = self._loop.call_later(SECONDS, self._look, left)

    def end_soon(self, seconds: float = FLUSH) -> None:
        """Somebody else needs the connection's place: whatever is read of it, it ends."""
        if not self._ends:
            self.forget()
            self._ends = True
            self._loop.call_later(seconds, self._transport.abort)

    def forget(self) -> None:
        """All is read, or the connection is gone."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _look(self, before: int) -> None:
        self._next = None
        left = self._transport.get_write_buffer_size()
        if left and before - left < SECONDS * RATE:
            self._transport.abort()
        else:
            self.watch()
