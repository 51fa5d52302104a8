"""Turns of tenants whose requests are worked on: little of it begins in each step of the event
loop. Hundreds of cheap requests that come at once would hold up all others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

from streams.runtime.keyed_limit import KeyedLimit
from threadfold.gateway.loop_turns import Turns

Answer = TypeVar("Answer")
WORK_SECONDS = 0.003
"""So much work on requests begins in one step."""
FIRST_GUESS = 0.0005
"""Seconds that a request is guessed to take of the event loop until the first was worked on."""
FADES = 0.95
"""After each request that takes less, so much is left of the guess."""


class WorkTurns:
    """The turns of one event loop. A request counts by what those before it took, until it takes
    more itself. One that has taken as much as a step has waits for its turn again each time it goes
    on: many that wait for the same would all go on in one step. Of those of one tenant one goes on
    at a time, and leaves others as much time as it took.
    """

    def __init__(self, most: float = WORK_SECONDS) -> None:
        self._turns = Turns(most)
        self._guess = FIRST_GUESS
        self._long = KeyedLimit(1)

    async def work(self, tenant: str, begin: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        """What the coroutine of ``begin`` returns, which begins when it is the tenant's turn. No
        ``tenant``: it is a part of a request that has a turn.
        """
        took, counted, last = 0.0, min(self._guess, self._turns.most), 0.0

        def count(seconds: float) -> None:
            nonlocal took, counted, last
            took, last = took + seconds, seconds
            if took > counted:
                self._turns.charge(took - counted)
                counted = took
                self._guess = max(self._guess, took)

        async def go_on() -> None:
            nonlocal counted
            if took >= self._turns.most and tenant:
                async with self._long.of(tenant) as turn:
                    turn.rest = last
                await self._turns.take(tenant, amount=self._turns.most)
                counted += self._turns.most

        await self._turns.take(tenant, amount=counted)
        try:
            return await timed(begin(), count, go_on)
        finally:
            self._turns.charge(took - counted)
            self._guess = max(took, FADES * self._guess)


@coroutine
def timed(
    work: Coroutine[Any, Any, Answer],
    count: Callable[[float], None],
    go_on: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> Generator[Any, Any, Answer]:
    """Do the work. ``count`` is given the seconds that each part of it holds the event loop;
    ``go_on`` is awaited before each part but the first.
    """
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
            if go_on is not None:
                yield from go_on().__await__()
        except BaseException as thrown:  # noqa: BLE001 (it is the work's to handle)
            error = thrown
