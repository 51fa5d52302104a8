"""A limit for each key: one caller's work waits for its own, never for others'."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class _Place:
    semaphore: asyncio.Semaphore
    users: int = 0


class KeyedLimit:
    """At most ``most`` at a time of each key; the others of that key wait in order."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._places: dict[str, _Place] = {}

    def __len__(self) -> int:
        """How many keys are in use."""
        return len(self._places)

    @asynccontextmanager
    async def of(self, key: str) -> AsyncIterator[None]:
        """Hold one of the key's places."""
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = _Place(asyncio.Semaphore(self._most))
        place.users += 1
        try:
            async with place.semaphore:
                yield
        finally:
            place.users -= 1
            if not place.users:
                del self._places[key]
