"""What stands behind a body is no header of its request."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.written import answer_empty, connected

CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"


async def test_a_trailer_is_no_header_also_where_all_comes_at_once() -> None:
    seen: list[list[bytes]] = []
    answered = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append([name for name, _ in scope["headers"]])
        while (await receive()).get("more_body"):
            pass
        await answer_empty(send)
        if len(seen) == 2:
            answered.set()

    connection, _ = connected(app)
    trailers = b"Authorization: Bearer other\r\nIf-Match: 1\r\nContent-Encoding: gzip\r\n\r\n"
    connection.data_received(CHUNKED + trailers + CHUNKED + b"\r\n")
    async with asyncio.timeout(5):
        await answered.wait()
    assert seen == [[b"host", b"transfer-encoding"]] * 2
    connection.connection_lost(OSError())
