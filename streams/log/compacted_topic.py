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

from projections.errors import TopicMismatch, TopicStuck
from streams.log.clients import (
    SharedProducer,
    kafka_errors,
    make_consumer,
    start_client,
    stop_client,
)
from streams.log.end_offsets import end_offsets
from streams.runtime.tasks import end_tasks
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)
POLL = 0.5
"""Seconds to wait for records, and before another try while the brokers are away."""
PAUSE = 5.0
"""Seconds before another try at a record at which the follower failed."""


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
        ``ValueError``, and the record is skipped and logged. Anything else that it raises is a
        fault of this program: the record may matter, so it is tried until it is taken. idle:
        awaited whenever nothing came for a moment.
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
        self._failure: TopicStuck | None = None
        self._advanced = asyncio.Condition()

    async def start(self) -> None:
        """Read the topic to its end, and go on following it.

        Raises:
            TopicMismatch: there is no such topic.
            KafkaUnavailable: the brokers do not answer, or stop delivering before the end.
            TopicStuck: the follower fails at a record.
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
            TopicStuck: the follower fails at a record.
        """
        limit = self._settings.append_timeout
        async with kafka_errors(self._settings, f"reading topic {self.topic}"):
            if self._consumer is None:
                raise TimeoutError("its follower is stopped")
            deadline = asyncio.get_running_loop().time() + limit
            async with asyncio.timeout_at(deadline):
                ends = await end_offsets(self._consumer, [self._place])
            end = ends[self._place]
            while self._next < end:
                before = self._next
                try:
                    async with asyncio.timeout_at(deadline), self._advanced:
                        await self._advanced.wait_for(
                            lambda: self._next >= end or self._failure is not None
                        )
                except TimeoutError:
                    if not while_advancing or self._next == before:
                        raise
                    deadline += limit
                if self._next < end:
                    self.check()

    def check(self) -> None:
        """Raise :class:`TopicStuck` while the follower fails at a record."""
        if self._failure is not None:
            raise TopicStuck(str(self._failure))

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
                await self._read_on(self._consumer)
            except Exception as error:
                # Whoever waits hears of this error. Otherwise it would look as if Kafka were away.
                logger.exception("following topic %s failed at offset %d", self.topic, self._next)
                self._failure = TopicStuck(
                    f"this process cannot take in topic {self.topic} from offset {self._next} on"
                    f" ({type(error).__name__}: {error}): see its log, and upgrade or restart it"
                )
                await self._advance(self._next)
                await asyncio.sleep(PAUSE)
                self._consumer.seek(self._place, self._next)

    async def _read_on(self, consumer: AIOKafkaConsumer) -> None:
        """Take in what there is now."""
        try:
            batches = await consumer.getmany(self._place, timeout_ms=int(POLL * 1000))
            rows = batches.get(self._place, [])
            position = await consumer.position(self._place)
        except KafkaError:
            # The brokers are away: keep what is known; the client reconnects by itself.
            await asyncio.sleep(POLL)
            return
        for row in rows:
            self._next = row.offset
            self._take(row)
        await self._advance(position)
        if not rows and self._idle is not None:
            await self._idle()
        self._failure = None

    async def _advance(self, to: int) -> None:
        async with self._advanced:
            self._next = to
            self._advanced.notify_all()

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
