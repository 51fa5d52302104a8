"""A limit that is shared fairly: whoever wants much waits behind itself, not in front of others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Key:
    weight: float
    turn: float
    """Its next turn in the round robin, in rounds."""
    running: int = 0
    waiters: deque[asyncio.Future[None]] = field(default_factory=deque)


class FairLimit:
    """At most ``most`` places, given one by one in a weighted round robin of the keys that wait.

    A free place goes to the key that holds the fewest for its weight. Among equals it goes to the
    key whose turn it is: a key of weight 2 has two turns a round. So a key whose work takes long
    does not collect all places, and a key that has just come is next. Within a key: in order.
    """

    def __init__(self, most: int, weight: Callable[[str], float] = lambda key: 1.0) -> None:
        """Args: ``weight`` is asked when a key comes that holds and waits for nothing; above 0."""
        self.most = most
        self._weight = weight
        self._keys: dict[str, _Key] = {}
        self._running = 0
        self._round = 0.0

    @property
    def free(self) -> bool:
        """Whether a place would be given at once."""
        return self._running < self.most

    @asynccontextmanager
    async def of(self, key: str) -> AsyncIterator[None]:
        """Hold one of the places for a key."""
        place = self._keys.get(key)
        if place is None:
            place = self._keys[key] = _Key(max(1e-6, self._weight(key)), self._round)
        if not place.waiters:
            place.turn = max(place.turn, self._round)  # turns it did not want are not made up for
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place.waiters.append(granted)
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._release(key, place)
            else:
                granted.cancel()
                self._grant()
            raise
        try:
            yield
        finally:
            self._release(key, place)

    def _release(self, key: str, place: _Key) -> None:
        place.running -= 1
        self._running -= 1
        self._grant()
        if not place.running and not place.waiters and self._keys.get(key) is place:
            del self._keys[key]

    def _grant(self) -> None:
        while self._running < self.most:
            waiting = []
            for key, place in list(self._keys.items()):
                while place.waiters and place.waiters[0].done():  # cancelled
                    place.waiters.popleft()
                if place.waiters:
                    waiting.append(place)
                elif not place.running:
                    del self._keys[key]
            if not waiting:
                return
            place = min(waiting, key=lambda one: (one.running / one.weight, one.turn))
            self._round = max(self._round, place.turn)
            place.turn += 1 / place.weight
            place.running += 1
            self._running += 1
            place.waiters.popleft().set_result(None)
