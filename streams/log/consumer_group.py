"""The consumer group of whoever folds the log: the offsets it commits, for lag tools and to know
how far effects were announced, and the partitions it is assigned.

Where a partition goes on is the checkpoint beside its windows. Losing one costs repeated
announcements, never an event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Protocol

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from streams.log.clients import CLOSE_LIMIT
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)


class Commits:
    """What one process has committed of a topic to its group; ``known`` is the next offset of each
    partition.
    """

    def __init__(self, settings: Settings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self.known: dict[int, int] = {}

    async def commit(self, consumer: AIOKafkaConsumer, done: Mapping[int, int]) -> None:
        """Commit partitions that are done up to these offsets; nothing is raised."""
        offsets = {
            TopicPartition(self._topic, number): offset + 1
            for number, offset in done.items()
            if offset >= self.known.get(number, 0)
        }
        if not offsets:
            return
        try:
            await consumer.commit(offsets)
        except (CommitFailedError, IllegalStateError) as error:
            logger.info("commit left to the partitions' new owner: %s", error)
            return
        except KafkaError as error:
            logger.warning("commit failed: %s", error)
            return
        self.known.update({tp.partition: offset for tp, offset in offsets.items()})

    async def last(self, consumer: AIOKafkaConsumer, done: Mapping[int, int]) -> None:
        """Commit once more, in bounded time: aiokafka tries for as long as the brokers are away."""
        try:
            async with asyncio.timeout(min(CLOSE_LIMIT, self._settings.append_timeout)):
                await self.commit(consumer, done)
        except TimeoutError:
            logger.warning(
                "the last commit is left out: Kafka at %s does not answer", self._settings.kafka
            )


class Owner(Protocol):
    """Whoever owns the partitions that a group assigns."""

    async def commit(self) -> None:
        """Commit what is done."""

    def revoked(self, numbers: Iterable[int]) -> None:
        """Give partitions up."""

    def assigned(self, numbers: Iterable[int]) -> None:
        """Take partitions over."""


class Rebalances(ConsumerRebalanceListener):  # type: ignore[misc]
    """Hands aiokafka's assignments on to an owner."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Commit what is done, then let go."""
        await self._owner.commit()
        self._owner.revoked(tp.partition for tp in revoked)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Take over; reading starts when the partition is prepared."""
        self._owner.assigned(tp.partition for tp in assigned)
