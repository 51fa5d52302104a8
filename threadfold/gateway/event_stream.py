"""A response of server-sent events. It ends when the stream ends, the client leaves, or the client
stops reading.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from streams.runtime.tasks import end_tasks
from threadfold.streaming.sse_event import RETRY, SseEvent

logger = logging.getLogger(__name__)
PIECE = 128 << 10
"""Bytes that are sent at once: all that a stream copies of an event, which all streams share."""
STALL = 30.0
"""Seconds that a client may take to read a part of the stream; then its connection is closed."""


class EventStream(Response):
    """Sends batches of events, each encoded once for all its subscribers.

    Args:
        batches: the stream.
        close: called at its end, whatever the cause.
        stall: seconds that the client may take to read a part.
        on_cut: takes what is to be called if a batch is not to be sent to its end.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        batches: AsyncIterator[list[SseEvent]],
        close: Callable[[], None],
        stall: float = STALL,
        on_cut: Callable[[Callable[[], None]], None] = lambda _: None,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._batches = batches
        self.close = close
        self._stall = stall
        self._on_cut = on_cut

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream until it ends or the client leaves."""
        sending = asyncio.create_task(self._send(send), name="stream")
        leaving = asyncio.create_task(_gone(receive), name="stream-client")
        self._on_cut(lambda: _cut(sending))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            try:
                await end_tasks((sending, leaving))
            finally:
                self.close()
        if not sending.cancelled():
            sending.result()

    async def _send(self, send: Send) -> None:
        try:
            start = {"status": self.status_code, "headers": self.raw_headers}
            await self._part(send, "start", **start)
            await self._part(send, "body", body=RETRY, more_body=True)
            async for batch in self._batches:
                for piece in pieces_of(batch):
                    await self._part(send, "body", body=piece, more_body=True)
            await self._part(send, "body", body=b"", more_body=False)
        except TimeoutError:
            logger.info("a subscriber read nothing for %g s: its connection is closed", self._stall)

    async def _part(self, send: Send, kind: str, **fields: object) -> None:
        async with asyncio.timeout(self._stall):
            await send({"type": f"http.response.{kind}", **fields})


def pieces_of(batch: Sequence[SseEvent]) -> Iterator[bytes]:
    """A batch's bytes: a large event in pieces, small ones together."""
    small: list[bytes] = []
    size = 0
    for event in batch:
        frame = event.frame
        if small and size + len(frame) > PIECE:
            yield b"".join(small)
            small, size = [], 0
        if len(frame) > PIECE:
            for at in range(0, len(frame), PIECE):
                yield frame[at : at + PIECE]
        else:
            small.append(frame)
            size += len(frame)
    if small:
        yield b"".join(small)


def _cut(sending: asyncio.Task[None]) -> None:
    logger.info("a subscriber reads too slowly: its connection is closed, others need the room")
    sending.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
