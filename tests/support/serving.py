"""The gateway on a real socket, in the test's own loop: for what an ASGI transport would buffer, or
could not cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.types import ASGIApp

from tests.support.worker import until
from threadfold.gateway.connections import Connections
from threadfold.gateway.server import KEEP_ALIVE, http_protocol, listen


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving(app: ASGIApp, connections: Connections | None = None) -> AsyncIterator[str]:
    """The address of the application, served by uvicorn until the block ends."""
    listening = listen("127.0.0.1", 0)
    config = uvicorn.Config(
        app,
        http=http_protocol(Connections(10_000, 10_000) if connections is None else connections),
        log_level="warning",
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=KEEP_ALIVE,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        await until(lambda: asyncio.sleep(0, server.started or task.done()))
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listening.close()
