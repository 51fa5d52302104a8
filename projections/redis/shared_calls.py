"""Calls for keys that processes share in Redis: each within a time, with one error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from redis.exceptions import RedisError

from projections.errors import RedisUnavailable
from projections.redis.node import Node
from projections.redis.router import RedisRouter

T = TypeVar("T")


class SharedCalls:
    """Calls to the servers of one URL. Nothing is connected before the first call."""

    def __init__(self, url: str, what: str, timeout: float) -> None:
        """Args: ``what`` the keys hold, for errors; ``timeout`` is seconds for one call."""
        self.servers = RedisRouter(url, timeout=timeout, connections=2)
        self._what = what
        self._timeout = timeout

    async def run(self, name: str, work: Callable[[Node], Awaitable[T]]) -> T:
        """Do ``work`` at the server that has the key ``name``.

        Raises:
            RedisUnavailable: unknown whether it was done.
        """
        async with self.bounded():
            return await self.servers.run(name, work)

    @asynccontextmanager
    async def bounded(self) -> AsyncIterator[None]:
        """Bound what is done within to the time of one call and one more try; raises as
        :meth:`run`.
        """
        try:
            async with asyncio.timeout(2 * self._timeout):
                yield
        except (RedisError, OSError, TimeoutError) as error:
            raise self.unreachable(error) from error

    def unreachable(self, error: BaseException) -> RedisUnavailable:
        """The error for one of Redis' own."""
        return RedisUnavailable(
            f"{self._what} cannot be reached in Redis: {str(error) or type(error).__name__}"
        )

    async def close(self) -> None:
        """Close all connections."""
        await self.servers.close()
