"""The order in which tenants that wait for room get it: they take turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class _Turn:
    """``had`` is how many turns its tenant had before it."""

    had: int
    amount: int
    given: asyncio.Future[None]


class FairTurns:
    """Turns of tenants, one of each at a time. The next turn is that of the tenant that had fewest
    while anybody waited, and among equals of the one that wants least: so each waits for a round at
    most. Who comes later counts as having had as many as the one whose turn came last. For one
    event loop.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, _Turn] = {}
        self._had: dict[str, int] = {}
        self._last = 0
        """How many turns the tenant whose turn came last had had before."""

    def __len__(self) -> int:
        """How many wait, or have not left yet."""
        return len(self._waiting)

    def add(self, tenant: str, amount: int) -> asyncio.Future[None]:
        """Let a tenant wait for so much. The result comes with its turn; :meth:`leave` after."""
        if not self._waiting:
            self._had.clear()
            self._last = 0
        given = asyncio.get_running_loop().create_future()
        had = max(self._had.get(tenant, 0), self._last)
        self._waiting[tenant] = _Turn(had, amount, given)
        return given

    def leave(self, tenant: str) -> None:
        """Let a tenant wait no longer."""
        del self._waiting[tenant]

    def give(self, take: Callable[[str, int], bool]) -> list[str]:
        """Give all turns for which ``take``, called with the tenant and how much, returns True.
        Returns the tenants that still wait.
        """
        left = []
        waiting = sorted(self._waiting.items(), key=lambda one: (one[1].had, one[1].amount))
        for tenant, turn in waiting:
            if turn.given.done():
                continue
            if take(tenant, turn.amount):
                self._last = max(self._last, turn.had)
                self._had[tenant] = turn.had + 1
                turn.given.set_result(None)
            else:
                left.append(tenant)
        return left
