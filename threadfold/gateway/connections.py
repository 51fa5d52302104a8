"""Open connections: how many a server holds, and which one makes way for a new one.

A connection that waits for a request makes way, the longest first; one whose request is being
answered never does. So a valid request finds room however many connections are open that send
nothing, or send it slowly.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterable
from typing import Protocol

RESERVED = 256
"""File descriptors that are not for connections: Kafka, Redis, files, and answers that say why."""
DESCRIPTORS = 65_536
"""File descriptors that a gateway asks the system for, at most."""
LEAST = 64
ADDRESS_SHARE = 2
"""One address may hold one part in so many of the connections. It is large because a proxy in
front of the gateway is one address.
"""


class Connection(Protocol):
    """What is counted here."""

    address: str

    def make_way(self) -> None:
        """Close, as there is no room."""


class Connections:
    """The connections of one server.

    Args:
        most: how many there may be.
        most_of_address: how many one address may hold; 0: ``most / ADDRESS_SHARE``.
    """

    def __init__(self, most: int, most_of_address: int = 0) -> None:
        self.most = most
        self.most_of_address = most_of_address or max(1, most // ADDRESS_SHARE)
        self.explaining = 0
        """Connections that are not counted, and are open until they were answered why."""
        self._count: dict[str, int] = {}
        self._total = 0
        self._waiting: OrderedDict[Connection, None] = OrderedDict()
        self._waiting_of: dict[str, OrderedDict[Connection, None]] = {}

    def __len__(self) -> int:
        return self._total

    def add(self, connection: Connection) -> bool:
        """Count a new connection, which waits for its first request. Another makes way for it if
        there are too many.

        Returns False, and does not count it, when none can.
        """
        victims: Iterable[Connection] | None = None
        if self._count.get(connection.address, 0) >= self.most_of_address:
            victims = self._waiting_of.get(connection.address, ())
        elif self._total >= self.most:
            victims = self._waiting
        if victims is not None:
            victim = next(iter(victims), None)
            if victim is None:
                return False
            self.remove(victim)
            victim.make_way()
        self._total += 1
        self._count[connection.address] = self._count.get(connection.address, 0) + 1
        self.waits(connection)
        return True

    def may_explain(self) -> bool:
        """Whether there is a descriptor left for a connection that is not counted."""
        return self.explaining < RESERVED // 2

    def waits(self, connection: Connection) -> None:
        """From now on the connection waits for a request: it may make way."""
        self._waiting[connection] = None
        self._waiting_of.setdefault(connection.address, OrderedDict())[connection] = None

    def is_answered(self, connection: Connection) -> None:
        """From now on a request of the connection is being answered: it makes no way."""
        if connection in self._waiting:
            del self._waiting[connection]
            of_address = self._waiting_of[connection.address]
            del of_address[connection]
            if not of_address:
                del self._waiting_of[connection.address]

    def remove(self, connection: Connection) -> None:
        """Count a connection no more that :meth:`add` has counted."""
        self.is_answered(connection)
        self._total -= 1
        left = self._count[connection.address] - 1
        if left:
            self._count[connection.address] = left
        else:
            del self._count[connection.address]


def descriptors() -> int | None:
    """The file descriptors that this process may have open; None where there is no such limit."""
    if sys.platform == "win32":
        return None
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def most_descriptors() -> int | None:
    """To how many this process may raise its limit, :data:`DESCRIPTORS` at most if it is lower
    now; None where there is no such limit.
    """
    now = descriptors()
    if now is None or now >= DESCRIPTORS:
        return now
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)


def raise_descriptors() -> int | None:
    """Raise this process' limit of file descriptors to what it may; returns the limit as
    :func:`descriptors` does.
    """
    now, most = descriptors(), most_descriptors()
    if now is not None and most is not None and most > now:
        import resource

        resource.setrlimit(
            resource.RLIMIT_NOFILE, (most, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        )
    return descriptors()


def most_connections(limit: int | None) -> int:
    """The connections that a process with a limit of file descriptors may hold."""
    return DESCRIPTORS if limit is None else max(LEAST, limit - RESERVED)
