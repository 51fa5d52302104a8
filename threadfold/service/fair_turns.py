"""The order in which tenants that wait for room get it: who will have had least goes first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class _Turn:
    """``had`` is what its tenant had before it."""

    had: float
    amount: int
    given: asyncio.Future[None]


class FairTurns:
    """Turns of tenants, one of each at a time. The next turn is that of the tenant that will have
    had least with it (fair queueing). What a tenant had counts while anybody waits. Who comes later
    counts as having had as much as the one whose turn came last. For one event loop.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, _Turn] = {}
        self._had: dict[str, float] = {}
        self._last = 0.0
        """What the tenant whose turn came last had before."""

    def __len__(self) -> int:
        """How many wait, or have not left yet."""
        return len(self._waiting)

    def note(self, tenant: str, amount: int) -> None:
        """A tenant has had so much, in its turn or beside all turns."""
        if self._waiting:
            self._had[tenant] = self._now(tenant) + amount

    def add(self, tenant: str, amount: int) -> asyncio.Future[None]:
        """Let a tenant wait for so much. The result comes with its turn; :meth:`leave` after."""
        if not self._waiting:
            self._had.clear()
            self._last = 0.0
        given = asyncio.get_running_loop().create_future()
        self._waiting[tenant] = _Turn(self._now(tenant), amount, given)
        return given

    def leave(self, tenant: str) -> None:
        """Let a tenant wait no longer."""
        del self._waiting[tenant]

    def give(self, take: Callable[[str, int], bool]) -> list[str]:
        """Give all turns for which ``take``, called with the tenant and how much, returns True.
        Returns the tenants that still wait.
        """
        left = []
        waiting = sorted(self._waiting.items(), key=lambda one: one[1].had + one[1].amount)
        for tenant, turn in waiting:
            if turn.given.done():
                continue
            if take(tenant, turn.amount):
                self._last = max(self._last, turn.had)
                turn.given.set_result(None)
            else:
                left.append(tenant)
        return left

    def _now(self, tenant: str) -> float:
        return max(self._had.get(tenant, 0.0), self._last)
