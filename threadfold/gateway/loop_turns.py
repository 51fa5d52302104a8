"""Turns of clients: little of their work is done in each step of the event loop, whatever comes at
once. They could hold up all others with it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable

IN_A_STEP = 4
"""Requests without a key, or their answers, that begin in one step: less than a millisecond of
work.
"""


class Turns:
    """The turns of one event loop. Addresses take turns.

    Args:
        most: how much is done in one step, in the unit of what work returns.
    """

    def __init__(self, most: float = IN_A_STEP) -> None:
        self.most = most
        self._left = most
        self._waiting: OrderedDict[str, deque[Callable[[], float]]] = OrderedDict()
        self._planned = self._works = False

    def run(self, address: str, work: Callable[[], float]) -> None:
        """Do some work of this address, now or when its turn comes. ``work`` returns how much it
        was. It may call this again, for what is left of it.
        """
        if not self._planned:
            self._planned = True
            asyncio.get_running_loop().call_soon(self._step)
        self._waiting.setdefault(address, deque()).append(work)
        self._work()

    async def take(self, address: str, on_left: Callable[[Callable[[], None]], None]) -> bool:
        """Wait for a turn of this address, which counts as 1. False: its client has left.

        Args: ``on_left`` is given what to call when it leaves.
        """
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def leave() -> None:
            if not turn.done():
                turn.set_result(False)

        def begin() -> float:
            if turn.done():
                return 0
            turn.set_result(True)
            return 1

        self.run(address, begin)
        if not turn.done():
            on_left(leave)
        return await turn

    def _step(self) -> None:
        self._planned, self._left = bool(self._waiting), self.most
        if self._planned:
            asyncio.get_running_loop().call_soon(self._step)
        self._work()

    def _work(self) -> None:
        if self._works:
            return
        self._works = True
        try:
            while self._left > 0 and self._waiting:
                address, mine = next(iter(self._waiting.items()))
                work = mine.popleft()
                self._waiting.move_to_end(address)
                if not mine:
                    del self._waiting[address]
                self._left -= work()
        finally:
            self._works = False
