"""A response of server-sent events: ends when the client goes away, when it stops reading, or when
the stream does.
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
"""Seconds in which a client has to take a part of the stream; who takes nothing for that long is
let go.
"""


class EventStream(Response):
    """Sends batches of :class:`threadfold.streaming.Sent`; each is encoded once for all who get it.

    Args:
        batches: the stream.
        close: called at its end, whatever the cause.
        status_code: that of the answer; the framework reads its default here.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        batches: AsyncIterator[list[SseEvent]],
        close: Callable[[], None],
        stall: float = STALL,
        status_code: int = 200,
    ) -> None:
        super().__init__(
            None, status_code, {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        del self.headers["content-length"]
        self._batches = batches
        self._close = close
        self._stall = stall

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, until it ends or the client goes away."""
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
            await self._part(
                send,
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                },
            )
            await self._part(send, {"type": "http.response.body", "body": RETRY, "more_body": True})
            async for batch in self._batches:
                body = b"".join([sent.frame for sent in batch])
                await self._part(
                    send, {"type": "http.response.body", "body": body, "more_body": True}
                )
            await self._part(send, {"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            logger.info("a subscriber took nothing for %g s: its connection is closed", self._stall)

    async def _part(self, send: Send, message: dict[str, object]) -> None:
        async with asyncio.timeout(self._stall):
            await send(message)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
