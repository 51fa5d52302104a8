"""One request as handlers see it, and the reading of its body."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from projections.errors import InvalidRequest, RequestTooLarge, UnsupportedMedia
from projections.events.json_text import decode
from projections.events.type_errors import explain
from streams.runtime.shared_bytes import SharedBytes
from threadfold.gateway.access import CREDENTIAL, PRINCIPAL, GatewayState
from threadfold.gateway.heads import announced_length
from threadfold.service.append_body import LOOP_BYTES, THREAD_BYTES

MAX_BODY = 1 << 20
"""Bytes of one request's body, where its route declares no other limit."""


@dataclass(frozen=True, slots=True)
class Body:
    """A request's body of JSON.

    ``type`` is a msgspec type: the body is converted to it, and its schema is made from it. Or it
    is a schema: then the handler gets the decoded JSON and validates it. ``limit`` is in bytes.
    Without ``required`` an empty body stands for an empty
    object. ``noun`` is what errors call it. ``raw``: the handler gets the bytes as they came; of a
    large body, :class:`streams.runtime.shared_bytes.SharedBytes`, which end with the request.
    """

    type: Any
    examples: Mapping[str, Any]
    required: bool = True
    limit: int = MAX_BODY
    noun: str = "the body"
    raw: bool = False

    def value(self, text: bytes) -> Any:
        """What the handler gets of a body; raises what :meth:`Request.read` does."""
        return self.converted(decode(text) if text or self.required else {})

    def converted(self, value: Any) -> Any:
        """What the handler gets of decoded JSON; raises :class:`InvalidRequest`."""
        if isinstance(self.type, dict):
            return value
        try:
            return msgspec.convert(value, self.type)
        except msgspec.ValidationError as error:
            raise InvalidRequest(explain(error, self.type, self.noun)) from None


class Request:
    """A request that has been admitted: its ASGI scope, and the gateway's state."""

    __slots__ = ("_receive", "_shared", "scope", "state")

    def __init__(self, scope: Scope, receive: Receive, state: GatewayState) -> None:
        self.scope = scope
        self.state = state
        self._receive = receive
        self._shared: SharedBytes | None = None

    async def raw_body(self, limit: int) -> bytes | SharedBytes:
        """The body; a large one lies where another process takes it, until :meth:`close`.

        Raises:
            RequestTooLarge: it has over ``limit`` bytes; no more of it is read.
            ClientDisconnect: the request ended before its body did.
        """
        chunks: list[bytes] = []
        size, shared = 0, self._shared
        async for chunk in body_chunks(self.scope, self._receive, limit):
            if shared is not None:
                shared.write(chunk)
                continue
            chunks.append(chunk)
            size += len(chunk)
            if size > THREAD_BYTES:
                shared = self._shared = SharedBytes()
                for earlier in chunks:
                    shared.write(earlier)
                chunks.clear()
        if shared is not None:
            return shared
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def close(self) -> None:
        """Free what is left of a large body."""
        if self._shared is not None:
            self._shared.close()

    async def read(self, body: Body) -> Any:
        """The body as it is declared: decoded, and converted to its type if that is no schema. A
        large one is decoded beside the event loop, one of a tenant at a time.

        Raises:
            RequestTooLarge, MalformedInput: the body is over its limit, or not JSON.
            UnsupportedMedia: it is compressed, or coded in another way.
            InvalidRequest: it is not of its type; the message names the field.
        """
        refuse_coded(self.scope)
        if body.raw:
            return await self.raw_body(body.limit)
        text = await self.raw_body(body.limit)
        if isinstance(text, bytes) and len(text) <= LOOP_BYTES:
            return body.value(text)
        principal = self.scope.get(PRINCIPAL)
        tenant = "" if principal is None else principal.tenant
        async with self.state.turns_to_decode.of(tenant):
            if isinstance(text, bytes):
                return await asyncio.to_thread(body.value, text)
            value = await self.state.connection.get().decode(text)
            return await asyncio.to_thread(body.converted, value)

    def still_allowed(self) -> Callable[[], bool]:
        """A function that returns whether the request's credential still lets its caller in."""
        principal = self.scope.get(PRINCIPAL)
        if principal is None:
            return lambda: True  # a caller in this process
        connection = self.state.connection
        return connection.credentials.holds(
            self.scope.get(CREDENTIAL), lambda: connection.get().control.state, principal
        )


async def body_chunks(scope: Scope, receive: Receive, limit: int) -> AsyncIterator[bytes]:
    """A request's body, as it comes.

    Raises:
        RequestTooLarge: it has over ``limit`` bytes; no more of it is read.
        ClientDisconnect: the request ended before its body did.
    """
    if announced_length(scope["headers"]) > limit:
        raise _too_large(limit)
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        if chunk := message.get("body", b""):
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            yield chunk
        more = message.get("more_body", False)


def _too_large(limit: int) -> RequestTooLarge:
    return RequestTooLarge(
        f"the body is over the limit of {limit} bytes: send it in several requests"
    )


def refuse_coded(scope: Scope) -> None:
    """Raise :class:`UnsupportedMedia` for a body of another content coding than ``identity``: what
    is small and compressed may be large, and nothing here decodes it.
    """
    for name, value in scope["headers"]:
        if name != b"content-encoding":
            continue
        for coding in value.decode("latin-1").split(","):
            if coding.strip().lower() not in ("", "identity"):
                raise UnsupportedMedia(
                    f"the header Content-Encoding names {coding.strip()[:40]!r}: send the body"
                    " without an encoding"
                )
