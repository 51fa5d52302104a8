"""Clients that have left before their request has come whole. They cost a whole request each where
its head is taken at its word: whoever opens connections, sends half a body and leaves fills the
server's queue of new connections with them, and all other new clients wait behind them.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys

_TCP_INFO = getattr(socket, "TCP_INFO", None) if sys.platform == "linux" else None
_CLOSED, _SENDS_NO_MORE = 7, 8
"""The first byte of TCP_INFO, ``tcpi_state`` (tcp(7); the numbers are those of Linux'
``include/net/tcp_states.h``): reset, and ended by the client alone.
"""


def has_departed(transport: asyncio.BaseTransport, missing: int) -> bool:
    """Whether a client has left, so that nobody can be answered or what is missing will never come.

    Linux says so; elsewhere it is False.

    Args:
        missing: bytes of its request that were not received yet. They may wait in the system.
    """
    connection = transport.get_extra_info("socket")
    if _TCP_INFO is None or connection is None:
        return False
    try:
        state = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0]
        if state == _SENDS_NO_MORE:
            return _unread(connection.fileno()) < missing
    except (OSError, ValueError):  # not TCP, or closed by this side meanwhile
        return False
    return bool(state == _CLOSED)


def _unread(descriptor: int) -> int:
    """The bytes that the system holds for us."""
    import fcntl
    import termios

    found: int = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0]
    return found
