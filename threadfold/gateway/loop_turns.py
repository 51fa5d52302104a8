"""Turns of clients: little of their work is done in each step of the event loop, whatever comes at
once. They could hold up all others with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from threadfold.gateway.address_queue import AddressQueue

OnLeft = Callable[[Callable[[], bool]], None]
"""Is given what to call when a request's client leaves. That returns whether somebody waited."""
IN_A_STEP = 4
"""Requests without a key, or their answers, that begin in one step: less than a millisecond of
work.
"""

KEYLESS_REST = 2.0
"""After a step in which something was done for those without a key, for how many times as long
nothing is: a request with a key takes several steps, and few of them wait for such work.
"""
LONGEST_REST = 0.05
"""Seconds of such a rest at most."""
MOST_OWED = 5
"""Steps that make up for what was done beyond turns: all others wait for them, too."""


class Turns:
    """The turns of one event loop. Addresses take turns.

    Args:
        most: how much is done in one step, in the unit of what work returns.
        rare_first: as :class:`AddressQueue` says.
        rest: for how many times as long as a step took, in which something was done, nothing is.
    """

    def __init__(
        self, most: float = IN_A_STEP, *, rare_first: bool = False, rest: float = 0.0
    ) -> None:
        self.most = most
        self._rest = rest
        self._begun = 0.0
        self._allowed = most
        """What the step that began then could do."""
        self._left, self._owed = most, 0.0
        self._waiting = AddressQueue[Callable[[], float]](rare_first=rare_first)
        self._of_group: dict[str, AddressQueue[Callable[[], float]]] = {}
        self._planned = self._works = False

    def run(self, address: str, work: Callable[[], float]) -> None:
        """Do some work of this address, now or when its turn comes. ``work`` returns how much it
        was. It may call this again, for what is left of it.
        """
        self._plan()
        self._waiting.add(address, work)
        self._work()

    async def take(
        self,
        address: str,
        on_left: OnLeft | None = None,
        amount: float = 1,
        group: str | None = None,
    ) -> bool:
        """Wait for a turn of this address. False: its client has left.

        Args:
            on_left: is given what to call when it leaves; None: it waits all the same.
            amount: how much the turn counts.
            group: what takes turns in place of its addresses, which take turns for its own.
        """
        self._plan()
        if self._left > 0 and not self._waiting:
            self._left -= amount
            return True
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def begin() -> float:
            return amount if end_wait(turn, True) else 0

        if group is None:
            self.run(address, begin)
        else:
            self.run(group, self._next_of(group, address, begin))
        if on_left is not None and not turn.done():
            on_left(partial(end_wait, turn, False))
        return await turn

    def _next_of(self, group: str, address: str, begin: Callable[[], float]) -> Callable[[], float]:
        """Let this wait in a group; returns the work of one turn of the group."""
        waiting = self._of_group.setdefault(group, AddressQueue())
        waiting.add(address, begin)

        def begin_next() -> float:
            one = waiting.next()
            if not waiting:
                del self._of_group[group]
            return one()

        return begin_next

    def charge(self, amount: float) -> None:
        """Count what was done beyond what a turn counted: so much less is done in later steps, but
        not in more than :data:`MOST_OWED`.
        """
        self._owed = min(max(0.0, self._owed + amount), MOST_OWED * self.most)

    def _plan(self) -> None:
        if not self._planned:
            self._planned, self._begun = True, time.perf_counter()
            asyncio.get_running_loop().call_soon(self._end_step)

    def _end_step(self) -> None:
        if self._rest and self._left < self._allowed:
            took = time.perf_counter() - self._begun
            self._left = 0.0
            rest = min(self._rest * took, LONGEST_REST)
            asyncio.get_running_loop().call_later(rest, self._step)
        else:
            self._step()

    def _step(self) -> None:
        self._planned, self._left = False, self.most - self._owed
        self._allowed = self._left
        self._owed = max(0.0, self._owed - self.most)
        if self._waiting:
            self._plan()
        self._work()

    def _work(self) -> None:
        if self._works:
            return
        self._works = True
        try:
            while self._left > 0 and self._waiting:
                self._left -= self._waiting.next()()
        finally:
            self._works = False


def end_wait(waits: asyncio.Future[bool], result: bool) -> bool:
    """End a wait with this result. False: it has ended already."""
    if waits.done():
        return False
    waits.set_result(result)
    return True
