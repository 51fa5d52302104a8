"""How much the system hands over at once of what has come on a connection. What waits to be read
stays with the system, which holds it for the sender; and a client that has left is noticed soon.
"""

from __future__ import annotations

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadfold.gateway.counted import CountedProtocol

MOST = 256 << 10
LITTLE = 4 << 10
"""Bytes that are received at once, and of those who have shown no valid key: there may be tens of
thousands of connections.
"""


class _Buffers(threading.local):
    """The buffer of all connections of a thread: what comes is taken out before anything else is
    received in its event loop.
    """

    def __init__(self) -> None:
        self.mine = memoryview(bytearray(MOST))


_BUFFERS = _Buffers()


class Receiving(asyncio.BufferedProtocol):
    """A protocol that is handed what comes in parts."""

    def may_get_much(self) -> bool:
        """Whether to receive much at once."""
        return False

    @abstractmethod
    def data_received(self, data: bytes) -> None:
        """Some bytes have come."""

    def get_buffer(self, sizehint: int) -> memoryview:
        mine = _BUFFERS.mine
        return mine if self.may_get_much() else mine[:LITTLE]

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(_BUFFERS.mine[:nbytes]))


class Received(Receiving):
    """A connection whose bytes another protocol reads."""

    def __init__(self, protocol: CountedProtocol) -> None:
        self._protocol = protocol

    def may_get_much(self) -> bool:
        return self._protocol.has_key()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._protocol.connection_made(transport)  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()  # type: ignore[func-returns-value]

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()


def received(protocol: Callable[..., CountedProtocol]) -> Callable[..., Received]:
    """What a server makes of each connection, for ``protocol`` to read."""
    return lambda **arguments: Received(protocol(**arguments))
