"""The gateway's protocol on a connection in memory, which a test feeds by hand."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from threadfold.gateway.connections import Connections
from threadfold.gateway.protocol import bounded


class Written(asyncio.Transport):
    """A connection that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = b""
        self.paused = self.closed = self.aborted = False

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        self.bytes += data

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


async def answer_empty(send: Any) -> None:
    """Answer a request with 200 and no body."""
    length = [(b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    await send({"type": "http.response.body"})


def connected(app: Any, connections: Connections | None = None) -> tuple[Any, Written]:
    """The protocol of a new connection to an application, and what it writes to.

    ``connections``: those of its server.
    """
    config = Config(app, http="httptools", ws="none", lifespan="off", log_config=None)
    config.load()
    transport = Written()
    server = bounded(Connections(2) if connections is None else connections)
    connection = server(config=config, server_state=ServerState(), app_state={})
    connection.connection_made(transport)
    return connection, transport
