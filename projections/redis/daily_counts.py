"""Counts of a day in Redis that processes share, with limits: what an owner used since 00:00 UTC by
the server's clock.

A count is of its day: the next one begins at nothing. A server that lost the counts begins at
nothing, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

from projections.redis.node import Node, Script
from projections.redis.shared_calls import SharedCalls


class Addition(NamedTuple):
    """Units of one kind to be added, unless the kind's count has reached ``limit`` (0: no limit);
    below zero they are taken back.
    """

    kind: str
    units: float
    limit: float = 0.0


class Counted(NamedTuple):
    """Whether the units were added, what each kind stands at now, the day (since 1970), and seconds
    until it ends.
    """

    added: bool
    used: dict[str, float]
    day: int
    left: float


class DailyCounts:
    """The daily counts of a deployment. Nothing is connected before the first call."""

    def __init__(self, url: str, prefix: str, timeout: float = 5.0) -> None:
        """Args: ``prefix`` is the deployment's, which all keys begin with; ``timeout`` is seconds
        for one call.
        """
        self._prefix = prefix
        self._calls = SharedCalls(url, "the counts of the day", timeout)
        self._script = Script(files("projections.redis").joinpath("daily_counts.lua").read_text())

    async def add(
        self, owner: str, additions: Sequence[Addition], day: int | None = None
    ) -> Counted:
        """Add all units, or none where a limit is reached. ``day``: only if it is still this one.

        Raises:
            RedisUnavailable: unknown whether they were added.
        """
        name = f"{self._prefix}:{{{owner}}}:day"
        args: list[str] = ["" if day is None else str(day)]
        for kind, units, limit in additions:
            args += [kind, repr(float(units)), repr(float(limit))]

        async def work(node: Node) -> list[bytes]:
            found: list[bytes] = await self._script(node, [name], args)
            return found

        added, today, left, *used = await self._calls.run(name, work)
        counts = {one.kind: float(count) for one, count in zip(additions, used, strict=True)}
        return Counted(bool(int(added)), counts, int(today), float(left))

    async def close(self) -> None:
        """Close all connections."""
        await self._calls.close()
