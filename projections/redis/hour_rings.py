"""Figures of the last hour in Redis, which processes share: for each owner one ring of slots. A
slot is overwritten an hour later, so a ring does not grow.

A ring is filled in one of two ways: what many processes count is added up in it (:meth:`add`), or
whoever claims a slot first puts its figures there (:meth:`claim`, :meth:`put`). The time is the
server's. A server that lost the rings begins at nothing.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from projections.redis.node import Node, Script
from projections.redis.shared_calls import SharedCalls

HOUR = 3600
MISSING = "-"
"""How a figure is written that nobody knows."""
Figures = tuple[float | None, ...]
"""The figures of one slot, in the order in which they were put; None: unknown."""


class Claim(NamedTuple):
    """A slot to be filled, and the state that was left with the slot before."""

    slot: int
    state: bytes


class Hour(NamedTuple):
    """What a ring holds, by slot. ``first`` and ``last`` are the hour's: slot n begins at n times
    the ring's ``every``, the last one is of this moment. ``now`` is the server's time.
    """

    now: float
    first: int
    last: int
    slots: dict[int, Figures]


class HourRings:
    """Rings of a deployment with slots of ``every`` seconds. Nothing is connected before the first
    call.
    """

    def __init__(self, url: str, prefix: str, every: int, timeout: float = 0.5) -> None:
        """Args: ``prefix`` is the deployment's; ``timeout`` is seconds for one call."""
        self.every = every
        self._prefix = prefix
        self._slots = HOUR // every
        self._calls = SharedCalls(url, "the figures of the last hour", timeout)
        self._script = Script(files("projections.redis").joinpath("hour_ring.lua").read_text())

    async def add(self, figures: Mapping[str, Sequence[float]]) -> None:
        """Add to the figures that owners have in the slot of this moment.

        Raises:
            RedisUnavailable: some may have been added, or all.
        """
        if not figures:
            return
        names = [self._name(owner) for owner in figures]
        args = [self._args("add", *map(repr, map(float, one))) for one in figures.values()]

        async def trip(group: Sequence[int]) -> None:
            async def work(node: Node) -> None:
                await self._script.many(node, [([names[i]], args[i]) for i in group])

            await self._calls.servers.run(names[group[0]], work)

        async with self._calls.bounded():
            groups = await self._calls.servers.grouped(names)
            await asyncio.gather(*(trip(group) for group in groups))

    async def claim(self, owner: str) -> Claim | None:
        """The slot of this moment, for the first who asks; None for others. Raises
        RedisUnavailable.
        """
        found = await self._call(owner, "claim")
        return Claim(int(found[0]), found[1]) if found else None

    async def put(
        self, owner: str, slot: int, state: bytes, figures: Sequence[float | None]
    ) -> None:
        """Keep the figures of a slot, and a state for who claims the next one; raises
        RedisUnavailable.
        """
        values = [MISSING if one is None else repr(float(one)) for one in figures]
        await self._call(owner, "put", str(slot), state, *values)

    async def read(self, owner: str) -> Hour:
        """An owner's last hour; raises RedisUnavailable."""
        now, *pairs = await self._call(owner, "read")
        last = int(float(now)) // self.every
        found: dict[int, Figures] = {}  # older ones, too: they are overwritten in their turn
        for name, value in zip(pairs[::2], pairs[1::2], strict=True):
            if name.isdigit() and (one := _slot_of(value)) is not None:
                found[one[0]] = one[1]
        return Hour(float(now), last - self._slots + 1, last, found)

    async def close(self) -> None:
        """Close all connections."""
        await self._calls.close()

    # -- parts
    # ------------------------------------------------------------------------------------------

    def _name(self, owner: str) -> str:
        return f"{self._prefix}:{{{owner}}}:hour"

    def _args(self, *args: Any) -> list[Any]:
        return [self.every, self._slots, *args]

    async def _call(self, owner: str, *args: Any) -> list[bytes]:
        name = self._name(owner)

        async def work(node: Node) -> list[bytes]:
            found: list[bytes] = await self._script(node, [name], self._args(*args))
            return found

        return await self._calls.run(name, work)


def _slot_of(value: bytes) -> tuple[int, Figures] | None:
    """A slot and its figures; None of a value that no ring wrote: its slot is unknown then."""
    try:
        slot, *values = value.decode().split()
        figures = tuple(None if one == MISSING else float(one) for one in values)
        return (int(slot), figures) if all(map(_finite, figures)) else None
    except ValueError:
        return None


def _finite(one: float | None) -> bool:
    return one is None or math.isfinite(one)
