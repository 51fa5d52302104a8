"""Reading request bodies: JSON within a size limit, with errors that say where it is malformed."""

from __future__ import annotations

import json

import msgspec
from fastapi import Request

from projections.errors import InvalidRequest, MalformedInput, RequestTooLarge

MAX_BODY = 64 << 20
"""Bytes of one request's body. A result of 8 MiB of text, the most by default, takes up to 48 MiB
where JSON escapes every character.
"""
MAX_ITEMS = 500
"""Events or messages in one request (CONTRACT, HTTP); more answers 422, as the list is not too
large but too long.
"""
_EXPLAINED = 1 << 20


async def read_json(request: Request, limit: int = MAX_BODY) -> object:
    """The decoded body.

    Raises:
        RequestTooLarge: it is over ``limit`` bytes; the rest is not read.
        MalformedInput: it is not JSON in UTF-8; the message says where, as far as that can be told.
    """
    return decode(await read_body(request, limit))


async def read_body(request: Request, limit: int = MAX_BODY) -> bytes:
    """The body as it came; raises :class:`RequestTooLarge` when it is over ``limit`` bytes, and
    reads no more of it.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise _too_large(limit)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _too_large(limit)
    return bytes(body)


def decode(body: bytes) -> object:
    """Decode JSON strictly: no NaN, no half surrogate pairs, nothing after the value; raises
    :class:`MalformedInput`.
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
