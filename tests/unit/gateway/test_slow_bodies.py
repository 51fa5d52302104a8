"""How slowly a body may come."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from threadfold.gateway import protocol
from threadfold.gateway.connections import Connections
from threadfold.gateway.protocol import bounded


class Written(asyncio.Transport):
    """A connection that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = b""
        self.paused = False

    def write(self, data: Any) -> None:
        self.bytes += data

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        """It is looked at, not used."""


async def test_the_time_in_which_the_gateway_takes_nothing_does_not_count_for_a_slow_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grace, check = 0.5, 0.05
    monkeypatch.setattr(protocol, "BODY_GRACE", grace)
    monkeypatch.setattr(protocol, "BODY_RATE", 1 << 30)
    monkeypatch.setattr(protocol, "CHECK", check)
    busy, answered = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await busy.wait()
        while (await receive()).get("more_body"):
            pass
        length = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body"})
        answered.set()

    config = Config(app, http="httptools", ws="none", lifespan="off", log_config=None)
    config.load()
    transport = Written()
    connection = bounded(Connections(2))(config=config, server_state=ServerState(), app_state={})
    connection.connection_made(transport)
    half = b"x" * 100_000
    connection.data_received(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n" + half)
    await asyncio.sleep(2 * grace)
    assert transport.paused and not transport.bytes
    busy.set()
    await asyncio.sleep(3 * check)
    assert not transport.paused
    connection.data_received(half)
    async with asyncio.timeout(5):
        await answered.wait()
    assert transport.bytes.startswith(b"HTTP/1.1 200 ")
    connection.connection_lost(OSError())
