"""Open connections: how many a server holds, and which one makes way for a new one.

The first to make way are connections that asked last for what needs no key, such as ``/readyz``,
even while they are answered; then those that wait for a request, or for a refusal that is held
back: first those that have shown no valid key, while they are no fewer than those that have, so
that new clients get to show one. Of each it is the one that waits longest of the address that has
most of them; of those with a key, of the tenant that has most; of all, where nobody has more than a
few. Another whose request is being answered never does.

So a valid request finds room however many connections without a key are open, whether they send
nothing, send it slowly, or ask on and on; and a client with a key keeps its connection between two
requests.
"""

from __future__ import annotations

import ipaddress
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from starlette.types import Scope

from threadfold.gateway.arrivals import ReadingTurns
from threadfold.gateway.loop_turns import OnLeft
from threadfold.gateway.who_has_most import WhoHasMost

RESERVED = 256
"""File descriptors that are not for connections: Kafka, Redis, files, and answers that say why."""
TELL_KEYED = "threadfold.tell_keyed"
"""The key of an ASGI scope with the function that tells the server whose valid key the request has.
"""
ON_LEFT = "threadfold.on_left"
"""The key of an ASGI scope with the function that is given what to call when the client leaves. A
later call takes the place of an earlier one.
"""
DESCRIPTORS = 65_536
"""File descriptors that a gateway asks the system for, at most."""
LEAST = 64
ADDRESS_SHARE = 2
"""One address may hold one part in so many of the connections. It is large because a proxy in
front of the gateway is one address.
"""
MAX_WAITING = 32
MANY_WAITING = 2_048
"""Requests of one connection that may wait for the answers to those before them; and of all, from
which on one may of a connection that has shown no valid key: each takes a few KiB.
"""
LARGE_HEAD, LARGE_HEADS = 8 << 10, 1_024
"""Bytes of a large head, and connections without a key that may have one: what is read of it takes
twice its bytes, until it is answered.
"""
FEW, FEW_OF = 8, 64
"""Connections, but no more than one part in so many of all, that anybody may have before those with
fewer are preferred: clients open several at once.
"""
SHOWN_FOR, MOST_SHOWN = 600.0, 50_000
"""For how many seconds an address counts as one that has shown a valid key, and of how many
addresses, the latest ones, that is known.
"""
PREFIX = 64
"""Bits of an IPv6 address by which connections are counted: one customer has all of the rest."""


class Connection(Protocol):
    """What is counted here."""

    address: str

    def make_way(self) -> None:
        """Close, as there is no room."""


class _InTurn:
    """Connections that may make way, by whom they are of (an address, or a tenant), each one's in
    the order in which they came.

    Args:
        few: how many anybody may have before others are preferred.
    """

    def __init__(self, few: int) -> None:
        self._few = few
        self._of: dict[str, OrderedDict[Connection, None]] = {}
        self._whose: dict[Connection, str] = {}
        self._counts = WhoHasMost()

    def __len__(self) -> int:
        return len(self._whose)

    def add(self, connection: Connection, whose: str) -> None:
        """Put a connection at the end; one that is there as this one's keeps its place."""
        if self._whose.get(connection) == whose:
            return
        self.discard(connection)
        self._whose[connection] = whose
        mine = self._of.setdefault(whose, OrderedDict())
        mine[connection] = None
        self._counts.count(whose, len(mine) - 1, len(mine))

    def discard(self, connection: Connection) -> None:
        """Take a connection out, if it is there."""
        whose = self._whose.pop(connection, None)
        if whose is not None:
            mine = self._of[whose]
            del mine[connection]
            self._counts.count(whose, len(mine) + 1, len(mine))
            if not mine:
                del self._of[whose]

    def of(self, whose: str) -> int:
        """How many somebody has."""
        return len(self._of.get(whose, ()))

    def first(self, whose: str | None) -> Connection | None:
        """The first one that somebody has; None: of who has most, of all if nobody has many."""
        if whose is None and self._counts.most <= self._few:
            return next(iter(self._whose), None)
        if whose is None:
            whose = self._counts.first()
        return next(iter(self._of.get(whose, ())), None)


_NONE = _InTurn(0)


class Connections:
    """The connections of one server.

    Args:
        most: how many there may be.
        most_of_address: how many one address may hold; 0: ``most / ADDRESS_SHARE``.
    """

    def __init__(self, most: int, most_of_address: int = 0) -> None:
        self.most = most
        self.most_of_address = most_of_address or max(1, most // ADDRESS_SHARE)
        self.reading = ReadingTurns()
        self.explaining = 0
        """Connections that are not counted, and are open until they were answered why."""
        self.requests_waiting = 0
        """Requests that wait for the answers to those before them on their connection."""
        self._count: dict[str, int] = {}
        self._total = 0
        few = self._few = min(FEW, most // FEW_OF)
        self._keyless, self._new, self._large = _InTurn(few), _InTurn(few), _InTurn(few)
        """Each by address."""
        self._keyed, self._of_address = _InTurn(few), dict[str, _InTurn]()
        """Those with a key by tenant: all, and the same ones of each address."""
        self._shown: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def __len__(self) -> int:
        return self._total

    def add(self, connection: Connection) -> bool:
        """Count a new connection, which waits for its first request. Another makes way for it if
        there are too many.

        Returns False, and does not count it, when none can.
        """
        full_address = self._count.get(connection.address, 0) >= self.most_of_address
        if full_address or self._total >= self.most:
            victim = self._victim(connection.address if full_address else None)
            if victim is None:
                return False
            self.remove(victim)
            victim.make_way()
        self._total += 1
        self._count[connection.address] = self._count.get(connection.address, 0) + 1
        self.waits(connection)
        return True

    def _victim(self, address: str | None) -> Connection | None:
        """Which one makes way: of an address, or None: of all."""
        if (victim := self._keyless.first(address)) is not None:
            return victim
        if address is None:
            keyed, new = self._keyed, len(self._new)
        else:
            keyed, new = self._of_address.get(address, _NONE), self._new.of(address)
        # Both share what no busy one holds: a part of all places would be all that is left.
        if new >= len(keyed):
            return self._new.first(address)
        return keyed.first(None)

    def shows_key(self, address: str, whose: str) -> None:
        """A client of the address has shown a valid key or token: of a tenant, or of its user."""
        self._shown[address] = time.monotonic(), whose
        self._shown.move_to_end(address)
        if len(self._shown) > MOST_SHOWN:
            self._shown.popitem(last=False)

    def key_shown(self, address: str) -> str:
        """Whose valid key or token a client of the address has shown lately, the last one; empty:
        none.
        """
        at, whose = self._shown.get(address, (0.0, ""))
        return whose if time.monotonic() - at < SHOWN_FOR else ""

    def may_explain(self) -> bool:
        """Whether there is a descriptor left for a connection that is not counted."""
        return self.explaining < RESERVED // 2

    def may_linger(self) -> bool:
        """Whether one that makes way while it waits for its refusal may stay open for a moment."""
        return self.explaining < RESERVED // 4

    def may_wait(self, *, keyed: bool) -> int:
        """How many requests of one connection may wait for the answers to those before them.

        Args: ``keyed``: it has shown a valid key.
        """
        return MAX_WAITING if keyed or self.requests_waiting < MANY_WAITING else 1

    def waits(self, connection: Connection, tenant: str | None = None) -> None:
        """From now on the connection waits for a request: it may make way.

        Args: ``tenant``: whose valid key its last one had; None: it had none.
        """
        self._keyless.discard(connection)
        if tenant is None:
            self._has_no_key(connection)
            self._new.add(connection, connection.address)
        else:
            self._new.discard(connection)
            self._keyed.add(connection, tenant)
            mine = self._of_address.setdefault(connection.address, _InTurn(self._few))
            mine.add(connection, tenant)

    def goes_on(self, connection: Connection) -> None:
        """A connection that waits with those without a key has gone on: it is the last of them."""
        self._new.discard(connection)
        self._new.add(connection, connection.address)

    def _has_no_key(self, connection: Connection) -> None:
        self._keyed.discard(connection)
        if (mine := self._of_address.get(connection.address)) is not None:
            mine.discard(connection)

    def needs_no_key(self, connection: Connection) -> None:
        """From now on the connection is one that asks for what needs no key: it may make way before
        those that wait.
        """
        self._new.discard(connection)
        self._has_no_key(connection)
        self._keyless.add(connection, connection.address)

    def has_large_head(self, connection: Connection) -> None:
        """From now on a large head of the connection is in memory, and no key was shown. Of too
        many, the first of the address with most makes way.
        """
        self._large.add(connection, connection.address)
        victim = self._large.first(None) if len(self._large) > LARGE_HEADS else None
        if victim is not None:
            self.remove(victim)
            victim.make_way()

    def has_no_large_head(self, connection: Connection) -> None:
        """From now on it has none, or it has shown a key."""
        self._large.discard(connection)

    def is_answered(self, connection: Connection) -> None:
        """From now on a request of the connection is being answered: it makes no way."""
        self._keyless.discard(connection)
        self._new.discard(connection)
        self._has_no_key(connection)

    def remove(self, connection: Connection) -> None:
        """Count a connection no more that :meth:`add` has counted."""
        self.is_answered(connection)
        self._large.discard(connection)
        self._total -= 1
        left = self._count[connection.address] - 1
        if left:
            self._count[connection.address] = left
        else:
            del self._count[connection.address]
            self._of_address.pop(connection.address, None)


def address_of(host: str) -> str:
    """The address by which a client's connections are counted: of IPv6 its network of ``PREFIX``
    bits.
    """
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:  # what another server calls its client
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address), PREFIX), strict=False))


def client_of(scope: Scope) -> str:
    """The address by which a request's connection is counted; empty where it has none."""
    client = scope.get("client")
    return address_of(client[0]) if client else ""


def tell_keyed(
    scope: Scope, tenant: str | None, user: str | None = None, *, refused: bool = False
) -> None:
    """Tell the server whose valid key a request has, None: none; without that it may have one.

    Args:
        user: the end user whose token it is.
        refused: it waits for its refusal only.
    """
    tell: Callable[[str | None, str | None, bool], None] | None = scope.get(TELL_KEYED)
    if tell is not None:
        tell(tenant, user, refused)


def on_left(scope: Scope, call: Callable[[], bool]) -> None:
    """Have something called when a request's client leaves before it is answered, or now if it has
    left; ``call`` returns whether somebody waited.
    """
    tell: OnLeft | None = scope.get(ON_LEFT)
    if tell is not None:
        tell(call)


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
