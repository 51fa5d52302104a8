"""A key-compacted topic of one partition, read to its end and followed: the one way in which a
process holds such a topic in memory and writes to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from projections.errors import TopicMismatch
from streams.log.clients import (
    SharedProducer,
    end_offset,
    kafka_errors,
    make_consumer,
    start_client,
    stop_client,
)
from streams.runtime.tasks import end_tasks
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)
POLL = 0.5
"""Seconds to wait for records, and before another try while the brokers are away."""


class TopicRecord(Protocol):
    """A record as the client delivers it; ``timestamp`` is in milliseconds."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    offset: int


class CompactedTopic:
    """Gives every record of a topic to ``apply``, in order, and knows how far it has read.

    One event loop; start it before use, stop it after.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str,
        apply: Callable[[TopicRecord], None],
        *,
        idle: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Args:
        topic: the name in Kafka. apply: takes a record in; for one that it cannot read it raises
        ``ValueError``, which is logged. idle: awaited whenever nothing came for a moment.
        """
        self.topic = topic
        self._settings = settings
        self._apply = apply
        self._idle = idle
        self._place = TopicPartition(topic, 0)
        self._producer = SharedProducer(settings)
        self._consumer: AIOKafkaConsumer | None = None
        self._follower: asyncio.Task[None] | None = None
        self._next = 0
        self._advanced = asyncio.Condition()

    async def start(self) -> None:
        """Read the topic to its end, and go on following it.

        Raises:
            TopicMismatch: there is no such topic.
            KafkaUnavailable: the brokers do not answer, or stop delivering before the end.
        """
        async with kafka_errors(self._settings, f"reading topic {self.topic}"):
            consumer = make_consumer(self._settings)
            await start_client(consumer, self._settings)
            self._consumer = consumer
            if (
                not consumer.partitions_for_topic(self.topic)
                and self.topic not in await consumer.topics()
            ):
                await self.stop()
                raise TopicMismatch(
                    f"topic {self.topic} is missing: run `threadfold topics create`"
                )
            consumer.assign([self._place])
            await consumer.seek_to_beginning()
        self._follower = asyncio.create_task(self._follow(), name=f"follow-{self.topic}")
        await self.sync(while_advancing=True)

    async def stop(self) -> None:
        """Stop following, and close the clients."""
        await self._producer.stop()
        await end_tasks([self._follower])
        if self._consumer is not None:
            await stop_client(self._consumer, self._settings)
        self._follower = self._consumer = None

    async def sync(self, *, while_advancing: bool = False) -> None:
        """Wait until everything written before this call is applied.

        Args:
            while_advancing: the append time-out ends the wait only if nothing was read within it,
                because a long topic takes its time.

        Raises:
            KafkaUnavailable: it took longer than the append time-out, or the follower is stopped.
        """
        limit = self._settings.append_timeout
        async with kafka_errors(self._settings, f"reading topic {self.topic}"):
            if self._consumer is None:
                raise TimeoutError("its follower is stopped")
            deadline = asyncio.get_running_loop().time() + limit
            async with asyncio.timeout_at(deadline):
                end = await end_offset(self._consumer, self._place)
            while self._next < end:
                before = self._next
                try:
                    async with asyncio.timeout_at(deadline), self._advanced:
                        await self._advanced.wait_for(lambda: self._next >= end)
                except TimeoutError:
                    if not while_advancing or self._next == before:
                        raise
                    deadline += limit

    async def write(self, rows: Mapping[bytes, bytes | None], *, one_by_one: bool = False) -> None:
        """Write records (None deletes) in order, and return when all in-sync replicas have them.

        Args:
            one_by_one: send a record only when the one before it is safe, so that of a failed write
                the first records stand and no later one does.

        Raises:
            KafkaUnavailable: it is unknown which of them were written.
        """
        async with (
            kafka_errors(self._settings, f"writing topic {self.topic}"),
            asyncio.timeout(None if one_by_one else self._settings.append_timeout),
            self._producer.lent() as producer,
        ):
            if one_by_one:
                for key, value in rows.items():
                    await producer.send_and_wait(self.topic, value, key, partition=0)
                return
            sent: list[Any] = [
                await producer.send(self.topic, value, key, partition=0)
                for key, value in rows.items()
            ]
            await asyncio.gather(*sent)

    async def _follow(self) -> None:
        while self._consumer is not None:
            try:
                batches = await self._consumer.getmany(self._place, timeout_ms=int(POLL * 1000))
                rows = batches.get(self._place, [])
                position = await self._consumer.position(self._place)
            except KafkaError:
                # The brokers are away: keep what is known; the client reconnects by itself.
                await asyncio.sleep(POLL)
                continue
            for row in rows:
                self._take(row)
            async with self._advanced:
                self._next = position
                self._advanced.notify_all()
            if not rows and self._idle is not None:
                await self._idle()

    def _take(self, row: TopicRecord) -> None:
        try:
            self._apply(row)
        except ValueError as error:
            logger.error(
                "skipped a record that cannot be read: topic=%s offset=%d key=%r: %s",
                self.topic,
                row.offset,
                row.key,
                error,
            )
