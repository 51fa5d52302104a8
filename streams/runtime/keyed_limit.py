"""A limit for each key: one caller's work waits for its own, never for others'. Work on many bytes
is done in a thread, and the caller's next work waits for a while after it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from projections.errors import Overloaded

LARGE = 256 << 10
"""Bytes from which on work on them is not done in the event loop."""
SHARE = 4
"""A key's work on many bytes has one of so many parts of a processor's time at most."""
Made = TypeVar("Made")


@dataclass(slots=True)
class _Place:
    semaphore: asyncio.Semaphore
    users: int = 0
    waiting: int = 0


@dataclass(slots=True)
class Turn:
    """One's place, of ``places`` that its key has. ``rest``: seconds that it stays taken after the
    work, in which others' work is done.
    """

    places: int = 1
    rest: float = 0.0

    async def work(self, size: int, make: Callable[[], Made]) -> Made:
        """What ``make`` returns, which works on ``size`` bytes. If they are many it runs in a
        thread: others' requests go on meanwhile. Then its place rests: a thread takes Python's lock
        from others.
        """
        if size <= LARGE:
            return make()
        began = time.perf_counter()
        made = await asyncio.to_thread(make)
        self.rest += (SHARE * self.places - 1) * (time.perf_counter() - began)
        return made


class KeyedLimit:
    """At most ``most`` at a time of each key; the others of that key wait in order, for
    ``patience`` seconds. Their sizes are together ``waiting`` at most.
    """

    def __init__(
        self, most: int, patience: float | None = None, waiting: int | None = None
    ) -> None:
        self._most = most
        self._patience = patience
        self._waiting = waiting
        self._places: dict[str, _Place] = {}

    def __len__(self) -> int:
        """How many keys are in use."""
        return len(self._places)

    @asynccontextmanager
    async def of(self, key: str, size: int = 1) -> AsyncIterator[Turn]:
        """Hold one of the key's places; raises :class:`Overloaded` if none came in time, or if too
        much waits. ``size``: what its work needs while it waits.
        """
        place, turn = self._places.get(key), Turn(self._most)
        if place is None:
            place = self._places[key] = _Place(asyncio.Semaphore(self._most))
        place.users += 1
        try:
            await self._enter(key, place, size)
        except BaseException:
            self._leave(key, place)
            raise
        try:
            yield turn
        finally:
            if turn.rest > 0:
                asyncio.get_running_loop().call_later(turn.rest, self._release, key, place)
            else:
                self._release(key, place)

    def _release(self, key: str, place: _Place) -> None:
        place.semaphore.release()
        self._leave(key, place)

    def _leave(self, key: str, place: _Place) -> None:
        place.users -= 1
        if not place.users:
            del self._places[key]

    async def _enter(self, key: str, place: _Place, size: int) -> None:
        full = self._waiting is not None and place.waiting + size > self._waiting
        if full and place.semaphore.locked():
            raise Overloaded(f"{place.users - 1} others of {key} are under way: try again shortly")
        place.waiting += size
        try:
            async with asyncio.timeout(self._patience):
                await place.semaphore.acquire()
        except TimeoutError:
            raise Overloaded(
                f"{place.users - 1} others of {key} are under way, and no turn came within"
                f" {self._patience:g} s: try again shortly"
            ) from None
        finally:
            place.waiting -= size
