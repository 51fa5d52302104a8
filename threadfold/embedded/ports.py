"""Free TCP ports on loopback, chosen by the kernel."""

from __future__ import annotations

import socket
import sys

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


class ReservedPort:
    """A TCP port of 127.0.0.1 that is kept for a server that starts later, and starts again.

    ``port``: 0 takes any free one. On Linux the kernel gives it to no other connection until
    :meth:`release`: a socket is bound to it and does not listen, and a server that sets
    SO_REUSEADDR listens on it all the same. Elsewhere the two exclude each other, so the port is
    only checked.

    Raises OSError: something listens on the port, or it is not allowed.
    """

    def __init__(self, port: int = 0) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((HOST, port))
            self.number = int(self._socket.getsockname()[1])
        except BaseException:
            self.release()
            raise
        if sys.platform != "linux":
            self.release()

    def release(self) -> None:
        """Give the port back. It can be repeated."""
        self._socket.close()
