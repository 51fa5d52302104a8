"""The transport of a client that reaches Kafka and Redis itself: for services inside the platform.

Appends, contexts, history, single events, streams and partial text go to the backend as they are.
All other calls go to the gateway's own routes, in this process and without a socket, so they mean
the same over both transports.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

import httpx
import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from projections.errors import ThreadfoldError
from projections.names import make_key
from streams.settings.settings import Settings
from threadfold.gateway.access import INSIDE, Caller
from threadfold.gateway.app import Gateway, create_gateway
from threadfold.gateway.request import as_list
from threadfold.service.conversations import ConversationService
from threadfold_client.calls import Call
from threadfold_client.errors import (
    BY_STATUS,
    NOTHING_DONE,
    ClientClosed,
    ClientError,
    Fault,
    Invalid,
    Unavailable,
)
from threadfold_client.http import HttpTransport
from threadfold_client.sse import ServerSent


class DirectTransport:
    """One tenant's calls on a backend of its own, which is started by the first call and stopped by
    :meth:`close`.

    Keys, scopes and quotas are the gateway's: whoever may use this reaches every tenant's Kafka and
    Redis anyway.
    """

    def __init__(self, settings: Settings, tenant: str, *, timeout: float) -> None:
        make_key(tenant, "-")
        settings.require()
        self._settings = settings
        self._tenant = tenant
        self._timeout = timeout
        self._starting = asyncio.Lock()
        self._backend: ConversationService | None = None
        self._routes: HttpTransport | None = None
        self._inside: Gateway | None = None
        self._live: Any = None
        self._closed = False
        self._calls: Mapping[str, Callable[[ConversationService, Call], Awaitable[bytes]]] = {
            "append": self._append,
            "context": self._context,
            "history": self._history,
            "event": self._event,
            "partial": self._partial,
        }

    async def request(self, call: Call) -> bytes:
        """One attempt; raises the :class:`ClientError` that HTTP would give."""
        try:
            backend = await self._started()
            # A header asks for what only the routes know: an expected position, a fencing token,
            # ids derived from a key.
            plain = self._calls.get(call.name) if not call.headers else None
            if plain is None:
                assert self._routes is not None
                if call.name == "partial" or call.method == "DELETE":
                    # Beside the backend these routes need the text in progress.
                    await self._lively()
                return await self._routes.request(call)
            async with asyncio.timeout(self._timeout):
                return await plain(backend, call)
        except ThreadfoldError as error:
            raise client_error(error) from None
        except TimeoutError:
            raise Unavailable(
                f"Kafka or Redis did not answer within {self._timeout:g} s; unknown whether it took"
                " effect",
                unknown=True,
            ) from None

    async def stream(self, call: Call) -> AsyncIterator[ServerSent]:
        """The events of one subscription."""
        try:
            await self._started()
            live = await self._lively()
            resume = call.headers.get("Last-Event-ID")
            if call.name == "summaries":
                source = live.summaries(
                    self._tenant, resume, beginning=call.query.get("from") == "beginning"
                )
            else:
                source = live.conversation(self._tenant, call.conversation, resume)
            async with aclosing(source):
                async for sent in source:
                    yield ServerSent(sent.event, sent.id, sent.data.decode())
        except ThreadfoldError as error:
            raise client_error(error) from None

    async def close(self) -> None:
        """Stop the backend; calls under way fail."""
        self._closed = True
        async with self._starting:
            if self._live is not None:
                await self._live.stop()
            if self._routes is not None:
                await self._routes.close()
            if self._backend is not None:
                await self._backend.stop()
            self._live = self._routes = self._backend = self._inside = None

    async def _started(self) -> ConversationService:
        if self._backend is not None and not self._closed:
            return self._backend
        async with self._starting:
            if self._closed:
                raise ClientClosed("the client is closed: make another one")
            if self._backend is None:
                backend = ConversationService(self._settings)
                try:
                    await backend.start()
                except BaseException:
                    await backend.stop()
                    raise
                inside = _inside(self._settings, backend)
                transport = httpx.ASGITransport(_as(Caller(self._tenant, backend), inside))
                self._routes = HttpTransport(
                    "http://threadfold", None, timeout=self._timeout, transport=transport
                )
                self._inside = inside
                self._backend = backend
            return self._backend

    async def _lively(self) -> Any:
        from threadfold.streaming import Live

        async with self._starting:
            if self._live is None:
                if self._backend is None or self._inside is None:
                    raise ClientClosed("the client is closed: make another one")
                live = Live(self._backend)
                await live.start()
                self._live = self._inside.state.live = live
            return self._live

    async def _append(self, backend: ConversationService, call: Call) -> bytes:
        flats = as_list(call.body, "event")
        appended = await backend.append(self._tenant, [(call.conversation, flat) for flat in flats])
        if call.query.get("wait"):
            applied = await backend.wait_applied(self._tenant, call.conversation, appended)
            shown = [
                {"id": item.id, "position": str(item.position), "status": item.status}
                for item in applied
            ]
        else:
            shown = [{"id": item.id, "position": str(item.position)} for item in appended]
        return _json({"events": shown, "position": str(appended[-1].position)})

    async def _context(self, backend: ConversationService, call: Call) -> bytes:
        query = call.query
        limit = query.get("max_tokens")
        if limit is not None and not 1 <= int(limit) <= 1 << 31:
            raise Invalid(
                f"max_tokens is {limit}: it must be 1 to {1 << 31}",
                status=422,
                type="invalid-request",
            )
        after = query.get("after")
        return await backend.context(
            self._tenant,
            call.conversation,
            fmt=str(query.get("format", "openai")),
            max_tokens=None if limit is None else int(limit),
            after=None if after is None else str(after),
        )

    async def _history(self, backend: ConversationService, call: Call) -> bytes:
        before = call.query.get("before")
        limit = int(call.query.get("limit", 50))
        return _json(
            await backend.history(
                self._tenant,
                call.conversation,
                before=None if before is None else str(before),
                limit=limit,
            )
        )

    async def _event(self, backend: ConversationService, call: Call) -> bytes:
        numbers = {
            name: int(call.query[name]) for name in ("offset", "limit") if name in call.query
        }
        position = call.path.rpartition("/")[2]
        found = await backend.event_at(
            self._tenant,
            call.conversation,
            position,
            offset=numbers.get("offset"),
            limit=numbers.get("limit"),
        )
        return _json(found)

    async def _partial(self, backend: ConversationService, call: Call) -> bytes:
        body = call.body
        live = await self._lively()
        known = await live.partial(
            self._tenant, call.conversation, body["turn_id"], body["delta"], body.get("offset")
        )
        return _json({"turn_id": body["turn_id"], "offset": known})


def _inside(settings: Settings, backend: ConversationService) -> Gateway:
    """The gateway's application on this backend: no server ever sees it."""
    app = create_gateway(settings)
    app.state.connection.backend = backend
    return app


def _as(caller: Caller, app: ASGIApp) -> ASGIApp:
    """The application, every request that caller's."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, INSIDE: caller}, receive, send)

    return serve


def client_error(error: ThreadfoldError) -> ClientError:
    """The client's error for one that threadfold raised in this process."""
    name = type(error).__name__
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    return BY_STATUS.get(error.problem, Fault)(
        str(error),
        status=error.problem,
        type=words.replace(" ", "-"),
        title=words.capitalize(),
        retry_after=1.0 if error.problem == 503 else None,
        unknown=error.problem >= 500 and words.replace(" ", "-") not in NOTHING_DONE,
    )


def _json(document: object) -> bytes:
    return msgspec.json.encode(document)
