"""A subscriber's queue: bounded in messages and bytes, so that who falls behind is let go, and
nobody waits for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from threadfold.streaming.sse_event import HEARTBEAT, SseEvent

MOST = 5_000
MOST_BYTES = 4 << 20
"""What may wait for one subscriber: messages, and bytes of their data; one message of any size
always may.
"""
SLOW = "too slow: what was sent is more than may wait here; connect again with Last-Event-ID"
CHUNK = 256 << 10
"""Bytes handed over at once."""


class Reader:
    """One subscriber's queue. Used within one event loop; never waits in :meth:`put`.

    Args:
        most, most_bytes: what may wait.
        still_allowed: asked now and then; once it answers False the stream ends.
    """

    __slots__ = (
        "_bytes",
        "_most",
        "_most_bytes",
        "_queue",
        "_wake",
        "after",
        "ended",
        "heard",
        "joining",
        "overflowed",
        "still_allowed",
    )

    def __init__(
        self,
        most: int = MOST,
        most_bytes: int = MOST_BYTES,
        still_allowed: Callable[[], bool] | None = None,
    ) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._queue: deque[SseEvent] = deque()
        self._bytes = 0
        self._wake: asyncio.Future[None] | None = None
        self.still_allowed = still_allowed
        self.ended: str | None = None
        """Why it ended; None while it goes on."""
        self.heard = 0.0
        """When something was put last, by the loop's clock."""
        self.after = -1
        """The offset after which its events begin: what comes at or before it is not for this one.
        """
        self.joining = True
        self.overflowed = False
        """While it is joining, what does not fit is let go, and has to be caught up with from the
        log again.
        """

    def put(self, sent: SseEvent) -> None:
        """Queue it; a subscriber that is too far behind ends here, with nothing left to it but the
        reason.
        """
        if self.ended is not None or self.overflowed:
            return
        size = len(sent.data)
        if self._queue and (
            len(self._queue) >= self._most or self._bytes + size > self._most_bytes
        ):
            self._clear()
            if self.joining:
                self.overflowed = True
            else:
                self.end(SLOW)
            return
        self._queue.append(sent)
        self._bytes += size
        self._notify()

    def beat(self, now: float, every: float) -> None:
        """Queue a heart-beat when nothing was put for ``every`` seconds and nothing waits."""
        if now - self.heard >= every:
            self.heard = now
            if not self._queue:
                self.put(HEARTBEAT)

    def join(self, after: int) -> None:
        """Begin joining after an offset, with nothing queued."""
        self._clear()
        self.after, self.joining, self.overflowed = after, True, False

    def end(self, reason: str) -> None:
        """Let the subscriber have what waits, and then end with the reason."""
        if self.ended is None:
            self.ended = reason
            self._notify()

    async def take(self) -> list[SseEvent]:
        """What waits, up to about 256 KiB, as soon as there is anything; empty once it ended and
        nothing waits any more.
        """
        while not self._queue and self.ended is None:
            self._wake = asyncio.get_running_loop().create_future()
            try:
                await self._wake
            finally:
                self._wake = None
        taken: list[SseEvent] = []
        size = 0
        while self._queue and size < CHUNK:
            sent = self._queue.popleft()
            taken.append(sent)
            size += len(sent.data)
        self._bytes -= size
        return taken

    def _clear(self) -> None:
        self._queue.clear()
        self._bytes = 0

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
