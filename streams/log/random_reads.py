"""Reading single records of a topic at their offsets: one request to the broker each, as many under
way as are asked for.

A consumer reads ahead, one request at a time to a broker, and what it is sought away from is
dropped: a fetch of one record waits for those of others, and sometimes for the broker's own wait of
a fifth of a second at the end of a partition. Measured on snapshots of 8 KB beside light load, p50
of single reads was 160 ms by a consumer. Here nothing is read ahead and the broker waits for
nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    CorruptRecordException,
    KafkaError,
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.memory_records import MemoryRecords

from projections.names import Position
from streams.log.clients import connection, reading_kafka
from streams.log.log import Raw
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)

FETCH = 64 << 10
"""Bytes asked for at once; the broker sends one record batch at least."""
AT_ONCE = 8
"""Requests of one call under way."""
AGAIN = 0.1
"""Seconds until a request is repeated that found no leader."""
UNKNOWN = 10
"""How often a topic may be unknown: one that is being made is so for a moment."""


class RandomReads:
    """Reads of one topic; connects when it is first asked. One instance serves any number of
    callers in one event loop.
    """

    def __init__(self, settings: Settings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._client: AIOKafkaClient | None = None
        self._starting = asyncio.Lock()

    async def stop(self) -> None:
        """Close the connections."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    async def read(self, partition: int, offsets: Sequence[int]) -> dict[int, Raw]:
        """The records at these offsets; those that are not there, or whose batch is damaged, are
        absent.

        Raises:
            KafkaUnavailable, TopicMismatch: as named, after ``append_timeout`` seconds at most.
        """
        found: dict[int, Raw] = {}
        order = sorted(set(offsets))
        size = max(1, -(-len(order) // AT_ONCE))
        async with reading_kafka(self._settings, f"reading {self._topic}"):
            client = await self._get_client()
            parts = [
                self._read(client, partition, order[i : i + size])
                for i in range(0, len(order), size)
            ]
            for part in await asyncio.gather(*parts):
                found |= part
        return found

    async def _read(
        self, client: AIOKafkaClient, partition: int, left: list[int]
    ) -> dict[int, Raw]:
        """The records at these offsets, which ascend; neighbours come together."""
        found: dict[int, Raw] = {}
        while left:
            rows = await self._fetch(client, partition, left[0])
            run_offsets = set(left)
            found |= {row.offset: row for row in rows if row.offset in run_offsets}
            last = max((row.offset for row in rows), default=-1)
            left = [offset for offset in left[1:] if offset > last]
        return found

    async def _fetch(self, client: AIOKafkaClient, partition: int, offset: int) -> list[Raw]:
        """What the broker has from ``offset`` on, a batch at least; nothing where it has no such
        offset.
        """
        unknown = 0
        while True:
            try:
                return await self._ask(client, partition, offset)
            except KafkaError as error:
                if isinstance(error, OffsetOutOfRangeError):
                    return []
                unknown += isinstance(error, UnknownTopicOrPartitionError)
                if not error.retriable or unknown > UNKNOWN:
                    raise
                logger.debug(
                    "%s partition %d at %d is asked for again: %s",
                    self._topic,
                    partition,
                    offset,
                    error,
                )
            # Another broker leads the partition now, or will in a moment.
            await client.force_metadata_update()
            await asyncio.sleep(AGAIN)

    async def _ask(self, client: AIOKafkaClient, partition: int, offset: int) -> list[Raw]:
        node = client.cluster.leader_for_partition(TopicPartition(self._topic, partition))
        if client.cluster.partitions_for_topic(self._topic) is None:
            raise UnknownTopicOrPartitionError(self._topic)
        if node is None or node < 0:
            raise LeaderNotAvailableError(f"{self._topic} {partition}")
        request = FetchRequest(0, 0, 4 * FETCH, 0, [(self._topic, [(partition, offset, FETCH)])])
        response = await client.send(node, request)
        ((_, ((_, code, *parts),)),) = response.topics
        if code:
            raise for_code(code)(f"{self._topic} {partition} at {offset}")
        return self._rows(partition, offset, parts[-1])

    def _rows(self, partition: int, offset: int, records: bytes | None) -> list[Raw]:
        rows: list[Raw] = []
        batches = MemoryRecords(records or b"")
        while batches.has_next():
            batch: Any = batches.next_batch()
            try:
                if not batch.validate_crc():
                    raise CorruptRecordException("its checksum does not fit")
                rows += [
                    Raw(Position(partition, r.offset), r.key, r.value, r.timestamp)
                    for r in batch
                    if r.offset >= offset
                ]
            except CorruptRecordException as error:
                logger.error(
                    "%s partition %d: a batch after offset %d cannot be read: %s",
                    self._topic,
                    partition,
                    offset,
                    error,
                )
        return rows

    async def _get_client(self) -> AIOKafkaClient:
        async with self._starting:
            if self._client is None:
                client = AIOKafkaClient(
                    **connection(self._settings),
                    request_timeout_ms=int(self._settings.append_timeout * 1000),
                )
                try:
                    await client.bootstrap()
                    await client.set_topics([self._topic])
                except BaseException:
                    await client.close()
                    raise
                self._client = client
            return self._client
