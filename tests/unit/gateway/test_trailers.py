"""What stands behind a body is no header of its request."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from threadfold.gateway.connections import Connections
from threadfold.gateway.protocol import bounded

CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"


class Written(asyncio.Transport):
    """A connection whose other side does not read."""

    def write(self, data: Any) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def test_a_trailer_is_no_header_also_where_all_comes_at_once() -> None:
    seen: list[list[bytes]] = []
    answered = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append([name for name, _ in scope["headers"]])
        while (await receive()).get("more_body"):
            pass
        length = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body"})
        if len(seen) == 2:
            answered.set()

    config = Config(app, http="httptools", ws="none", lifespan="off", log_config=None)
    config.load()
    transport = Written()
    connection = bounded(Connections(2))(config=config, server_state=ServerState(), app_state={})
    connection.connection_made(transport)
    trailers = b"Authorization: Bearer other\r\nIf-Match: 1\r\nContent-Encoding: gzip\r\n\r\n"
    connection.data_received(CHUNKED + trailers + CHUNKED + b"\r\n")
    async with asyncio.timeout(5):
        await answered.wait()
    assert seen == [[b"host", b"transfer-encoding"]] * 2
    connection.connection_lost(OSError())
