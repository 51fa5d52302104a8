"""What a request over HTTP passes before the SDK sees it.

1. **A credential** in the header ``Authorization``, else 401, and the connection closes.
2. **POST**, else 405: without sessions there is nothing that a ``GET`` could wait for.
3. **The gateway knows the credential**, else 401. The gateway is asked again after some seconds.
4. **The whole body**, up to a limit, else 413.
5. **One message of JSON-RPC, as strictly read as JSON at the gateway**, else 400: no key twice in
   an object, not too deep. Of too many values 422: the SDK parses in the event loop.
6. **Its tenant's turn**: a tenant's requests are few at a time, as the SDK's work for each is.

So nobody without a valid key holds a place among the connections, as at the gateway.
"""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from mcp.types import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from projections.errors import MalformedInput, RequestTooLarge, ThreadfoldError, Unauthorized
from projections.events.json_text import decode
from streams.runtime.keyed_limit import KeyedLimit
from threadfold.gateway.connections import client_of, tell_keyed
from threadfold.gateway.credentials import bearer
from threadfold.gateway.problems import MethodNotAllowed, disconnected, problem_of
from threadfold.gateway.request import MAX_BODY, body_chunks, refuse_coded
from threadfold.gateway.tokens import digest_of
from threadfold.mcp.callers import NO_CREDENTIAL, Callers
from threadfold.service.append_body import LOOP_BYTES

PATH = "/mcp"
DISCARDED = 8 * MAX_BODY
"""Bytes of a body that is too large and that are read before the answer: a client that is not done
with sending sees a reset instead of it.
"""
AT_ONCE = 4
"""Requests of a tenant that the SDK has at once; each takes some ms of the event loop."""
MOST_VALUES = 10_000
"""Values of a request: the arguments of a tool are a few texts."""


class Admission:
    """An application behind which the SDK's answers requests that were admitted."""

    def __init__(self, app: ASGIApp, callers: Callers) -> None:
        self._app = app
        self._callers = callers
        self._turns = KeyedLimit(AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            tenant, body = await self._admitted(scope, receive)
        except (ThreadfoldError, ClientDisconnect) as error:
            await _refusal(error)(scope, receive, send)
            return
        async with self._turns.of(tenant):
            await self._app(scope, _again(body, receive), send)

    async def _admitted(self, scope: Scope, receive: Receive) -> tuple[str, bytes]:
        """The tenant and the body of a request that may be answered."""
        given = bearer(scope["headers"])
        if given is None:
            raise Unauthorized(NO_CREDENTIAL)
        if scope["path"] == PATH and scope["method"] != "POST":
            raise MethodNotAllowed("there are no sessions: send each message by POST", "POST")
        tenant = await self._callers.check(given, client_of(scope))
        tell_keyed(scope, digest_of(given).hex())
        refuse_coded(scope)
        try:
            body = b"".join([chunk async for chunk in body_chunks(scope, receive, MAX_BODY)])
        except RequestTooLarge:
            await _discard(receive)
            raise
        read = partial(decode, body, most=MOST_VALUES)
        _check_message(read() if len(body) <= LOOP_BYTES else await asyncio.to_thread(read))
        return tenant, body


def _check_message(message: Any) -> None:
    """Check that a decoded body is one message of JSON-RPC; raises :class:`MalformedInput`.

    The SDK answers no request with an invalid id: it reads it as a notification.
    """
    if not isinstance(message, dict):
        raise MalformedInput("the body is no JSON object: send one message of JSON-RPC")
    if message.get("jsonrpc") != "2.0":
        raise MalformedInput('the field jsonrpc is not "2.0"')
    id_ = message.get("id", 0)
    if isinstance(id_, bool) or not isinstance(id_, int | str):
        raise MalformedInput("the field id is neither a text nor a whole number")
    if not isinstance(message.get("params", {}), dict):
        raise MalformedInput("the field params is no JSON object")


def _refusal(error: ThreadfoldError | ClientDisconnect) -> Response:
    """The problem of an error, as an error of JSON-RPC: clients show its line."""
    known = disconnected() if isinstance(error, ClientDisconnect) else problem_of(error)
    fault = known.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR
    unread = PARSE_ERROR if isinstance(error, MalformedInput) else INVALID_REQUEST
    said = {
        "code": INTERNAL_ERROR if fault else unread,
        "message": msgspec.json.decode(known.body)["detail"],
    }
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": said})
    headers = {n: v for n, v in known.headers.items() if not n.startswith("content-")}
    return Response(body, known.status_code, headers, "application/json")


async def _discard(receive: Receive) -> None:
    size, more = 0, True
    while more and size <= DISCARDED:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)


def _again(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that has the whole body, and then what comes after it."""
    whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receiving() -> Message:
        return whole.pop() if whole else await receive()

    return receiving
