"""A response of server-sent events. It ends when the stream ends, the client leaves, or the client
stops reading.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from streams.runtime.tasks import end_tasks
from threadfold.streaming.sse_event import RETRY, SseEvent

logger = logging.getLogger(__name__)
STALL = 30.0
"""Seconds that a client may take to read a part of the stream; then its connection is closed."""


class EventStream(Response):
    """Sends batches of events, each encoded once for all its subscribers.

    Args:
        batches: the stream.
        close: called at its end, whatever the cause.
        stall: seconds that the client may take to read a part.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        batches: AsyncIterator[list[SseEvent]],
        close: Callable[[], None],
        stall: float = STALL,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._batches = batches
        self._close = close
        self._stall = stall

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream until it ends or the client leaves."""
        sending = asyncio.create_task(self._send(send), name="stream")
        leaving = asyncio.create_task(_gone(receive), name="stream-client")
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            try:
                await end_tasks((sending, leaving))
            finally:
                self._close()
        if not sending.cancelled():
            sending.result()

    async def _send(self, send: Send) -> None:
        try:
            start = {"status": self.status_code, "headers": self.raw_headers}
            await self._part(send, "start", **start)
            await self._part(send, "body", body=RETRY, more_body=True)
            async for batch in self._batches:
                body = b"".join([event.frame for event in batch])
                await self._part(send, "body", body=body, more_body=True)
            await self._part(send, "body", body=b"", more_body=False)
        except TimeoutError:
            logger.info("a subscriber read nothing for %g s: its connection is closed", self._stall)

    async def _part(self, send: Send, kind: str, **fields: object) -> None:
        async with asyncio.timeout(self._stall):
            await send({"type": f"http.response.{kind}", **fields})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
