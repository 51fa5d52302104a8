"""A stream's past, read page by page beside it, while there is room for them among those of its
tenant (``threadfold.streaming.unsent``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from streams.log.log import Row
from threadfold.streaming.reader import Reader
from threadfold.streaming.sse_event import HEARTBEAT, SseEvent
from threadfold.streaming.unsent import Page, PastRoom

NextPage = Callable[[], Awaitable[Sequence[Row] | None]]
"""Returns a page's rows, in order; None after the last page."""


class PastPages:
    """The pages of one stream; :meth:`close` it in any case.

    Args:
        room: of the tenant's streams of its kind.
        heartbeat: seconds after which a stream that waits for something sends a sign of life.
    """

    def __init__(self, reader: Reader, room: PastRoom, heartbeat: float) -> None:
        self._reader = reader
        self._room = room
        self._heartbeat = heartbeat
        self._page: Page | None = None
        self._reading: asyncio.Task[None] | None = None

    async def batches(
        self,
        next_page: NextPage,
        batches_of: Callable[[Sequence[Row]], AsyncGenerator[list[SseEvent], None]],
    ) -> AsyncIterator[list[SseEvent]]:
        """The batches of each page up to the last one, and heart-beats. It ends when the stream
        does: no batch follows the one that is being sent then.
        """
        while self._reader.sends:
            self._reading = asyncio.create_task(self._read(next_page), name="stream-past")
            async for beat in self.beats_until(self._reading):
                yield beat
            self._reading.result()
            if self._page is None:
                return
            async with aclosing(batches_of(self._page.rows)) as batches:
                while self._reader.sends and (batch := await anext(batches, None)):
                    yield batch
            self._leave()

    async def beats_until(self, work: asyncio.Future[Any]) -> AsyncIterator[list[SseEvent]]:
        """Heart-beats until something is done; it is cancelled if the stream ends before."""
        try:
            while not (await asyncio.wait({work}, timeout=self._heartbeat))[0]:
                yield [HEARTBEAT]
        finally:
            work.cancel()

    def close(self) -> None:
        """Read no more, and hold nothing; safe to repeat."""
        if self._reading is not None:
            self._reading.cancel()
        self._leave()

    async def _read(self, next_page: NextPage) -> None:
        self._page = await self._room.page(next_page, self._cut)

    def _cut(self) -> None:
        """Others of its tenant wait for the page that it does not send. What is queued came after
        that page: it is given up with it.
        """
        self._reader.joining = False
        self._reader.cut()
        self._reader.on_cut()

    def _leave(self) -> None:
        if self._page is not None:
            self._page.leave()
            self._page = None
