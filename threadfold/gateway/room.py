"""The bounds of what the gateway holds at once: requests under way, bytes of their bodies, and
streams; in all and for each tenant.

What goes beyond the process' bounds is answered 503 with ``Retry-After`` at once instead of being
queued, what goes beyond a tenant's share
429. A body counts until its request is answered; what was decoded of it takes some times as much.
Connections that send nothing hold no more than the server's own read buffer. A stream counts among
the streams alone.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from projections.errors import Overloaded, QuotaExceeded, ThreadfoldError
from streams.settings.quotas import NO_QUOTA, Quota
from threadfold.gateway.access import PRINCIPAL
from threadfold.gateway.problems import of_error

MAX_REQUESTS = 2_000
"""Requests under ``/v1`` that may be under way at once; those that wait for their events to be
applied among them.
"""
MAX_BODY_BYTES = 256 << 20
"""Bytes of bodies that may be held at once; one body of any allowed size always may."""
MAX_STREAMS = 4_000
"""Streams that may be open at once."""
SHARE = 4
"""One tenant may hold a quarter of each."""


class _Held:
    """What one tenant holds."""

    __slots__ = ("bytes", "requests", "streams")

    def __init__(self) -> None:
        self.requests = self.bytes = self.streams = 0


class Room:
    """ASGI middleware that counts requests, the bytes of their bodies and streams in and out again.

    A tenant's own bounds are raised as :class:`QuotaExceeded`, for whoever is around this to
    answer; the process' are answered here.
    """

    def __init__(
        self,
        app: ASGIApp,
        requests: int = MAX_REQUESTS,
        body_bytes: int = MAX_BODY_BYTES,
        streams: int = MAX_STREAMS,
        quota_of: Callable[[str], Quota] = lambda _: NO_QUOTA,
    ) -> None:
        """Args: ``quota_of`` tells a tenant's quota in force, which may make its share smaller."""
        self._app = app
        self._most_requests = requests
        self._most_bytes = body_bytes
        self._most_streams = streams
        self._quota_of = quota_of
        self._requests = 0
        self._bytes = 0
        self._streams = 0
        self._tenants: dict[str, _Held] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return
        streams = scope["method"] == "GET" and scope["path"].endswith("/stream")
        full = self._full(streams)
        if full is not None:
            await of_error(full)(scope, receive, send)
            return
        principal = scope.get(PRINCIPAL)
        if principal is None:
            await self._counted(scope, receive, send, streams, _Held(), None)
            return
        tenant = principal.tenant
        mine = self._tenants.get(tenant)
        if mine is None:
            mine = self._tenants[tenant] = _Held()
        try:
            self._check_share(tenant, mine, streams)
            await self._counted(scope, receive, send, streams, mine, tenant)
        finally:
            if not (mine.requests or mine.streams) and self._tenants.get(tenant) is mine:
                del self._tenants[tenant]

    async def _counted(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        streams: bool,
        mine: _Held,
        tenant: str | None,
    ) -> None:
        held = 0

        async def counted() -> Message:
            nonlocal held
            message = await receive()
            size = len(message.get("body", b""))
            if size:
                self._check_bytes(size, held, mine, tenant)
                held += size
                self._bytes += size
                mine.bytes += size
            return message

        self._count(mine, streams, 1)
        try:
            await self._app(scope, counted, send)
        finally:
            self._count(mine, streams, -1)
            self._bytes -= held
            mine.bytes -= held

    def _count(self, mine: _Held, streams: bool, n: int) -> None:
        if streams:
            self._streams += n
            mine.streams += n
        else:
            self._requests += n
            mine.requests += n

    def _full(self, streams: bool) -> ThreadfoldError | None:
        if streams:
            return (
                Overloaded(f"{self._streams} streams are open already: try again shortly")
                if self._streams >= self._most_streams
                else None
            )
        if self._requests >= self._most_requests:
            return Overloaded(f"{self._requests} requests are under way already: try again shortly")
        return None

    def _check_share(self, tenant: str, mine: _Held, streams: bool) -> None:
        quota = self._quota_of(tenant)
        if streams:
            most = min(max(1, self._most_streams // SHARE), quota.streams or self._most_streams)
            if mine.streams >= most:
                raise QuotaExceeded(
                    f"tenant {tenant} has {mine.streams} streams open, as many as it may: close"
                    " one, or try again shortly"
                )
            return
        most = min(
            max(1, self._most_requests // SHARE), quota.concurrent_requests or self._most_requests
        )
        if mine.requests >= most:
            raise QuotaExceeded(
                f"tenant {tenant} has {mine.requests} requests under way, as many as it may: try"
                " again shortly"
            )

    def _check_bytes(self, size: int, held: int, mine: _Held, tenant: str | None) -> None:
        if self._bytes > held and self._bytes + size > self._most_bytes:
            raise Overloaded(
                f"{self._bytes >> 20} MiB of requests are under way already: try again shortly"
            )
        if (
            tenant is not None
            and mine.bytes > held
            and mine.bytes + size > self._most_bytes // SHARE
        ):
            raise QuotaExceeded(
                f"tenant {tenant} has {mine.bytes >> 20} MiB of requests under way, as much as it"
                " may: try again shortly"
            )
