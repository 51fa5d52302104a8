"""The transport of a client that reaches Kafka and Redis itself: for services inside the platform.

Calls go to the gateway's routes in this process, without a socket, so they mean the same over both
transports. Streams are read from the backend.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from urllib.parse import unquote, urlencode

from starlette.types import Message

from projections.errors import ThreadfoldError
from projections.names import make_key
from streams.settings.settings import Settings
from threadfold.gateway.access import INSIDE, Caller
from threadfold.gateway.app import Gateway
from threadfold.gateway.problems import problem_of
from threadfold.service.conversations import ConversationService
from threadfold.streaming import Live
from threadfold_client.calls import Call
from threadfold_client.errors import ClientClosed, ClientError, Unavailable, of_response
from threadfold_client.http import encoded, unsendable
from threadfold_client.sse import ServerSent


class DirectTransport:
    """One tenant's calls on a backend of its own, which the first call starts and :meth:`close`
    stops.

    It checks no keys, scopes or quotas: whoever may use this reaches every tenant's Kafka and Redis
    anyway.
    """

    def __init__(self, settings: Settings, tenant: str, *, timeout: float) -> None:
        make_key(tenant, "-")
        settings.require()
        self._settings = settings
        self._tenant = tenant
        self._timeout = timeout
        self._starting = asyncio.Lock()
        self._backend: ConversationService | None = None
        self._gateway: Gateway | None = None
        self._closed = False

    async def request(self, call: Call) -> bytes:
        """One attempt; raises the :class:`ClientError` that HTTP would give."""
        try:
            gateway, caller = await self._started()
            if call.name == "partial" or call.method == "DELETE":
                # These routes need the text in progress.
                await self._live(caller.backend)
            async with asyncio.timeout(self._timeout):
                return await _answered(gateway, caller, call)
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
            _, caller = await self._started()
            live = await self._live(caller.backend)
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
            if self._gateway is not None and self._gateway.state.live is not None:
                await self._gateway.state.live.stop()
            if self._backend is not None:
                await self._backend.stop()
            self._backend = self._gateway = None

    async def _started(self) -> tuple[Gateway, Caller]:
        if self._backend is None or self._gateway is None or self._closed:
            async with self._starting:
                if self._closed:
                    raise ClientClosed("the client is closed: make another one")
                if self._backend is None or self._gateway is None:
                    backend = ConversationService(self._settings)
                    try:
                        await backend.start()
                    except BaseException:
                        await backend.stop()
                        raise
                    self._backend, self._gateway = backend, Gateway.on(backend)
        return self._gateway, Caller(self._tenant, self._backend)

    async def _live(self, backend: ConversationService) -> Live:
        async with self._starting:
            if self._gateway is None:
                raise ClientClosed("the client is closed: make another one")
            state = self._gateway.state
            if state.live is None:
                state.live = await Live(backend).start()
            return state.live


async def _answered(gateway: Gateway, caller: Caller, call: Call) -> bytes:
    """The body of the gateway's answer; raises the :class:`ClientError` that its problem means."""
    body = b"" if call.body is None else encoded(call.body)
    scope = {
        "type": "http",
        "method": call.method,
        "path": unquote(f"/v1{call.path}"),
        "query_string": urlencode(call.query).encode(),
        "headers": _headers(call),
        INSIDE: caller,
    }
    status, retry_after, parts = 0, None, []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, retry_after
        if message["type"] == "http.response.start":
            status = message["status"]
            retry_after = dict(message["headers"]).get(b"retry-after")
        else:
            parts.append(message.get("body", b""))

    await gateway(scope, receive, send)
    content = b"".join(parts)
    if status >= 300:
        raise of_response(status, content, retry_after and retry_after.decode())
    return content


def _headers(call: Call) -> list[tuple[bytes, bytes]]:
    try:
        return [
            (name.lower().encode(), value.encode("ascii")) for name, value in call.headers.items()
        ]
    except UnicodeEncodeError as error:
        raise unsendable(call, error) from None


def client_error(error: ThreadfoldError) -> ClientError:
    """The client's error for one that threadfold raised in this process."""
    answer = problem_of(error)
    return of_response(answer.status_code, bytes(answer.body), answer.headers.get("retry-after"))
