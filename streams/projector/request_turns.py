"""Which of a partition's due windows are asked for next: of each tenant only so many requests stand
on their topic, and its other windows wait here for their turns.

Compactors take requests from their topic one by one, whoever's they are. Without a bound a tenant
that makes 20,000 windows due in seconds would have all others wait until these are taken.

In memory only: who takes over a partition counts from zero. Windows stay due in the store whatever
becomes of their turns here, and come up again from there.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from projections.names import Key
from streams.compaction.requests import CompactionRequest
from streams.log.group_offsets import Extent

MOST_SENT, LEAST_SENT = 128, 4
"""Requests of a tenant that wait on their topic, of all partitions of a process, and of each
partition at least. Taking one takes some 2 ms, on a busy machine 20: others wait for 0.3 to 3 s for
those. It keeps the processors busy, and an endpoint that takes 64 calls at once.
"""
MOST_WAITING = 5_000
"""Windows of a tenant whose order is remembered, in a partition. Those beyond join when they come
up from the store and there is room.
"""


def most_of_each(partitions: int, calls: int = 0) -> int:
    """How many requests of a tenant may wait on each partition of a process that has so many, where
    an endpoint takes so many calls at once.
    """
    return max(LEAST_SENT, max(MOST_SENT, 2 * calls) // max(1, partitions))


class _Sent(NamedTuple):
    key: Key
    offset: int
    until: float


class RequestTurns:
    """One partition's requests that may wait on their topic, and the windows that wait for turns,
    by tenant.
    """

    def __init__(self, longest: float, most: Callable[[], int] = lambda: MOST_SENT) -> None:
        """Args:
        longest: seconds until a request counts no more, whatever became of it: compactors may
            be past it and say so late, as requests are acknowledged in their order.
        most: gives how many requests of a tenant may wait.
        """
        self._longest = longest
        self._most = most
        self._sent: dict[str, dict[str, _Sent]] = {}
        """By tenant and request id."""
        self._lines: dict[str, dict[Key, None]] = {}
        """By tenant, the one whose turn comes next first; of each the longest due first."""
        self.looked = 0.0
        """When it was last looked how far compactors are (``time.monotonic``)."""

    @property
    def full(self) -> bool:
        """Whether windows wait whose tenant has as many requests on the topic as it may."""
        return any(not self._room(tenant) for tenant in self._lines)

    def sent(self, requests: Sequence[CompactionRequest], offsets: Sequence[int]) -> None:
        """Requests went out, and stand at these offsets of their topic."""
        until = time.monotonic() + self._longest
        for request, offset in zip(requests, offsets, strict=True):
            key = Key(request.tenant, request.conversation)
            self._sent.setdefault(key.tenant, {})[request.request_id] = _Sent(key, offset, until)

    def accepted(self, summaries: Collection[str]) -> None:
        """Windows took these summaries, which have the ids of their requests."""
        if summaries:
            self._forget(lambda request_id, _: request_id in summaries)

    def passed(self, answered: Extent) -> None:
        """Compactors are so far. What stands beyond the end was on a topic that is no more."""
        now = time.monotonic()
        self._forget(
            lambda _, sent: sent.until <= now or not answered.done <= sent.offset < answered.end
        )

    def lost(self, keys: Collection[Key]) -> None:
        """What these conversations asked for does not come."""
        self._forget(lambda _, sent: sent.key in keys)

    def _forget(self, over: Callable[[str, _Sent], bool]) -> None:
        left = {
            tenant: {name: one for name, one in sent.items() if not over(name, one)}
            for tenant, sent in self._sent.items()
        }
        self._sent = {tenant: sent for tenant, sent in left.items() if sent}

    def waits(self, key: Key) -> bool:
        """Whether a conversation waits for its turn."""
        return key in self._lines.get(key.tenant, ())

    def wait(self, keys: Iterable[Key]) -> None:
        """Have conversations wait for their turns, behind those of their tenants that do."""
        for key in keys:
            line = self._lines.setdefault(key.tenant, {})
            if len(line) < MOST_WAITING:
                line.setdefault(key)

    def at_once(self, keys: Iterable[Key]) -> set[Key]:
        """Those of these conversations that need not wait: of their tenants nobody does, and there
        is room for their requests.
        """
        found: set[Key] = set()
        asked = Counter[str]()
        for key in keys:
            tenant = key.tenant
            if tenant not in self._lines and asked[tenant] < self._room(tenant):
                asked[tenant] += 1
                found.add(key)
        return found

    def next(self, most: int) -> list[Key]:
        """The conversations whose turn it is, so many at most; they wait no more. Tenants with room
        take turns.
        """
        found: list[Key] = []
        room = {tenant: self._room(tenant) for tenant in self._lines}
        while ready := [t for t in self._lines if room[t] > 0][: most - len(found)]:
            for tenant in ready:
                line = self._lines.pop(tenant)
                key = next(iter(line))
                del line[key]
                found.append(key)
                room[tenant] -= 1
                if line:
                    self._lines[tenant] = line
        return found

    def _room(self, tenant: str) -> int:
        return max(0, self._most() - len(self._sent.get(tenant, ())))
