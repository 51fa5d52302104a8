"""TLS in front of a server that has none: what comes encrypted is handed on as it is."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.support.certificates import Authority
from threadfold.embedded.ports import HOST


@asynccontextmanager
async def tls_front(authority: Authority, port: int, *, client: bool = False) -> AsyncIterator[int]:
    """The port of a TLS server before the one at ``port``; ``client``: it wants a certificate of
    its authority from whoever comes.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("front"))
    if client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.ca)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection(HOST, port)
        await asyncio.gather(_pass(reader, forth), _pass(back, writer))

    server = await asyncio.start_server(serve, HOST, 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, ssl.SSLError):
        while part := await reader.read(1 << 16):
            writer.write(part)
            await writer.drain()
    writer.close()
