"""A TCP proxy on a free port that cuts all its connections when told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class CutProxy:
    """Passes connections on to the server of ``target``, a URL; ``url`` is its own."""

    def __init__(self, target: str, *, once: bool = False) -> None:
        """Args: ``once``: as soon as no connection is open any more, each further one is cut."""
        self.url = ""
        self._once, self._over = once, False
        self._target = urlsplit(target)
        self._open: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """Break all connections off."""
        for writer in self._open:
            writer.transport.abort()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on until either end closes it."""
        if self._over:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection(
            self._target.hostname, self._target.port
        )
        ends = {writer, far_writer}
        self._open |= ends
        try:
            await asyncio.gather(_pass(reader, far_writer), _pass(far_reader, writer))
        finally:
            self._open -= ends
            for end in ends:
                end.close()
            self._over = self._once and not self._open


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while part := await reader.read(65536):
            writer.write(part)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def cut_proxy(target: str, *, once: bool = False) -> AsyncIterator[CutProxy]:
    """A proxy that listens until the block ends."""
    proxy = CutProxy(target, once=once)
    server = await asyncio.start_server(proxy.take, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
