"""A process that reports its metrics ends soon, whatever Redis does."""

from __future__ import annotations

import asyncio
import time

from streams.metrics.metrics import Metrics
from streams.metrics.reports import LEAVE, WORKERS, Reporter
from streams.settings.settings import Settings


async def test_a_process_ends_soon_although_redis_does_not_answer() -> None:
    asked = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()  # until the client has left
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    settings = Settings(kafka="127.0.0.1:1", redis=f"redis://127.0.0.1:{port}/0")
    reporter = Reporter(Metrics(), settings, WORKERS)
    reporter.start()
    await asked.wait()
    began = time.monotonic()
    await reporter.stop()
    # A client of Redis that is cancelled while it connects needs up to 2 s; a call, 5 s.
    assert time.monotonic() - began < LEAVE + 4
    server.close()
