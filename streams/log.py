"""The log: append records and learn their positions, read them back at positions and in ranges.

An append is acknowledged when all in-sync replicas have it. An append that failed is *unknown*: it may still land later, so it is repeated
with the same ids, and the fold recognises the repeat. A list for one partition goes out as one record batch, so a retry cannot reorder it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from projections.errors import EventTooLarge, KafkaUnavailable
from projections.events import CONTENT_TYPE
from projections.intake import Record
from projections.names import Position, partition_of
from streams.kafka import MAX_REQUEST, SharedProducer, kafka_errors, make_consumer, start_client
from streams.settings import Settings

HEADERS = [("content-type", CONTENT_TYPE.encode())]


class Row(Protocol):
    """A record of one partition, as aiokafka hands it over."""

    @property
    def offset(self) -> int:
        """Its place in the partition."""

    @property
    def key(self) -> bytes | None:
        """Its key."""

    @property
    def value(self) -> bytes | None:
        """Its value."""

    @property
    def timestamp(self) -> int:
        """In ms, by the broker's clock."""


class Raw(NamedTuple):
    """A record as it stands in the log; ``timestamp`` in ms, by the broker's clock."""

    position: Position
    key: bytes | None
    value: bytes | None
    timestamp: int

    @property
    def offset(self) -> int:
        """Its place in the partition."""
        return self.position.offset


class Log(Protocol):
    """The unbounded store. ``streams.log.KafkaLog`` is the real one, ``threadfold.testing`` has one in memory."""

    @property
    def partitions(self) -> int:
        """How many partitions the log has; it never changes."""

    async def append(self, records: Sequence[Record]) -> list[Position]:
        """Append records in order (per conversation) and return their positions once they are safe.

        Raises:
            EventTooLarge: one of them is over what Kafka takes in one message; nothing was appended.
            KafkaUnavailable: unknown whether they are in; repeat with the same ids.
        """

    async def read(self, positions: Iterable[Position]) -> dict[Position, Raw]:
        """The records at these positions; positions that the log does not hold are absent from the answer."""

    def scan(self, partition: int, first: int, last: int) -> AsyncIterator[Raw]:
        """All records of a partition from offset ``first`` to ``last``, both included, in order."""

    async def ends(self) -> dict[int, int]:
        """For each partition the offset the next record will get."""


class KafkaLog:
    """The log in Kafka's events topic. Start it before use, stop it after; one instance serves any number of callers."""

    def __init__(self, settings: Settings, partitions: int, topic: str = "events") -> None:
        self.settings = settings
        self.partitions = partitions
        self.topic = settings.topic(topic)
        self._producer = SharedProducer(settings)
        self._consumer: AIOKafkaConsumer | None = None
        self._locks = [asyncio.Lock() for _ in range(partitions)]
        self._starting = asyncio.Lock()
        self._begins: dict[int, int] = {}
        self._ends: dict[int, int] = {}

    async def stop(self) -> None:
        """Flush and close the clients."""
        await self._producer.stop()
        if self._consumer is not None:
            await self._consumer.stop()
            self._consumer = None

    # -- appending -----------------------------------------------------------------------------------------------------------

    async def append(self, records: Sequence[Record]) -> list[Position]:
        for record in records:
            # Before anything is sent: a batch is judged compressed, a record by itself is not.
            if len(record.value) > MAX_REQUEST - 1024:
                raise EventTooLarge(f"event {record.id}: {len(record.value)} bytes are over what Kafka takes in one message")
        async with kafka_errors(self.settings, "append (unknown whether it is in: repeat it with the same ids)"):
            producer = await self._producer.get()
            by_partition: dict[int, list[int]] = {}
            for i, record in enumerate(records):
                by_partition.setdefault(partition_of(record.key, self.partitions), []).append(i)
            sent = await asyncio.gather(
                *(self._append_partition(producer, p, [records[i] for i in indexes]) for p, indexes in by_partition.items())
            )
        positions: dict[int, Position] = {}
        for (partition, indexes), offsets in zip(by_partition.items(), sent, strict=True):
            positions.update({i: Position(partition, offset) for i, offset in zip(indexes, offsets, strict=True)})
        return [positions[i] for i in range(len(records))]

    async def _append_partition(self, producer: AIOKafkaProducer, partition: int, records: list[Record]) -> list[int]:
        async with asyncio.timeout(self.settings.append_timeout):
            if len(records) == 1:
                record = records[0]
                key = str(record.key).encode()
                sent = await producer.send_and_wait(self.topic, record.value, key, partition=partition, headers=HEADERS)
                return [sent.offset]
            offsets: list[int] = []
            rest = records
            while rest:
                taken, base = await self._send_batch(producer, partition, rest)
                offsets += range(base, base + taken)
                rest = rest[taken:]
            return offsets

    async def _send_batch(self, producer: AIOKafkaProducer, partition: int, records: list[Record]) -> tuple[int, int]:
        """Send as many records as one batch takes (the first one, however large); returns how many and the first one's offset."""
        batch = producer.create_batch()
        taken = 0
        for record in records:
            if batch.append(key=str(record.key).encode(), value=record.value, timestamp=None, headers=HEADERS) is None:
                break
            taken += 1
        acknowledged = await (await producer.send_batch(batch, self.topic, partition=partition))
        return taken, acknowledged.offset

    # -- reading -------------------------------------------------------------------------------------------------------------

    async def read(self, positions: Iterable[Position]) -> dict[Position, Raw]:
        wanted: dict[int, list[int]] = {}
        for position in set(positions):
            if 0 <= position.partition < self.partitions:
                wanted.setdefault(position.partition, []).append(position.offset)
        found = await asyncio.gather(*(self._read_partition(p, sorted(offsets)) for p, offsets in wanted.items()))
        return {raw.position: raw for part in found for raw in part}

    async def _read_partition(self, partition: int, offsets: list[int]) -> list[Raw]:
        """Fetch scattered offsets: neighbours come in one fetch, far ones cost a seek each."""
        rows: list[Raw] = []
        for run in _runs(offsets):
            wanted = set(run)
            rows += [raw async for raw in self.scan(partition, run[0], run[-1]) if raw.position.offset in wanted]
        return rows

    async def scan(self, partition: int, first: int, last: int) -> AsyncIterator[Raw]:
        at = first
        while at <= last:
            async with self._locks[partition], kafka_errors(self.settings, "reading the log"):
                rows, at_next = await self._fetch(partition, at, last)
            for row in rows:
                yield row
            if at_next <= at:
                return
            at = at_next

    async def _fetch(self, partition: int, at: int, last: int) -> tuple[list[Raw], int]:
        """One fetch from ``at``; returns the records up to ``last`` and where to go on (``at`` itself: the log holds no more)."""
        consumer = await self._get_consumer()
        tp = TopicPartition(self.topic, partition)
        if partition not in self._begins:
            self._begins[partition] = (await consumer.beginning_offsets([tp]))[tp]
        at = max(at, self._begins[partition])
        if last >= self._ends.get(partition, 0):
            # The log only grows, so what was seen of its end need not be asked for again.
            self._ends[partition] = (await consumer.end_offsets([tp]))[tp]
        if at > last or at >= self._ends[partition]:
            return [], at
        batch = await self._fetch_some(consumer, tp, at, last)
        if batch[0].offset < at:
            # aiokafka went back to the first record: this is a younger topic than the one whose end was seen.
            self._begins.pop(partition, None)
            self._ends.pop(partition, None)
            return [], at
        rows = [Raw(Position(partition, r.offset), r.key, r.value, r.timestamp) for r in batch if r.offset <= last]
        return rows, batch[-1].offset + 1

    async def _fetch_some(self, consumer: AIOKafkaConsumer, tp: TopicPartition, at: int, last: int) -> list[Any]:
        """What the broker has from ``at`` on, at least one record."""
        consumer.seek(tp, at)
        consumer.resume(tp)
        try:
            async with asyncio.timeout(self.settings.append_timeout):
                while True:
                    batch: list[Any] = (await consumer.getmany(tp, timeout_ms=1000, max_records=min(2000, last - at + 1))).get(tp, [])
                    if batch:
                        return batch
        except TimeoutError:
            raise KafkaUnavailable(f"Kafka at {self.settings.kafka} did not deliver {tp.topic} {tp.partition} at {at} in time") from None
        finally:
            consumer.pause(tp)
            # What was fetched beyond is dropped at once: aiokafka would hold back the node's next fetch for it, a tenth of a second.
            await consumer.getmany(tp, timeout_ms=0)

    async def ends(self) -> dict[int, int]:
        async with kafka_errors(self.settings, "reading the log"):
            consumer = await self._get_consumer()
            ends = await consumer.end_offsets([TopicPartition(self.topic, p) for p in range(self.partitions)])
            return {tp.partition: offset for tp, offset in ends.items()}

    async def _get_consumer(self) -> AIOKafkaConsumer:
        async with self._starting:
            if self._consumer is None:
                consumer = make_consumer(self.settings)
                await start_client(consumer, self.settings)
                partitions = [TopicPartition(self.topic, p) for p in range(self.partitions)]
                consumer.assign(partitions)
                consumer.pause(*partitions)
                self._consumer = consumer
            return self._consumer


def _runs(offsets: list[int], gap: int = 200) -> list[list[int]]:
    """Split sorted offsets into runs in which neighbours lie at most ``gap`` apart: reading over a gap is cheaper than a seek."""
    runs: list[list[int]] = []
    for offset in offsets:
        if runs and offset - runs[-1][-1] <= gap:
            runs[-1].append(offset)
        else:
            runs.append([offset])
    return runs
