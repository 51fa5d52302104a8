"""What processes report of themselves, in Redis for a short while, for whoever cannot ask each."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from projections.redis.node import Node, Script
from projections.redis.shared_calls import SharedCalls

SECONDS = 45
"""How long a report is kept: it is renewed several times meanwhile."""


class ProcessReports:
    """The reports of one kind of a deployment's processes. Nothing is connected before the first
    call.
    """

    def __init__(self, url: str, prefix: str, kind: str, timeout: float = 5.0) -> None:
        """Args: ``prefix`` is the deployment's; ``timeout`` is seconds for one call."""
        self._name = f"{prefix}:{{{kind}}}"
        self._calls = SharedCalls(url, "what processes report", timeout)
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
        await self._calls.close()

    async def _call(self, args: list[Any]) -> list[bytes]:
        keys = [f"{self._name}:reports", f"{self._name}:times"]

        async def work(node: Node) -> list[bytes]:
            found: list[bytes] = await self._script(node, keys, [SECONDS, *args])
            return found

        return await self._calls.run(keys[0], work)
