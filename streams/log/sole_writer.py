"""One command at a time writes a deployment's log anew: a copy, an import or a restore.

Two at once would each find the records of the other between its own. Kafka says who writes: each is
a member of one consumer group while it does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from projections.errors import Conflict
from streams.log.clients import kafka_errors, make_consumer, start_client, stop_client
from streams.log.consumer_group import Rebalances, members
from streams.settings.settings import Settings

DAY_MS = 24 * 3600 * 1000
"""Such a member polls nothing, and may take as long as it likes."""


class _Joined(asyncio.Event):
    """Set by the first assignment of the group, an empty one too."""

    async def commit(self) -> None:
        return

    def revoked(self, numbers: Iterable[int]) -> None:
        return

    def assigned(self, numbers: Iterable[int]) -> None:
        self.set()


@asynccontextmanager
async def sole_writer(settings: Settings) -> AsyncIterator[None]:
    """Be the only one within the block. Of two that begin in the same moment both may be refused.

    One that was killed is waited for, ``session_timeout`` seconds at most. A process that stands
    still for longer than that counts as killed: it is not stopped from going on.

    Raises:
        Conflict: another one writes.
        KafkaUnavailable: the brokers do not answer.
    """
    group, joined = f"{settings.group}.writers", _Joined()
    consumer = make_consumer(settings, group=group, max_poll_interval_ms=DAY_MS)
    async with kafka_errors(settings):
        await start_client(consumer, settings)
    try:
        consumer.subscribe([settings.topic("control")], listener=Rebalances(joined))
        limit = settings.session_timeout + settings.append_timeout
        async with kafka_errors(settings), asyncio.timeout(limit):
            await joined.wait()
        # Whoever of two came second sees both.
        if await members(settings, [group]) > 1:
            raise Conflict(
                "another copy, import or restore writes this log: wait for its end, then try again"
            )
        yield
    finally:
        await stop_client(consumer, settings)
