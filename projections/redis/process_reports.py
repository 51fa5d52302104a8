"""What processes report of themselves, in Redis for a short while, for whoever cannot ask each."""

from __future__ import annotations

import asyncio
from importlib.resources import files
from typing import Any

from redis.exceptions import RedisError

from projections.errors import RedisUnavailable
from projections.redis.node import Node, Script
from projections.redis.router import RedisRouter

SECONDS = 45
"""How long a report is kept: it is renewed several times meanwhile."""


class ProcessReports:
    """The reports of one kind of a deployment's processes. Nothing is connected before the first
    call.
    """

    def __init__(self, url: str, prefix: str, kind: str, timeout: float = 5.0) -> None:
        """Args: ``prefix`` is the deployment's; ``timeout`` is seconds for one call."""
        self._name = f"{prefix}:{{{kind}}}"
        self._timeout = timeout
        self._servers = RedisRouter(url, timeout=timeout, connections=2)
        source = files("projections.redis").joinpath("process_reports.lua")
        self._script = Script(source.read_text())

    async def put(self, process: str, report: bytes) -> None:
        """Replace a process's report; raises RedisUnavailable."""
        await self._call([process, report])

    async def remove(self, process: str) -> None:
        """Delete the report of a process that ends; raises RedisUnavailable."""
        await self._call([process, b""])

    async def all(self) -> dict[str, bytes]:
        """The reports of processes that reported lately, by their names; raises
        RedisUnavailable.
        """
        found = await self._call([])
        return {name.decode(): report for name, report in zip(found[::2], found[1::2], strict=True)}

    async def close(self) -> None:
        """Close all connections."""
        await self._servers.close()

    async def _call(self, args: list[Any]) -> list[bytes]:
        keys = [f"{self._name}:reports", f"{self._name}:times"]

        async def work(node: Node) -> list[bytes]:
            found: list[bytes] = await self._script(node, keys, [SECONDS, *args])
            return found

        try:
            async with asyncio.timeout(2 * self._timeout):
                return await self._servers.run(keys[0], work)
        except (RedisError, OSError, TimeoutError) as error:
            raise RedisUnavailable(
                "what processes report cannot be reached in Redis:"
                f" {str(error) or type(error).__name__}"
            ) from error
