"""Ports for tests: closed ones, and some for servers that are started a moment later, and again on
the same port.
"""

from __future__ import annotations

import random
import socket

from threadfold.embedded.ports import HOST

RANGE = range(10_000, 32_000)
"""Below what kernels hand out by themselves: a connection of another test's cannot take one of
these in between.
"""
_random = random.SystemRandom()


def own_ports(count: int) -> list[int]:
    """Different ports on loopback that nothing uses at this moment; they are not reserved, but
    nobody gets them by chance.
    """
    found: list[int] = []
    while len(found) < count:
        port = _random.choice(RANGE)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            try:
                listener.bind((HOST, port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


def own_port() -> int:
    """One of :func:`own_ports`."""
    return own_ports(1)[0]


def closed_port() -> int:
    """A loopback port on which nothing listens (just now: the system does not hand it out again at
    once).
    """
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
