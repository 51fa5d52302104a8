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
from threadfold.gateway.server import acceptors, http_protocol, listen, server_config
from threadfold.gateway.tls import Certificate


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp,
    connections: Connections | None = None,
    certificate: Certificate | None = None,
) -> AsyncIterator[str]:
    """The address of the application, served by uvicorn until the block ends."""
    listening = listen("127.0.0.1", 0)
    if connections is None:
        connections = Connections(10_000, 10_000)
    config = server_config(app, http_protocol(connections, certificate), "warning", 1)
    server = _Server(config)
    task = asyncio.create_task(server.serve(acceptors(listening)))
    try:
        await until(lambda: asyncio.sleep(0, server.started or task.done()))
        yield f"{'https' if certificate else 'http'}://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listening.close()
