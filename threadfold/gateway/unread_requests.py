"""Requests that lie in a socket and were not read yet."""

from __future__ import annotations

import asyncio
import sys

if sys.platform != "win32":
    import fcntl
    import termios


def has_unread(transport: asyncio.BaseTransport) -> bool:
    """Whether something has come on a connection that the event loop has not read yet; False where
    the system does not tell.
    """
    connected = transport.get_extra_info("socket")
    if connected is None or sys.platform == "win32":
        return False
    try:
        found = fcntl.ioctl(connected.fileno(), termios.FIONREAD, bytes(4))
    except OSError:
        return False
    return any(found)
