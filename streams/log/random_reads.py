"""Reading single records of a topic at their offsets: one request to the broker each, as many under
way as are asked for.

A consumer reads ahead, one request at a time to a broker, and what it is sought away from is
dropped: a fetch of one record waits for those of others, and sometimes for the broker's own wait of
a fifth of a second at the end of a partition. Measured on snapshots of 8 KB beside light load, p50
of single reads was 160 ms by a consumer. Here nothing is read ahead and the broker waits for
nothing. Only batches that hold something wanted are unpacked, and only wanted records become
objects.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import partial
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
from aiokafka.protocol.offset import OffsetRequest, OffsetResetStrategy
from aiokafka.record.memory_records import MemoryRecords

from projections.names import Position
from streams.log.clients import reading_kafka
from streams.log.log import Raw
from streams.log.login import connection
from streams.runtime.tasks import some_at_a_time
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)

FETCH = 64 << 10
"""Bytes asked for at once; the broker sends one record batch at least."""
LOOP_BYTES = 1 << 10
"""Bytes of an answer from which on it is unpacked beside the event loop: compressed, a
record of some megabytes may have a few thousand.
"""
AT_ONCE = 8
"""Requests of one call under way."""
AGAIN = 0.1
"""Seconds until a request is repeated that found no leader."""
UNKNOWN = 10
"""How often a topic may be unknown: one that is being made is so for a moment."""


class _Room:
    """Counts the bytes of one read."""

    def __init__(self, most: int | None) -> None:
        self._left = most

    def take(self, records: Iterable[Raw]) -> None:
        """Count these records, too."""
        if self._left is not None:
            self._left -= sum(len(raw.value or b"") for raw in records)

    @property
    def over(self) -> bool:
        """Whether they are more bytes than there may be."""
        return self._left is not None and self._left < 0


class RandomReads:
    """Reads of one topic; connects when it is first asked. One instance serves any number of
    callers in one event loop.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str,
        what: str,
        *,
        gap: int = 0,
        damaged: bool = False,
    ) -> None:
        """Nothing is connected yet.

        Args:
            what: what its errors begin with.
            gap: offsets that lie at most so far apart are read in one go, and what is between them
                is passed over; where records are small that is cheaper than a request for each.
            damaged: records of a damaged batch are absent from answers; else reading them fails.
        """
        self.reads = 0
        """Requests that were answered so far."""
        self._settings = settings
        self._topic = topic
        self._what = what
        self._gap = gap
        self._passes_damaged = damaged
        self._client: AIOKafkaClient | None = None
        self._starting = asyncio.Lock()

    async def stop(self) -> None:
        """Close the connections."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    async def read(self, partition: int, offsets: Sequence[int]) -> dict[int, Raw]:
        """The records at these offsets; those that are not there are absent. Raises as
        :meth:`read_within`.
        """
        return await self.read_within(partition, offsets, None) or {}

    async def read_within(
        self, partition: int, offsets: Sequence[int], most_bytes: int | None
    ) -> dict[int, Raw] | None:
        """The same; None: they are more than ``most_bytes``.

        Raises:
            KafkaUnavailable, TopicMismatch: as named; the former where no answer comes in time
                (``reading_kafka``).
        """
        found: dict[int, Raw] = {}
        runs = _runs(sorted(set(offsets)), self._gap)
        size = max(1, -(-len(runs) // AT_ONCE))
        room = _Room(most_bytes)
        parts = [
            partial(self._read, partition, [o for run in runs[i : i + size] for o in run], room)
            for i in range(0, len(runs), size)
        ]
        for part in await some_at_a_time(AT_ONCE, parts):
            found |= part
        # Not an exception: its frames would keep the records until the next collection of garbage.
        return None if room.over else found

    async def _read(self, partition: int, left: list[int], room: _Room) -> dict[int, Raw]:
        """The records at these offsets, which ascend; neighbours come together."""
        found: dict[int, Raw] = {}
        while left and not room.over:
            async with reading_kafka(self._settings, self._what):
                client = await self._get_client()
                try:
                    records = await self._fetch(client, partition, left[0])
                except OffsetOutOfRangeError:
                    begin = await self._beginning(client, partition)
                    left = left[bisect_left(left, begin) :] if left[0] < begin else []
                    continue
                if len(records) <= LOOP_BYTES:
                    end = self._take(partition, left, records, found)
                else:
                    end = await asyncio.to_thread(self._take, partition, left, records, found)
            passed = max(1, bisect_left(left, end))
            room.take(found[offset] for offset in left[:passed] if offset in found)
            left = left[passed:]
        return found

    async def _fetch(self, client: AIOKafkaClient, partition: int, offset: int) -> bytes:
        """What the broker has from ``offset`` on, a batch at least; raises OffsetOutOfRangeError
        where it has no such offset.
        """
        unknown = 0
        while True:
            try:
                records = await self._ask(client, partition, offset)
                if records is not None:
                    self.reads += 1
                    return records
            except KafkaError as error:
                unknown += isinstance(error, UnknownTopicOrPartitionError)
                if not error.retriable or unknown > UNKNOWN:
                    raise
                logger.debug(
                    "%s partition %d at %d is requested again: %s",
                    self._topic,
                    partition,
                    offset,
                    error,
                )
                # Another broker leads the partition now, or will in a moment.
                await client.force_metadata_update()
            await asyncio.sleep(AGAIN)

    async def _ask(self, client: AIOKafkaClient, partition: int, offset: int) -> bytes | None:
        """One request; None where the broker has records there and sends none, as it does to
        clients that use up their quota.
        """
        request = FetchRequest(0, 0, 4 * FETCH, 0, [(self._topic, [(partition, offset, FETCH)])])
        response = await client.send(self._leader(client, partition), request)
        ((_, ((_, code, end, *_, records),)),) = response.topics
        if code:
            raise for_code(code)(f"{self._topic} {partition} at {offset}")
        return records or (None if offset < end else b"")

    def _leader(self, client: AIOKafkaClient, partition: int) -> int:
        node = client.cluster.leader_for_partition(TopicPartition(self._topic, partition))
        if client.cluster.partitions_for_topic(self._topic) is None:
            raise UnknownTopicOrPartitionError(self._topic)
        if node is None or node < 0:
            raise LeaderNotAvailableError(f"{self._topic} {partition}")
        return int(node)

    async def _beginning(self, client: AIOKafkaClient, partition: int) -> int:
        """The first offset that the broker has of a partition."""
        request = OffsetRequest(-1, 0, [(self._topic, [(partition, OffsetResetStrategy.EARLIEST)])])
        response = await client.send(self._leader(client, partition), request)
        _, code, *_, offset = response.topics[0][1][0]
        if code:
            raise for_code(code)(f"the beginning of {self._topic} {partition}")
        return int(offset)

    def _take(self, partition: int, wanted: list[int], records: bytes, to: dict[int, Raw]) -> int:
        """Take the wanted records of an answer; returns the offset after all that is in it.

        Batches without any are neither unpacked nor checked.
        """
        batches, end = MemoryRecords(records), 0
        while batches.has_next():
            batch: Any = batches.next_batch()
            end = batch.next_offset
            first = bisect_left(wanted, getattr(batch, "base_offset", 0))
            here = set(wanted[first : bisect_left(wanted, end)])
            if not here or batch.is_control_batch:
                continue
            try:
                if not batch.validate_crc():
                    raise CorruptRecordException("its checksum does not fit")
                last = max(here)
                for r in batch:
                    if r.offset in here:
                        place = Position(partition, r.offset)
                        to[r.offset] = Raw(place, r.key, r.value, r.timestamp)
                    if r.offset >= last:
                        break
            except CorruptRecordException as error:
                if not self._passes_damaged:
                    raise
                logger.error(
                    "%s partition %d: the batch before offset %d cannot be read: %s",
                    self._topic,
                    partition,
                    end,
                    error,
                )
        return end

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


def _runs(offsets: list[int], gap: int) -> list[list[int]]:
    """Split sorted offsets into runs in which neighbours lie at most ``gap`` apart."""
    runs: list[list[int]] = []
    for offset in offsets:
        if runs and offset - runs[-1][-1] <= gap:
            runs[-1].append(offset)
        else:
            runs.append([offset])
    return runs
