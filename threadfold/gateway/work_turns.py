"""Turns of tenants whose requests are worked on: little of it begins in each step of the event
loop. Hundreds of cheap requests that come at once would hold up all others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect

from threadfold.gateway.long_turns import LongTurns
from threadfold.gateway.loop_turns import OnLeft, Turns

Answer = TypeVar("Answer")
WORK_SECONDS = 0.001
"""So much work on requests begins in one step."""
FIRST_GUESS = 0.0005
"""Seconds that a request is guessed to take of the event loop until the first was worked on."""
FADES = 0.95
"""After each request that takes less, so much is left of the guess."""


class WorkTurns:
    """The turns of one event loop. A request counts by what those before it took, until it takes
    more itself.
    """

    def __init__(self, most: float = WORK_SECONDS) -> None:
        self._turns = Turns(most, rare_first=True)
        self._guess = FIRST_GUESS
        self._long = LongTurns()

    async def work(
        self,
        tenant: str,
        begin: Callable[[], Coroutine[Any, Any, Answer]],
        long: bool = False,
        on_left: OnLeft = lambda _: None,
    ) -> Answer:
        """What the coroutine of ``begin`` returns, which begins when it is the tenant's turn (none
        of a caller in this process).

        Args: ``on_left`` is given what to call when the client leaves.

        Raises:
            QuotaExceeded: it is ``long`` and would wait too long for its turn.
            ClientDisconnect: its client left before its turn; nothing of it was begun.
        """
        if tenant:
            self._long.note(tenant)
        end = await self._long.take(tenant, on_left) if tenant and long else None
        took, counted = 0.0, min(self._guess, self._turns.most)

        def count(seconds: float) -> None:
            nonlocal took, counted
            took += seconds
            if took > counted:
                self._turns.charge(took - counted)
                counted = took
                self._guess = max(self._guess, took)

        if not await self._turns.take(tenant, on_left, counted):
            raise ClientDisconnect
        try:
            return await timed(begin(), count)
        finally:
            if end is not None:
                end(took)
            self._turns.charge(took - counted)
            self._guess = max(took, FADES * self._guess)


@coroutine
def timed(
    work: Coroutine[Any, Any, Answer], count: Callable[[float], None]
) -> Generator[Any, Any, Answer]:
    """Do the work. ``count`` is given the seconds that each part of it holds the event loop."""
    error: BaseException | None = None
    while True:
        since = time.perf_counter()
        try:
            waits_for = work.send(None) if error is None else work.throw(error)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            error = None  # it refers to this frame
            count(time.perf_counter() - since)
        try:
            yield waits_for
        except BaseException as thrown:  # noqa: BLE001 (it is the work's to handle)
            error = thrown
        waits_for = None  # a future keeps its error, which refers to this frame
