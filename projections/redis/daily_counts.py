"""Counts of a day in Redis that processes share, with limits: what an owner used since 00:00 UTC by
the server's clock.

A count is of its day: the next one begins at nothing. A server that lost the counts begins at
nothing, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

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


class Ranked(NamedTuple):
    """What all together used of each kind this day, and who used most, the most first."""

    totals: dict[str, float]
    most: list[tuple[str, dict[str, float]]]


class DailyCounts:
    """The daily counts of a deployment. Nothing is connected before the first call."""

    def __init__(self, url: str, prefix: str, timeout: float = 5.0) -> None:
        """Args: ``prefix`` is the deployment's, which all keys begin with; ``timeout`` is seconds
        for one call.
        """
        self._prefix = prefix
        self._calls = SharedCalls(url, "the counts of the day", timeout)
        scripts = files("projections.redis")
        self._script = Script(scripts.joinpath("daily_counts.lua").read_text())
        self._ranks = Script(scripts.joinpath("daily_ranks.lua").read_text())

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

    async def rank(
        self, board: str, member: str, units: Mapping[str, float], day: int | None = None
    ) -> bool:
        """Add what one of a board's members used, of all kinds that the board has; below zero it
        is taken back. ``day``: only if it is still this one.

        Returns whether it was added.

        Raises:
            RedisUnavailable: unknown whether it was.
        """
        return bool(int((await self._ranked(board, member, units, day, 0))[0]))

    async def ranked(self, board: str, kinds: Sequence[str], most: int) -> Ranked:
        """A board's totals of this day, and the ``most`` members that used most of the first kind.

        Raises:
            RedisUnavailable: unknown.
        """
        answer = await self._ranked(board, "", dict.fromkeys(kinds, 0.0), None, most)
        totals, rest = answer[2 : 2 + len(kinds)], answer[2 + len(kinds) :]
        width = 1 + len(kinds)
        rows = [rest[i : i + width] for i in range(0, len(rest), width)]
        return Ranked(
            _counts(kinds, totals), [(row[0].decode(), _counts(kinds, row[1:])) for row in rows]
        )

    async def _ranked(
        self, board: str, member: str, units: Mapping[str, float], day: int | None, most: int
    ) -> list[Any]:
        name = f"{self._prefix}:{{{board}}}:ranks"
        names = [name, *(f"{name}:{kind}" for kind in units)]
        args: list[str] = ["" if day is None else str(day), member, str(most)]
        for kind, number in units.items():
            args += [kind, repr(float(number))]

        async def work(node: Node) -> list[Any]:
            found: list[Any] = await self._ranks(node, names, args)
            return found

        return await self._calls.run(name, work)

    async def close(self) -> None:
        """Close all connections."""
        await self._calls.close()


def _counts(kinds: Sequence[str], values: Sequence[bytes]) -> dict[str, float]:
    """Counts by kind. What was taken back again leaves no dust below zero."""
    return {kind: max(0.0, float(value)) for kind, value in zip(kinds, values, strict=True)}
