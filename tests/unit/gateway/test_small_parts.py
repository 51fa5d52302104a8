"""Requests of very many small parts: they cost the event loop no more than others of their size."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tests.support.worker import until
from tests.support.written import answer_empty, connected
from threadfold.gateway import protocol
from threadfold.gateway.connections import MAX_WAITING
from threadfold.gateway.heads import MAX_ESCAPES, MAX_HEADERS, MAX_PARAMETERS

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def _empty(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await answer_empty(send)


async def answered(data: bytes, app: Any = _empty) -> bytes:
    """All that is answered to what comes in one read, until the connection is closed."""
    connection, transport = connected(app)
    connection.data_received(data)
    await until(lambda: asyncio.sleep(0, transport.is_closing()))
    connection.connection_lost(None)
    return bytes(transport.bytes)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"a:b\r\n" * MAX_HEADERS + b"\r\n", b"431"),
        (b"GET /?" + b"%41" * (MAX_ESCAPES + 1) + b" HTTP/1.1\r\nHost: a\r\n\r\n", b"414"),
        (b"GET /?a" + b"&a" * (MAX_PARAMETERS + 1) + b" HTTP/1.1\r\nHost: a\r\n\r\n", b"414"),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", b"414"),
    ],
    ids=["headers", "escapes", "parameters", "a long path"],
)
async def test_a_head_of_too_many_parts_is_refused(head: bytes, status: bytes) -> None:
    said = await answered(head + GET * 3)
    assert said.count(b"HTTP/1.1 ") == 1
    assert said.startswith(b"HTTP/1.1 " + status) and b"problem+json" in said


async def test_of_too_many_requests_at_once_the_first_are_answered_and_no_more_are_read() -> None:
    said = await answered(GET * 5_000)
    assert said.count(b"HTTP/1.1 200 ") == MAX_WAITING + 1
    assert said.count(b"HTTP/1.1 503 ") == 1 and said.count(b"HTTP/1.1 ") == MAX_WAITING + 2


async def test_a_body_in_chunks_of_one_byte_is_handed_on_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bodies: list[bytes] = []
    handed_on: list[int] = []
    on_body = HttpToolsProtocol.on_body

    def noted(self: HttpToolsProtocol, body: bytes) -> None:
        handed_on.append(len(body))
        on_body(self, body)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        more, body = True, b""
        while more:
            message = await receive()
            more, body = message.get("more_body", False), body + message["body"]
        bodies.append(body)
        await answer_empty(send)

    monkeypatch.setattr(HttpToolsProtocol, "on_body", noted)
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
    chunks = b"\r\n" + b"1\r\na\r\n" * 30_000 + b"0\r\n\r\n"
    await answered(head + chunks + head + b"Connection: close\r\n" + chunks, app)
    assert bodies == [b"a" * 30_000] * 2
    assert sum(handed_on) == 60_000 and len(handed_on) < 400  # pieces of what arrived


async def test_a_body_that_nobody_takes_any_more_is_read_with_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol, "UNWANTED", 0.1)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await answer_empty(send)

    connection, transport = connected(app)
    size = 3 * protocol.UNWANTED_BYTES
    connection.data_received(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size)
    await until(lambda: asyncio.sleep(0, transport.bytes.startswith(b"HTTP/1.1 200 ")))
    began = time.monotonic()
    connection.data_received(b"x" * size + GET)
    await until(lambda: asyncio.sleep(0, transport.bytes.count(b"HTTP/1.1 200 ") == 2))
    # Two pauses: one for each piece would be a hundred times as long.
    assert 0.15 < time.monotonic() - began < 5
    connection.connection_lost(None)
