"""The bounds of what the gateway holds at once: requests under way and bytes of their bodies.

What goes beyond is answered 503 with ``Retry-After`` at once instead of being queued. A body counts until its request is answered; what was
decoded of it takes some times as much. Connections that send nothing hold no more than the server's own read buffer.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from projections.errors import Overloaded
from threadfold.gateway.problems import of_error

MAX_REQUESTS = 2_000
"""Requests under ``/v1`` that may be under way at once; those that wait for their events to be applied among them."""
MAX_BODY_BYTES = 256 << 20
"""Bytes of bodies that may be held at once; one body of any allowed size always may."""


class Room:
    """ASGI middleware that counts requests and the bytes of their bodies in and out again."""

    def __init__(self, app: ASGIApp, requests: int = MAX_REQUESTS, body_bytes: int = MAX_BODY_BYTES) -> None:
        self._app = app
        self._most_requests = requests
        self._most_bytes = body_bytes
        self._requests = 0
        self._bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it with a problem document."""
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return
        if self._requests >= self._most_requests:
            await of_error(Overloaded(f"{self._requests} requests are under way already: try again shortly"))(scope, receive, send)
            return
        held = 0

        async def counted() -> Message:
            nonlocal held
            message = await receive()
            size = len(message.get("body", b""))
            if self._bytes > held and self._bytes + size > self._most_bytes:
                raise Overloaded(f"{self._bytes >> 20} MiB of requests are under way already: try again shortly")
            held += size
            self._bytes += size
            return message

        self._requests += 1
        try:
            await self._app(scope, counted, send)
        finally:
            self._requests -= 1
            self._bytes -= held
