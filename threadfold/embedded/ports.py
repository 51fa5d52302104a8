"""Free TCP ports on loopback, chosen by the kernel."""

from __future__ import annotations

import socket

HOST = "127.0.0.1"


def free_port() -> int:
    """Return a TCP port (1024-65535) on 127.0.0.1 that nothing listens on at this moment.

    It is not reserved: another process can take it before the caller binds it. A server started on
    it may have to be started again on another (the embedded servers do so).
    """
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return ``count`` different free ports, with the same caveat as :func:`free_port`."""
    listeners: list[socket.socket] = []
    try:
        for _ in range(count):
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listeners.append(listener)
            listener.bind((HOST, 0))
        return [int(listener.getsockname()[1]) for listener in listeners]
    finally:
        for listener in listeners:
            listener.close()
