"""Ports for tests."""

from __future__ import annotations

import socket


def closed_port() -> int:
    """A loopback port on which nothing listens (just now: the system does not hand it out again at once)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
