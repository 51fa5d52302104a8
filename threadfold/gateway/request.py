"""One request as handlers see it, and the reading of its body."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from projections.errors import InvalidRequest, MalformedInput, RequestTooLarge
from projections.events.validation import explain
from threadfold.gateway.access import CREDENTIAL, PRINCIPAL, GatewayState

MAX_BODY = 64 << 20
"""Bytes of one request's body. A result of 8 MiB of text, the most by default, takes up to 48 MiB
where JSON escapes every character.
"""
MAX_ITEMS = 500
"""Events or messages in one request; more answers 422, because the list is not too large but too
long.
"""
_EXPLAINED = 1 << 20


@dataclass(frozen=True, slots=True)
class Body:
    """A request's body of JSON.

    ``type`` is a msgspec type: the body is converted to it, and its schema is made from it. Or it
    is a schema: then the handler gets the decoded JSON and validates it. ``limit`` is in bytes;
    None stands for the limit of all bodies. Without ``required`` an empty body stands for an empty
    object. ``noun`` is what errors call it.
    """

    type: Any
    examples: Mapping[str, Any]
    required: bool = True
    limit: int | None = None
    noun: str = "the body"


class Request:
    """A request that has been admitted: its ASGI scope, and the gateway's state."""

    __slots__ = ("_receive", "scope", "state")

    def __init__(self, scope: Scope, receive: Receive, state: GatewayState) -> None:
        self.scope = scope
        self.state = state
        self._receive = receive

    async def body(self, limit: int) -> bytes:
        """The body; raises :class:`RequestTooLarge` over ``limit`` bytes, and reads no more of it.

        Raises:
            ClientDisconnect: the request ended before its body did.
        """
        if announced_length(self.scope) > limit:
            raise _too_large(limit)
        chunks, size, more = [], 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            if chunk := message.get("body", b""):
                chunks.append(chunk)
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit)
            more = message.get("more_body", False)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def json(self, body: Body) -> Any:
        """The body as it is declared: decoded, and converted to its type if that is no schema.

        Raises:
            RequestTooLarge, MalformedInput: the body is over its limit, or not JSON.
            InvalidRequest: it is not of its type; the message names the field.
        """
        raw = await self.body(MAX_BODY if body.limit is None else body.limit)
        value = decode(raw) if raw or body.required else {}
        if isinstance(body.type, dict):
            return value
        try:
            return msgspec.convert(value, body.type)
        except msgspec.ValidationError as error:
            raise InvalidRequest(explain(str(error)[:300], body.noun)) from None

    def still_allowed(self) -> Callable[[], bool]:
        """A function that returns whether the request's credential still lets its caller in."""
        principal = self.scope.get(PRINCIPAL)
        if principal is None:
            return lambda: True  # a caller in this process
        connection = self.state.connection
        return connection.credentials.holds(
            self.scope.get(CREDENTIAL), lambda: connection.get().control.state, principal
        )


def decode(body: bytes) -> object:
    """Decode JSON strictly: no NaN, no half surrogate pairs, nothing after the value; raises
    :class:`MalformedInput`, which says where it is malformed.
    """
    if not body:
        raise MalformedInput("the body is empty: JSON was expected")
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        raise MalformedInput("the body is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedInput(f"the body is not JSON: {_explain(body, error)}") from None


def _explain(body: bytes, error: Exception) -> str:
    """Where it is malformed. Only the standard library's decoder tells line and column, so it is
    asked about short bodies.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as unicode_error:
        return f"it is not UTF-8 at byte {unicode_error.start}"
    if len(body) <= _EXPLAINED:
        try:
            json.loads(text)
        except json.JSONDecodeError as found:
            return (
                f"{found.msg[:1].lower()}{found.msg[1:]} (line {found.lineno}, column"
                f" {found.colno})"
            )
        except (RecursionError, ValueError):
            return _plain(error)
        if "truncated" in str(error):
            # The standard library takes what JSON cannot carry.
            return "an escape \\u… is half of a surrogate pair"
    return _plain(error)


def _plain(error: Exception) -> str:
    text = str(error).removeprefix("JSON is malformed: ")
    return text[:1].lower() + text[1:]


def as_list(body: object, noun: str) -> list[object]:
    """One item, or a bare array of 1 to 500 of them; raises :class:`InvalidRequest`."""
    if not isinstance(body, list):
        return [body]
    if not body:
        raise InvalidRequest(f"the list is empty: send at least one {noun}")
    if len(body) > MAX_ITEMS:
        raise InvalidRequest(
            f"the list has {len(body)} {noun}s: at most {MAX_ITEMS} go in one request"
        )
    return body


def _too_large(limit: int) -> RequestTooLarge:
    return RequestTooLarge(
        f"the body is over the limit of {limit} bytes: send it in several requests"
    )


def announced_length(scope: Scope) -> int:
    """The bytes that the body is announced with; 0 where they are not."""
    value = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    return int(value) if value.isdigit() and len(value) < 16 else 0
