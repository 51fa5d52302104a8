"""One command at a time writes a deployment's log anew: a copy, an import or a restore.

Two at once would each find the records of the other between its own. Kafka says who writes: each is
a member of one consumer group while it does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka.errors import KafkaError

from projections.errors import Conflict, KafkaUnavailable
from streams.log.clients import (
    kafka_errors,
    make_consumer,
    make_producer,
    start_client,
    stop_client,
)
from streams.log.consumer_group import Rebalances, members
from streams.runtime.tasks import end_tasks
from streams.settings.settings import Settings

DAY_MS = 24 * 3600 * 1000
"""Such a member polls nothing, and may take as long as it likes."""
LOOK = 0.1
"""Seconds between two looks at the clock."""


class _Joined(asyncio.Event):
    """Set by the first assignment of the group, an empty one too."""

    async def commit(self) -> None:
        return

    def revoked(self, numbers: Iterable[int]) -> None:
        return

    def assigned(self, numbers: Iterable[int]) -> None:
        self.set()


class _StoodStill(KafkaError):  # type: ignore[misc]
    """Nothing more is sent. Not retriable."""


class SoleWriter:
    """The one that writes, as long as its process does not stand still: a member that Kafka has not
    heard of for the session time-out counts as gone, and another one may have begun.
    """

    def __init__(self, settings: Settings) -> None:
        self._longest = settings.session_timeout / 2
        self._seen = _now()
        self._stood = 0.0

    async def watch(self) -> None:
        """Look at the clock for as long as it writes."""
        while True:
            self._look()
            await asyncio.sleep(LOOK)

    def check(self) -> None:
        """Raise Conflict if the process stood still for so long that another one may write."""
        self._look()
        if self._stood:
            raise Conflict(
                f"this process stood still for {self._stood:.0f} s, and another one may write this"
                " log by now: when none does, run the same command again"
            )

    @asynccontextmanager
    async def producer(self, settings: Settings) -> AsyncIterator[Any]:
        """A producer for ``streams.log.topic_copies.PartitionWriter``, closed at the end. It sends
        nothing once :meth:`check` would raise. What the system had taken of a request before the
        process stood still may arrive later.
        """
        producer = make_producer(settings)
        send = producer.client.send

        async def checked(*args: Any, **options: Any) -> Any:
            self._look()
            if self._stood:
                raise _StoodStill
            return await send(*args, **options)

        producer.client.send = checked
        try:
            async with kafka_errors(settings, "writing copies"):
                await start_client(producer, settings)
                try:
                    yield producer
                finally:
                    await stop_client(producer, settings)
        except KafkaUnavailable:
            self.check()
            raise

    def _look(self) -> None:
        now = _now()
        if now - self._seen > self._longest:
            self._stood = max(self._stood, now - self._seen)
        self._seen = now


def _now() -> float:
    """Seconds; those in which the machine sleeps count, where the system can tell."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@asynccontextmanager
async def sole_writer(settings: Settings) -> AsyncIterator[SoleWriter]:
    """Be the only one within the block. Of two that begin in the same moment both may be refused.

    One that was killed is waited for, ``session_timeout`` seconds at most.

    Raises:
        Conflict: another one writes.
        KafkaUnavailable: the brokers do not answer.
    """
    group, joined = f"{settings.group}.writers", _Joined()
    consumer = make_consumer(settings, group=group, max_poll_interval_ms=DAY_MS)
    async with kafka_errors(settings):
        await start_client(consumer, settings)
    watching: asyncio.Task[None] | None = None
    try:
        consumer.subscribe([settings.topic("control")], listener=Rebalances(joined))
        limit = settings.session_timeout + settings.append_timeout
        async with kafka_errors(settings), asyncio.timeout(limit):
            await joined.wait()
        sole = SoleWriter(settings)
        watching = asyncio.create_task(sole.watch(), name="sole-writer")
        # Whoever of two came second sees both.
        if await members(settings, [group]) > 1:
            raise Conflict(
                "another copy, import or restore writes this log: wait for its end, then try again"
            )
        sole.check()
        yield sole
    finally:
        await end_tasks([watching])
        await stop_client(consumer, settings)
