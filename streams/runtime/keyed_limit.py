"""A limit for each key: one caller's work waits for its own, never for others'. Work on many bytes
is done in a thread, and the caller's next work waits for a while after it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from projections.errors import Overloaded

LARGE = 256 << 10
"""Bytes from which on work on them is not done in the event loop."""
SHARE = 4
"""A key's work on many bytes has one of so many parts of a processor's time at most."""
MOST_REST = 1.0
"""Seconds of rest for a read: it may have waited for Kafka, which costs others nothing."""
Made = TypeVar("Made")


@dataclass(slots=True)
class _Place:
    semaphore: asyncio.Semaphore
    users: int = 0
    waiting: int = 0


@dataclass(slots=True)
class Turn:
    """One's place, of ``places`` that its key has. ``rest``: seconds that it stays taken after the
    work, in which others' work is done. ``threads`` are what still works.
    """

    places: int = 1
    rest: float = 0.0
    threads: set[asyncio.Future[Any]] = field(default_factory=set)

    def worked(self, seconds: float) -> None:
        """A thread worked for so long: the place rests for it."""
        self.rest += (SHARE * self.places - 1) * seconds

    def read(self, seconds: float) -> None:
        """A read of many records took so long: the place rests as long."""
        self.rest += min(MOST_REST, seconds)

    @asynccontextmanager
    async def resting(self) -> AsyncIterator[None]:
        """Within many records are read: the place rests afterwards."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.read(time.monotonic() - began)

    async def work(self, size: int, make: Callable[[], Made]) -> Made:
        """What ``make`` returns, which works on ``size`` bytes; if they are many, :meth:`beside`
        others' requests.
        """
        return make() if size <= LARGE else await self.beside(make)

    async def beside(self, make: Callable[[], Made]) -> Made:
        """What ``make`` returns, which runs in a thread: others' requests go on meanwhile. Then its
        place rests: a thread takes Python's lock from others.

        A caller that is cancelled leaves at once. Its place stays taken until the thread has ended.
        """
        abandoned = False

        def run() -> Made:
            if abandoned:  # before a thread was free
                raise asyncio.CancelledError
            began = time.perf_counter()
            try:
                return make()
            finally:
                self.worked(time.perf_counter() - began)

        thread = asyncio.ensure_future(asyncio.to_thread(run))
        self.threads.add(thread)
        thread.add_done_callback(self.threads.discard)
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            abandoned = True
            raise


class _Scope:
    """The turns of one key that are one: the first takes the place, the scope's end gives it
    back.
    """

    def __init__(
        self, take: Callable[[int], AbstractAsyncContextManager[Turn]], outer: _Scope | None = None
    ) -> None:
        self._take = take
        self._outer = outer
        self._stack = AsyncExitStack()
        self._entering = asyncio.Lock()
        self._turn: Turn | None = None
        self.one_at_a_time = asyncio.Lock()
        self.ended = False

    async def turn(self, size: int) -> Turn:
        """The turn; the first call waits for it."""
        async with self._entering:
            if self._turn is not None:
                return self._turn
            turn = await self._stack.enter_async_context(self._take(size))
            self._turn = turn
            return turn

    @asynccontextmanager
    async def alone(self, size: int) -> AsyncIterator[Turn]:
        """The turn, for one of those within at a time."""
        async with self.one_at_a_time:
            yield await self.turn(size)

    async def leave(self) -> None:
        """Give the place back until it is needed again, unless others within hold it."""
        async with self._entering:
            self._turn = None
            await self._stack.aclose()
        if self._outer is not None and not self._outer.one_at_a_time.locked():
            await self._outer.leave()

    async def end(self) -> None:
        """Give the place back."""
        self.ended = True
        await self._stack.aclose()


_scopes: ContextVar[Mapping[tuple[KeyedLimit, str], _Scope]] = ContextVar(
    "scopes", default=MappingProxyType({})
)


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
    async def together(self, key: str) -> AsyncIterator[None]:
        """Within, all turns of the key are one turn. The first takes a place, which stays taken up
        to the end: what was read is in memory only while it has a place. Where nothing takes a
        turn, no place is taken.

        Those within one another are one, too, but for tasks: each task's is one after the other.
        """
        outer = self._around(key)
        if outer is None:
            scope = _Scope(lambda size: self._held(key, size))
        else:
            scope = _Scope(outer.alone, outer)
        token = _scopes.set({**_scopes.get(), (self, key): scope})
        try:
            yield
        finally:
            _scopes.reset(token)
            await scope.end()

    @asynccontextmanager
    async def of(self, key: str, size: int = 1) -> AsyncIterator[Turn]:
        """Hold one of the key's places, or that of :meth:`together`; raises :class:`Overloaded` if
        none came in time, or if too much waits. ``size``: what its work needs while it waits.
        """
        scope = self._around(key)
        if scope is not None:
            yield await scope.turn(size)
            return
        async with self._held(key, size) as turn:
            yield turn

    @asynccontextmanager
    async def apart(self, key: str) -> AsyncIterator[None]:
        """Within, the place of :meth:`together` is given back, because what is waited for may take
        long; at the end it is taken again. Raises as :meth:`of` does.
        """
        scope = self._around(key)
        if scope is not None:
            await scope.leave()
        yield
        if scope is not None:
            await scope.turn(1)

    def _around(self, key: str) -> _Scope | None:
        """What :meth:`together` began around the caller, and has not ended."""
        scope = _scopes.get().get((self, key))
        return None if scope is None or scope.ended else scope

    @asynccontextmanager
    async def _held(self, key: str, size: int) -> AsyncIterator[Turn]:
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
            self._give_back(key, place, turn)

    def _give_back(self, key: str, place: _Place, turn: Turn) -> None:
        """Give a place back, once the threads of its turn have ended, and after its rest."""
        if turn.threads:
            thread = next(iter(turn.threads))
            thread.add_done_callback(lambda _: self._give_back(key, place, turn))
        elif turn.rest > 0:
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
                f"{key} has {place.users - 1} such requests under way, and no turn came within"
                f" {self._patience:g} s: try again shortly"
            ) from None
        finally:
            place.waiting -= size
