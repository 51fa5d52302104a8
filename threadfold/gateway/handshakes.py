"""TLS handshakes within the bounds of connections: one that does not end is a connection that sends
nothing.

A server that is given a certificate tells its protocol of a connection only after the handshake, so
whoever begins handshakes and does not go on would hold all file descriptors, uncounted.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any, cast

from threadfold.gateway.connections import Connections
from threadfold.gateway.tls import Certificate

SECONDS = 30.0
"""Seconds that a handshake may take."""
UNREAD = 64 << 10
"""Bytes that may wait to be read until the next write waits, as without TLS."""


class Handshake(asyncio.Protocol):
    """A connection until its handshake is done. Then the protocol that ``make`` returns goes on
    with it.
    """

    def __init__(
        self,
        connections: Connections,
        certificate: Certificate,
        make: Callable[[], asyncio.Protocol],
    ) -> None:
        self.address = ""
        self._connections = connections
        self._certificate = certificate
        self._make = make
        self._accepted: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None
        self._counted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plain = cast("asyncio.Transport", transport)
        peer = plain.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        self._counted = self._connections.add(self)
        if self._counted:
            # A transport of its own: uvloop reads from this one as soon as this call returns,
            # before a task could begin TLS on it.
            try:
                number = os.dup(plain.get_extra_info("socket").fileno())
            except OSError:  # no descriptor is left
                self._leave()
            else:
                self._accepted = socket.socket(fileno=number)
                self._task = asyncio.get_running_loop().create_task(self._shake())
        plain.abort()

    def make_way(self) -> None:
        """Close, as there is no room (``threadfold.gateway.connections``)."""
        assert self._task is not None
        self._counted = False
        self._task.cancel()
        if self._accepted is not None:  # the task has not begun
            self._accepted.close()

    async def _shake(self) -> None:
        accepted, self._accepted = self._accepted, None
        assert accepted is not None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: _Done(self._go_on),
                accepted,
                ssl=self._certificate.context,
                ssl_handshake_timeout=SECONDS,
            )
        except OSError:  # no TLS, or its client left; ssl.SSLError is one
            pass
        finally:
            self._leave()

    def _go_on(self, transport: asyncio.Transport) -> None:
        self._leave()
        transport.set_write_buffer_limits(high=UNREAD)
        protocol = self._make()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)

    def _leave(self) -> None:
        if self._counted:
            self._counted = False
            self._connections.remove(self)


class _Done(asyncio.Protocol):
    """What a connection is given to once its handshake is done."""

    def __init__(self, then: Callable[[asyncio.Transport], None]) -> None:
        self._then = then

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._then(cast("asyncio.Transport", transport))


def after_handshake(
    protocol: Callable[..., asyncio.Protocol], connections: Connections, certificate: Certificate
) -> Callable[..., Handshake]:
    """What a server makes of each connection in place of ``protocol``."""

    def made(**arguments: Any) -> Handshake:
        return Handshake(connections, certificate, lambda: protocol(**arguments))

    return made
