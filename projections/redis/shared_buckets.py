"""Token buckets in Redis that processes share: one hash for each owner (a tenant's quota, a model's
endpoint) and kind, settled by one small script at the server's own time; and pauses of owners.

In a cluster an owner's buckets are on one of its servers, and each server is asked beside the
others.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from redis.exceptions import RedisError

from projections.redis.node import Node, Script
from projections.redis.shared_calls import SharedCalls

_PAUSE = Script(
    "if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[1]) then"
    " redis.call('SET', KEYS[1], '1', 'PX', ARGV[1]) end"
)
"""A pause is never shortened."""


class Settled(NamedTuple):
    """What was granted, and what the bucket has left (below zero: owed)."""

    granted: float
    left: float


class Settling(NamedTuple):
    """One settlement with one bucket: all of ``owed`` is taken, and as much of ``wanted`` as there
    is. The bucket fills at ``rate`` units a second up to ``capacity``.
    """

    owner: str
    kind: str
    rate: float
    capacity: float
    owed: float
    wanted: float


class SharedBuckets:
    """The buckets of a deployment. Nothing is connected before the first call; a server that lost
    them has them all full.
    """

    def __init__(self, url: str, prefix: str, timeout: float = 0.5) -> None:
        """Args: ``prefix`` is the deployment's, which all keys begin with; ``timeout`` is seconds
        for one call.
        """
        self._prefix = prefix
        self._calls = SharedCalls(url, "the shared buckets", timeout)
        self._settle = Script(files("projections.redis").joinpath("bucket.lua").read_text())

    async def settle(self, settlings: Sequence[Settling]) -> list[Settled | None]:
        """Settle all in one trip to each server; the answers are in the same order, None where a
        server of several did not answer.

        Raises:
            RedisUnavailable: none did; some may have been settled all the same, so that less is
                admitted than might be, never more.
        """
        names = [f"{self._prefix}:{{{one.owner}}}:{one.kind}" for one in settlings]
        found: list[Settled | None] = [None] * len(settlings)
        failed: list[BaseException] = []
        async with self._calls.bounded():
            groups = await self._calls.servers.grouped(names)
            trips = (
                self._trip([names[i] for i in group], [settlings[i] for i in group])
                for group in groups
            )
            for group, answer in zip(
                groups, await asyncio.gather(*trips, return_exceptions=True), strict=True
            ):
                if isinstance(answer, BaseException):
                    failed.append(answer)
                else:
                    for i, settled in zip(group, answer, strict=True):
                        found[i] = settled
        for why in failed:
            if not isinstance(why, RedisError | OSError):
                raise why
            if len(failed) == len(groups):
                raise self._calls.unreachable(why) from why
        return found

    async def _trip(self, names: list[str], settlings: list[Settling]) -> list[Settled]:
        """Settle what one server keeps."""

        calls = [
            ([name], [repr(rate), repr(capacity), repr(owed), repr(wanted)])
            for name, (_, _, rate, capacity, owed, wanted) in zip(names, settlings, strict=True)
        ]

        async def work(node: Node) -> list[Any]:
            return await self._settle.many(node, calls)

        return [
            Settled(float(granted), float(left))
            for granted, left in await self._calls.servers.run(names[0], work)
        ]

    async def pause(self, owner: str, seconds: float) -> None:
        """Let an owner pause for that many seconds from now at least, for all processes.

        Raises:
            RedisUnavailable: the other processes do not see the pause.
        """
        name, milliseconds = self._pause_of(owner), max(1, math.ceil(seconds * 1000))

        async def work(node: Node) -> None:
            await _PAUSE(node, [name], [milliseconds])

        await self._calls.run(name, work)

    async def paused(self, owner: str) -> float:
        """Seconds that an owner still pauses; 0: it does not. Raises RedisUnavailable."""
        name = self._pause_of(owner)

        async def work(node: Node) -> int:
            return int(await node.redis.pttl(name))

        return max(0, await self._calls.run(name, work)) / 1000

    def _pause_of(self, owner: str) -> str:
        return f"{self._prefix}:{{{owner}}}:pause"

    async def close(self) -> None:
        """Close all connections."""
        await self._calls.close()
