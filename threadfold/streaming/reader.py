"""A subscriber's queue, bounded in messages and bytes: a subscriber that falls behind is
disconnected, and nobody waits for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from projections.errors import ThreadfoldError
from threadfold.streaming.sse_event import HEARTBEAT, SseEvent, comment
from threadfold.streaming.unsent import TenantStreams, Unsent

MOST = 5_000
MOST_BYTES = 4 << 20
"""Messages, and bytes of their data, that may wait for one subscriber. One message of any size
always may.
"""
SLOW = "too slow: more waits than may wait here; connect again with Last-Event-ID"
CHUNK = 256 << 10
"""Bytes handed over at once."""


def _nothing() -> None:
    return None


class Reader:
    """One subscriber's queue. Used within one event loop; never waits in :meth:`put`.

    Args:
        most, most_bytes: messages, and bytes of them, that may wait.
        still_allowed: called from time to time; the stream ends once it answers False.
        tenant: what it shares with its tenant's other subscribers.
        is_erased: whether a conversation is erased: its events that wait are not sent.
    """

    __slots__ = (
        "_bytes",
        "_is_erased",
        "_most",
        "_most_bytes",
        "_queue",
        "_sending",
        "_tenant",
        "_unsent",
        "_wake",
        "after",
        "ended",
        "joining",
        "last_put",
        "muted",
        "on_cut",
        "overflowed",
        "still_allowed",
    )

    def __init__(
        self,
        most: int = MOST,
        most_bytes: int = MOST_BYTES,
        still_allowed: Callable[[], bool] | None = None,
        tenant: TenantStreams | None = None,
        is_erased: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._tenant = tenant  # it is there as long as one of its streams
        self._unsent = Unsent() if tenant is None else tenant.unsent
        self._sending: list[SseEvent] = []
        """What was taken last: until it takes more, it is not sent."""
        self.on_cut: Callable[[], None] = _nothing
        """Called if what was taken last is not to be sent any more."""
        self._is_erased = is_erased
        self._most = most
        self._most_bytes = most_bytes
        self._queue: deque[SseEvent] = deque()
        self._bytes = 0
        self._wake: asyncio.Future[None] | None = None
        self.still_allowed = still_allowed
        self.ended: str | None = None
        """Why it ended; None while it goes on."""
        self.last_put = 0.0
        """When something was put last, by the loop's clock."""
        self.after = -1
        """The offset after which this subscriber's events begin."""
        self.muted = False
        """Nothing is sent but what ends it."""
        self.joining = True
        self.overflowed = False
        """While it joins, what does not fit is dropped, and is read from the log again."""

    def put(self, event: SseEvent) -> None:
        """Queue an event. A subscriber that is too far behind ends, and gets only the reason."""
        if self.ended is not None or self.overflowed or (self.muted and event.event):
            return
        size = len(event.data)
        if self._queue and (
            len(self._queue) >= self._most or self._bytes + size > self._most_bytes
        ):
            self._clear()
            if self.joining:
                self.overflowed = True
            else:
                self.end(SLOW)
            return
        self._queue.append(event)
        self._bytes += size
        self._notify()
        if event.event:  # comments are shared by all tenants
            self._unsent.add(self, event)

    @property
    def sends(self) -> bool:
        """Whether it still sends events."""
        return self.ended is None and not self.muted

    def mute(self) -> None:
        """Send nothing of what waits or comes, until it ends. What ends it may wait already."""
        if self.sends:
            self._clear()
            self.muted = True

    def beat(self, now: float, every: float) -> None:
        """Queue a heart-beat if nothing was put for ``every`` seconds and nothing waits."""
        if now - self.last_put >= every:
            self.last_put = now
            if not self._queue:
                self.put(HEARTBEAT)

    def join(self, after: int) -> None:
        """Begin joining after an offset, with nothing queued."""
        self._clear()
        self.after, self.joining, self.overflowed = after, True, False

    def end(self, reason: str) -> None:
        """End with this reason, after what waits. While it joins, nothing that waits is sent: what
        came before it may not have been.
        """
        if self.joining:
            self.end_now(reason)
        elif self.ended is None:
            self.ended = reason
            self._notify()

    def end_now(self, reason: str, last: SseEvent | None = None) -> None:
        """End with this reason. Nothing that waits is sent; this event is, if there is one."""
        if self.ended is None:
            self._clear()
            self.overflowed = self.muted = False
            if last is not None:
                self.put(last)
            self.ended = reason
            self._notify()

    def cut(self) -> None:
        """Give up what is held, as its tenant's subscribers hold too much. While it joins, it is
        read from the log again.
        """
        taken = bool(self._sending)
        self._clear()
        if self.joining:
            self.overflowed = True
            return
        self.end(SLOW)
        self._sent()
        if taken:
            self.on_cut()

    def close(self) -> None:
        """Nobody takes anything any more."""
        # It holds the sending task, which holds this: the memory would wait for a full collection.
        self.on_cut = _nothing
        self.end("closed")
        self._clear()
        self._sent()

    async def take(self) -> list[SseEvent]:
        """Return what waits, about 256 KiB at most, as soon as there is anything and it is the
        tenant's turn. Empty once the subscriber has ended and nothing waits. What was taken before
        is sent.
        """
        self._sent()
        while True:
            if self._tenant is not None and self._queue:
                await self._tenant.take_turn()
            if (batch := self._next_batch()) or self.ended is not None:
                break
            self._wake = asyncio.get_running_loop().create_future()
            try:
                await self._wake
            finally:
                self._wake = None
        self._sending = [event for event in batch if event.event]
        return batch

    def _next_batch(self) -> list[SseEvent]:
        batch: list[SseEvent] = []
        size = 0
        while self._queue and size < CHUNK:
            event = self._queue.popleft()
            self._bytes -= len(event.data)
            if event.of and self._is_erased is not None and self._is_erased(event.of):
                self._unsent.remove([event])
                continue
            batch.append(event)
            size += len(event.data)
        if not batch:
            self._unsent.moved(self, holds=False)
        return batch

    def _sent(self) -> None:
        self._unsent.remove(self._sending)
        self._sending = []
        self._unsent.moved(self, holds=bool(self._queue))

    def _clear(self) -> None:
        self._unsent.remove([event for event in self._queue if event.event])
        self._queue.clear()
        self._bytes = 0
        self._unsent.moved(self, holds=bool(self._sending))

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


async def batches_of(
    reader: Reader, past: AsyncIterator[list[SseEvent]]
) -> AsyncIterator[list[SseEvent]]:
    """The batches of one stream: the past, then what the reader gets, and a comment with the reason
    of the end.
    """
    try:
        async for batch in past:
            yield batch
    except ThreadfoldError as error:
        kind = type(error).__name__
        yield [comment(f"the past cannot be read now ({kind}): connect again with Last-Event-ID")]
        return
    while batch := await reader.take():
        yield batch
    yield [comment(reader.ended or "ended")]
