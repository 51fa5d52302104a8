"""TLS handshakes within the bounds of connections: one that does not end is a connection that sends
nothing. Their steps wait in a queue (``threadfold.gateway.handshake_queue``).

A server that is given a certificate tells its protocol of a connection only after the handshake, so
whoever begins handshakes and does not go on would hold all file descriptors, uncounted.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from streams.runtime.freed_memory import ConnectionMemory
from threadfold.gateway.arrivals import SMALL_PIECE, Arrivals
from threadfold.gateway.client_hello import ClientHello, NoHello
from threadfold.gateway.connections import Connections, address_of
from threadfold.gateway.handshake_queue import HandshakeQueue
from threadfold.gateway.receiving import Receiving
from threadfold.gateway.tls import Certificate

SECONDS = 30.0
"""Seconds that a handshake may take, its turns included."""
STEP = 2 * SMALL_PIECE
"""Bytes in one step: more than what a client begins with."""
_LEFT = "the handler is closed"
"""In the error of a write to a connection that is gone."""
MOST_PREFERRED = 2
"""Steps after the first in which a handshake goes before those that begin: it has no more, unless
its client sends it in pieces.
"""
UNSENT = 16 << 10
"""Bytes that may wait to be read by their client until the next write waits."""
UNREAD = 64 << 10
"""Bytes of a client that may wait for a turn of its handshake, before no more of it is read."""


class Answering(asyncio.Protocol):
    """What goes on with a connection after its handshake."""

    @abstractmethod
    def behind_tls(
        self, plain: asyncio.Transport, decrypt: Callable[[memoryview], None]
    ) -> Arrivals:
        """What arrives is decrypted before it is received; returns where it goes first."""


class Handshake(Receiving):
    """A connection until its handshake is done. Then the protocol that ``make`` returns goes on
    with it.

    The event loop's TLS would work on each message as soon as it comes. So until the handshake is
    done the transport gives all bytes to this protocol, which hands them on when it is its turn.
    """

    def __init__(
        self,
        connections: Connections,
        queue: HandshakeQueue,
        certificate: Certificate,
        memory: ConnectionMemory,
        make: Callable[[], Answering],
    ) -> None:
        self.address = ""
        self._connections = connections
        self._queue = queue
        self._certificate = certificate
        self._memory = memory
        self._make = make
        self._came = b""
        self._hello = ClientHello()
        self._tls: asyncio.BufferedProtocol | None = None
        self._task: asyncio.Task[None] | None = None
        self._late: asyncio.TimerHandle | None = None
        self._counted = False
        self._lost = False
        self._steps = 0

    @property
    def preferred(self) -> str:
        """With whom it takes turns (``threadfold.gateway.handshake_queue``)."""
        tenant = self._connections.key_shown(self.address)
        return tenant or (self.address if 0 < self._steps <= MOST_PREFERRED else "")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._plain = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.address = address_of(str(peer[0])) if peer else ""
        self._counted = self._connections.add(self)
        if self._counted:
            self._late = asyncio.get_running_loop().call_later(SECONDS, self.end)
        else:
            self._plain.abort()

    def data_received(self, data: bytes) -> None:
        self._came += data
        if len(self._came) > UNREAD:
            self._plain.pause_reading()
        if self._tls is not None:
            self._queue.add(self)
        elif self._task is None:
            try:
                if self._hello.is_whole(self._came):
                    self._task = asyncio.get_running_loop().create_task(self._shake())
            except NoHello:
                self.end()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        self._leave()
        if self._tls is not None:
            asyncio.get_running_loop().call_soon(self._end_tls)

    def make_way(self) -> None:
        """Close, as there is no room (``threadfold.gateway.connections``)."""
        self._counted = False
        self.end()

    def end(self) -> None:
        """Close, and do nothing more of the handshake."""
        self._queue.remove(self)
        self._plain.abort()

    def step(self) -> None:
        """Go on with what the client has sent: it is this handshake's turn."""
        assert self._tls is not None
        self._steps += 1
        piece, self._came = self._came[:STEP], self._came[STEP:]
        _give(self._tls, piece)
        if self._counted:
            self._connections.goes_on(self)
        if self._came:
            self._queue.add(self)
        if len(self._came) <= UNREAD and not self._plain.is_closing():
            self._plain.resume_reading()

    def _end_tls(self) -> None:
        """Let nothing remain of a handshake whose client has left: its timer would keep it for as
        long as a handshake may take.
        """
        assert self._tls is not None
        self._tls.eof_received()  # ends the timer
        self._tls.connection_lost(None)  # ends the task
        self._memory.ended()

    async def _shake(self) -> None:
        if self._lost:
            return
        loop = asyncio.get_running_loop()
        early = _Early()
        starting = loop.create_task(
            loop.start_tls(
                self._plain,
                early,
                self._certificate.context,
                server_side=True,
                ssl_handshake_timeout=SECONDS,
            )
        )
        try:
            await asyncio.sleep(0)
            # By now the transport has the TLS protocol; its connection_made comes next.
            tls = self._plain.get_protocol()
            self._plain.set_protocol(self)
            self._tls = cast("asyncio.BufferedProtocol", tls)
            loop.call_soon(self._end_tls if self._lost else self._await_turn)
            transport = await starting
        except OSError:  # no TLS, or its client left; ssl.SSLError is one
            self._plain.abort()
        else:
            if transport is not None and not self._lost:
                self._go_on(transport, early)
        finally:
            starting.cancel()
            del starting  # its error refers to this frame, which would refer to it

    def _await_turn(self) -> None:
        if self._came and not self._plain.is_closing():
            self._queue.add(self)

    def _go_on(self, transport: asyncio.Transport, early: _Early) -> None:
        self._leave()
        transport.set_write_buffer_limits(high=UNSENT)
        protocol = self._make()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        assert self._tls is not None
        arrivals = protocol.behind_tls(self._plain, partial(_give, self._tls))
        after = _Decrypting(self._tls, arrivals, self._memory)
        self._plain.set_protocol(after)
        early.hand_on(protocol)
        if self._came:
            after.data_received(self._came)

    def _leave(self) -> None:
        self._queue.remove(self)
        if self._late is not None:
            self._late.cancel()
        if self._counted:
            self._counted = False
            self._connections.remove(self)


class _Decrypting(Receiving):
    """A connection after its handshake. TLS gets the bytes in turns: records without any request
    cost time, too.
    """

    def __init__(
        self, tls: asyncio.BufferedProtocol, arrivals: Arrivals, memory: ConnectionMemory
    ) -> None:
        self._tls = tls
        self._arrivals = arrivals
        self._memory = memory

    def may_get_much(self) -> bool:
        return self._arrivals.keyed()

    def pause_writing(self) -> None:
        self._tls.pause_writing()

    def resume_writing(self) -> None:
        self._tls.resume_writing()

    def data_received(self, data: bytes) -> None:
        self._arrivals.add(data)

    def eof_received(self) -> bool | None:
        self._arrivals.now()
        return self._tls.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._arrivals.end()
        self._tls.connection_lost(error)
        self._memory.ended()


def _give(tls: asyncio.BufferedProtocol, came: bytes | memoryview) -> None:
    memoryview(tls.get_buffer(len(came)))[: len(came)] = came
    tls.buffer_updated(len(came))


class _Early(asyncio.Protocol):
    """Keeps what comes with the end of a handshake until there is a protocol for it."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._ended = False

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)

    def eof_received(self) -> None:
        self._ended = True

    def hand_on(self, protocol: asyncio.Protocol) -> None:
        """Give it to the protocol."""
        if self._pieces:
            protocol.data_received(b"".join(self._pieces))
        if self._ended:
            protocol.eof_received()


def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report what failed in an event loop, but not that a client left while it was written to:
    uvloop's TLS takes that for an error.
    """
    if _LEFT not in str(context.get("exception")):
        loop.default_exception_handler(context)


def after_handshake(
    protocol: Callable[..., Answering], connections: Connections, certificate: Certificate
) -> Callable[..., Handshake]:
    """What a server makes of each connection in place of ``protocol``."""
    queue, memory = HandshakeQueue(), ConnectionMemory()

    def made(**arguments: Any) -> Handshake:
        return Handshake(connections, queue, certificate, memory, lambda: protocol(**arguments))

    return made
