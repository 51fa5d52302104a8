"""The tenants' buckets in Redis: one hash for each tenant and kind, settled by one small script at the server's own time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

import redis.asyncio as aredis
from redis.exceptions import NoScriptError, RedisError

from projections.errors import RedisUnavailable
from threadfold.quotas.bucket import Settled


class Settling(NamedTuple):
    """What a gateway settles with one bucket."""

    tenant: str
    kind: str
    rate: float
    capacity: float
    owed: float
    wanted: float


class SharedBuckets:
    """The buckets of a deployment. Nothing is connected before the first call; a server that lost them has them all full."""

    def __init__(self, url: str, prefix: str, timeout: float = 0.5) -> None:
        """Args: ``prefix`` is the deployment's, which all keys begin with; ``timeout`` is seconds for one call."""
        self._prefix = prefix
        self._timeout = timeout
        self._redis = aredis.Redis.from_url(url, socket_timeout=timeout, socket_connect_timeout=timeout, max_connections=2)
        self._source = files("threadfold.quotas").joinpath("bucket.lua").read_text()
        self._sha = ""

    async def settle(self, settlings: Sequence[Settling]) -> list[Settled]:
        """Settle all in one trip; the answers are in the same order.

        Raises:
            RedisUnavailable: it failed; some may have been settled all the same, so that less is admitted than might be, never more.
        """
        try:
            async with asyncio.timeout(2 * self._timeout):
                try:
                    answers = await self._run(settlings)
                except NoScriptError:  # it was restarted; nothing of the pipeline was done
                    self._sha = ""
                    answers = await self._run(settlings)
        except (RedisError, OSError, TimeoutError) as error:
            raise RedisUnavailable(f"the quotas' buckets cannot be reached in Redis: {str(error) or type(error).__name__}") from error
        return [Settled(float(granted), float(left)) for granted, left in answers]

    async def _run(self, settlings: Sequence[Settling]) -> list[tuple[bytes, bytes]]:
        if not self._sha:
            self._sha = await self._redis.script_load(self._source)
        pipe = self._redis.pipeline(transaction=False)
        for tenant, kind, rate, capacity, owed, wanted in settlings:
            pipe.evalsha(self._sha, 1, f"{self._prefix}:{{quota:{tenant}}}:{kind}", repr(rate), repr(capacity), repr(owed), repr(wanted))
        return await pipe.execute()

    async def close(self) -> None:
        """Close all connections."""
        await self._redis.aclose()
