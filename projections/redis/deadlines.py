"""Sorted sets of conversations by the time at which something is due: requests, timers, idle
windows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from projections.names import Key, parse_key
from projections.redis.node import Node
from projections.storage.listing import IDLE

T = TypeVar("T")


class Deadlines(ABC):
    """The part of a store that is :class:`projections.storage.protocol.WaitingWork`."""

    async def due(self, generation: int, partition: int, now_ms: int, limit: int) -> list[Key]:
        return await self._ripe(self._due(generation, partition), now_ms, limit)

    async def due_count(self, generation: int, partition: int) -> int:
        name = self._due(generation, partition)

        async def work(node: Node) -> int:
            return int(await node.redis.zcard(name))

        return await self._run(name, work)

    async def requested(
        self, generation: int, partition: int, keys: list[Key], again_at_ms: int
    ) -> None:
        # A conversation whose summary was accepted meanwhile must not come back.
        await self._again(self._due(generation, partition), dict.fromkeys(keys, again_at_ms))

    async def timers(
        self, generation: int, partition: int, now_ms: int, limit: int, *, latest: bool = False
    ) -> list[Key]:
        return await self._ripe(self._timers(generation, partition), now_ms, limit, latest)

    async def put_off(self, generation: int, partition: int, timers: dict[Key, int]) -> None:
        # A session that was closed meanwhile must not come back.
        await self._again(self._timers(generation, partition), timers)

    async def idle(self, generation: int, partition: int, before_ms: int, limit: int) -> list[Key]:
        return await self._ripe(f"{self._tag(generation, partition)}:{IDLE}", before_ms, limit)

    async def _ripe(self, name: str, now_ms: int, limit: int, latest: bool = False) -> list[Key]:
        async def work(node: Node) -> list[Any]:
            if latest:
                found = node.redis.zrevrangebyscore(name, now_ms, "-inf", start=0, num=limit)
            else:
                found = node.redis.zrangebyscore(name, "-inf", now_ms, start=0, num=limit)
            return list(await found)

        return [key for key in map(parse_key, await self._run(name, work)) if key is not None]

    async def _again(self, name: str, times: dict[Key, int]) -> None:
        """Set the times of what is there; what is not does not come back by it."""

        async def work(node: Node) -> Any:
            return await node.redis.zadd(name, {str(key): at for key, at in times.items()}, xx=True)

        if times:
            await self._run(name, work)

    def _due(self, generation: int, partition: int) -> str:
        return f"{self._tag(generation, partition)}:due"

    def _timers(self, generation: int, partition: int) -> str:
        return f"{self._tag(generation, partition)}:timers"

    @abstractmethod
    def _tag(self, generation: int, partition: int) -> str:
        """What a partition's keys begin with."""

    @abstractmethod
    async def _run(self, key: str, work: Callable[[Node], Awaitable[T]]) -> T:
        """Do something at the server in charge of a key, its failures named by their cause."""
