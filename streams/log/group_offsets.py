"""How far a consumer group is with a topic, asked of the brokers by a client of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import NamedTuple

from streams.log.clients import (
    AIOKafkaConsumer,
    TopicPartition,
    kafka_errors,
    make_consumer,
    start_client,
    stop_client,
)
from streams.settings.settings import Settings


class Extent(NamedTuple):
    """A partition from the next offset that the group takes to the one after its last record."""

    done: int
    end: int


class GroupOffsets:
    """Reads what a group has committed; connects when it is first asked, and joins no group."""

    def __init__(self, settings: Settings, topic: str, group: str, what: str) -> None:
        """Args: ``what`` is what its errors begin with."""
        self._settings = settings
        self._topic = settings.topic(topic)
        self._group = group
        self._what = what
        self._consumer: AIOKafkaConsumer | None = None
        self._turn = asyncio.Lock()

    async def of(self, partitions: Collection[int]) -> dict[int, Extent]:
        """These partitions' extents; raises KafkaUnavailable.

        Records that are older than the topic's retention are deleted, whether anybody took them or
        not: ``done`` is at least the first offset.
        """
        if not partitions:
            return {}
        places = [TopicPartition(self._topic, number) for number in sorted(partitions)]
        async with (
            self._turn,
            kafka_errors(self._settings, self._what),
            asyncio.timeout(self._settings.append_timeout),
        ):
            if self._consumer is None:
                consumer = make_consumer(self._settings, group=self._group)
                await start_client(consumer, self._settings)
                self._consumer = consumer
            self._consumer.assign(places)
            self._consumer.pause(*places)
            ends = await self._consumer.end_offsets(places)
            begins = await self._consumer.beginning_offsets(places)
            done = {tp: await self._consumer.committed(tp) or 0 for tp in places}
        return {tp.partition: Extent(max(done[tp], begins[tp]), ends[tp]) for tp in places}

    async def stop(self) -> None:
        """Close the client."""
        if self._consumer is not None:
            await stop_client(self._consumer, self._settings)
