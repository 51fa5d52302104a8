"""TLS handshakes within the bounds of connections: one that does not end is a connection that sends
nothing.

A server that is given a certificate tells its protocol of a connection only after the handshake, so
whoever begins handshakes and does not go on would hold all file descriptors, uncounted.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

from threadfold.gateway.connections import Connections

SECONDS = 30.0
"""Seconds that a handshake may take."""


class Handshake(asyncio.Protocol):
    """A connection until its handshake is done. Then the protocol that ``make`` returns goes on
    with it.
    """

    def __init__(
        self,
        connections: Connections,
        context: ssl.SSLContext,
        make: Callable[[], asyncio.Protocol],
    ) -> None:
        self.address = ""
        self._connections = connections
        self._context = context
        self._make = make
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._counted = True
        self._data = b""
        self._ended = self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        if self._connections.add(self):
            self._task = asyncio.get_running_loop().create_task(self._shake(self._transport))
        else:
            self._transport.abort()

    def make_way(self) -> None:
        """Close, as there is no room (``threadfold.gateway.connections``)."""
        assert self._transport is not None
        self._counted = False
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._data += data  # what came with the handshake's last message

    def eof_received(self) -> bool:
        self._ended = True
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True

    async def _shake(self, raw: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        try:
            transport = await loop.start_tls(
                raw, self, self._context, server_side=True, ssl_handshake_timeout=SECONDS
            )
        except OSError:  # ssl.SSLError is one
            return
        finally:
            if self._counted:
                self._connections.remove(self)
        # uvloop returns a transport for a connection that was lost meanwhile, too.
        if transport is None or self._lost or transport.get_extra_info("cipher") is None:
            return
        protocol = self._make()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._data:
            protocol.data_received(self._data)
        if self._ended and not protocol.eof_received():
            transport.close()


def after_handshake(
    protocol: Callable[..., asyncio.Protocol], connections: Connections, context: ssl.SSLContext
) -> Callable[..., Handshake]:
    """What a server makes of each connection in place of ``protocol``."""

    def made(**arguments: Any) -> Handshake:
        return Handshake(connections, context, lambda: protocol(**arguments))

    return made
