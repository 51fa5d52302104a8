"""The log in Kafka: append records and learn their positions, read them back at positions and in
ranges.

An append is acknowledged when all in-sync replicas have it. An append that failed is *unknown*: it
may still land later, so it is repeated with the same ids, and the fold recognises the repeat. A
list for one partition goes out in one record batch (``streams.log.appender``), so a retry
cannot reorder it; what is on its way has a bound.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import repeat

from aiokafka import AIOKafkaConsumer, TopicPartition

from projections.errors import EventTooLarge, KafkaUnavailable
from projections.events.validation import Record
from projections.names import Key, Position, partition_of
from streams.encryption.payload_cipher import PayloadCipher, Unsealed
from streams.log.appender import Load, Pair, Place
from streams.log.appenders import AppendersByKind
from streams.log.clients import (
    MAX_REQUEST,
    SharedProducer,
    kafka_errors,
    make_consumer,
    reading_kafka,
    sequential_consumer,
    start_client,
    stop_client,
)
from streams.log.log import Raw, Row
from streams.log.random_reads import RandomReads
from streams.log.range_fetch import fetch_some
from streams.log.replication import Replicas
from streams.runtime.tune_gc import Sweep
from streams.settings.settings import Settings

PAGE_FETCH = 256 << 10
"""Bytes the broker answers with where a short range is read: what comes beyond it is dropped."""
GAP = 200
"""Records between two wanted ones that are read over: it is cheaper than another request."""
FEWER = 8
"""Of records that are too large together, so many times fewer are read."""
APPEND = "append (unknown whether it is in: repeat it with the same ids)"
READ = "reading the log"
APPEND_SHARE = 0.85
WHY_SHARE = 0.1
"""The parts of the append time-out in which the brokers have to acknowledge, and in which they may
report why they did not.
"""
_NOWHERE = Position(-1, -1)
# What Position(…) does, without a call of Python for each: half of what an answer costs.
_make_position: partial[Position] = partial(tuple.__new__, Position)


class KafkaLog:
    """The log in Kafka's events topic. Start it before use, stop it after; one instance serves any
    number of callers.
    """

    def __init__(
        self,
        settings: Settings,
        partitions: int,
        topic: str = "events",
        *,
        seals: PayloadCipher | None = None,
        producer: SharedProducer | None = None,
        load: Load | None = None,
        admit: Callable[[str], None] | None = None,
    ) -> None:
        """Args: ``seals`` None: nothing is sealed, and what is sealed cannot be read. ``admit`` is
        called with each tenant of an append, and raises where it may not be.
        """
        self.seals: PayloadCipher = seals or Unsealed()
        self._admit = admit
        self.settings = settings
        self.partitions = partitions
        self.accepts_lost_beginning = settings.accept_truncated_log
        self.topic = settings.topic(topic)
        self._appenders = AppendersByKind(self.topic, partitions, settings, producer)
        self._load = load or Load()
        self._replicas = Replicas(settings, topic)
        self._points = RandomReads(settings, self.topic, READ, gap=GAP)
        self._consumer: AIOKafkaConsumer | None = None
        self._locks = [asyncio.Lock() for _ in range(partitions)]
        self._starting = asyncio.Lock()
        self._fetches = 0
        self._sweep = Sweep()
        self._begins: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._tops: dict[int, tuple[int, int]] = {}

    @property
    def reads(self) -> int:
        """Fetches that were answered so far: a sign of life while something long is read."""
        return self._fetches + self._points.reads

    async def stop(self) -> None:
        """Close the clients; an append that is still under way fails, unknown whether it is in."""
        await asyncio.gather(self._appenders.stop(), self._replicas.stop())
        await self._points.stop()
        if self._consumer is not None:
            await stop_client(self._consumer, self.settings)
            self._consumer = None

    # -- appending

    async def append(self, records: Sequence[Record]) -> list[Position]:
        if self._admit is not None:
            for tenant in {record.key.tenant for record in records}:
                self._admit(tenant)
        records = await self.seals.seal(records)
        parts: dict[int, tuple[list[int], list[Pair]]] = {}
        sizes: dict[Place, int] = {}
        for i, record in enumerate(records):
            value = record.value
            size = len(value)
            # Before anything is sent: a batch is judged compressed, a record by itself is not.
            if size > MAX_REQUEST - 1024:
                raise EventTooLarge(
                    f"event {record.id}: {size} bytes exceed the size limit of a Kafka message"
                )
            partition, key = _place(record.key, self.partitions)
            part = parts.get(partition)
            if part is None:
                part = parts[partition] = ([], [])
            part[0].append(i)
            part[1].append((key, value))
            place = record.key.tenant, partition
            sizes[place] = sizes.get(place, 0) + size
        with self._load.of(sizes):
            async with kafka_errors(self.settings, APPEND):
                offsets = await self._send(
                    {partition: rows for partition, (_, rows) in parts.items()}
                )
        if len(parts) == 1:
            ((partition, found),) = offsets.items()
            return list(map(_make_position, zip(repeat(partition), found)))
        positions: list[Position] = [_NOWHERE] * len(records)
        for partition, (places, _) in parts.items():
            made = map(_make_position, zip(repeat(partition), offsets[partition]))
            for i, position in zip(places, made, strict=True):
                positions[i] = position
        return positions

    async def _send(self, rows: dict[int, list[Pair]]) -> dict[int, list[int]]:
        """Send each partition's rows, side by side; returns their offsets."""
        limit = self.settings.append_timeout * APPEND_SHARE
        try:
            async with asyncio.timeout(limit):
                if len(rows) == 1:
                    ((partition, part),) = rows.items()
                    return {partition: await self._appenders.append(partition, part)}
                sent = await asyncio.gather(
                    *(self._appenders.append(partition, part) for partition, part in rows.items())
                )
                return dict(zip(rows, sent, strict=True))
        except TimeoutError:
            why = await self._replicas.why(rows, self.settings.append_timeout * WHY_SHARE)
            raise (
                KafkaUnavailable(f"{APPEND}: {why}")
                if why
                else TimeoutError(f"no answer within {limit:g} s")
            ) from None

    # -- reading

    async def read(self, positions: Iterable[Position]) -> dict[Position, Raw]:
        return await self._read(positions, None) or {}

    async def _read(
        self, positions: Iterable[Position], most_bytes: int | None
    ) -> dict[Position, Raw] | None:
        """The records at these positions; None: of a partition they are more bytes."""
        of: dict[int, list[int]] = {}
        for position in set(positions):
            if 0 <= position.partition < self.partitions:
                of.setdefault(position.partition, []).append(position.offset)
        reads = (self._points.read_within(p, some, most_bytes) for p, some in of.items())
        found = await asyncio.gather(*reads)
        if None in found:
            return None
        rows = [raw for part in found if part is not None for raw in part.values()]
        await self.seals.ready(rows)
        return {raw.position: raw for raw in rows}

    async def read_within(
        self, positions: Sequence[Position], most_bytes: int
    ) -> tuple[dict[Position, Raw], int]:
        count = len(positions)
        while count > 1:
            found = await self._read(positions[:count], most_bytes)
            if found is not None:
                return found, count
            count = max(1, count // FEWER)
        return await self.read(positions[:count]), count

    async def scan(self, partition: int, first: int, last: int) -> AsyncIterator[Raw]:
        at = first
        while at <= last:
            async with reading_kafka(self.settings, READ), self._locks[partition]:
                rows, at_next = await self._fetch(partition, at, last)
            await self.seals.ready(rows)
            for row in rows:
                yield row
            if at_next <= at:
                return
            at = at_next

    async def stream(
        self, ranges: Mapping[int, tuple[int, int]]
    ) -> AsyncGenerator[tuple[int, Sequence[Row]], None]:
        ends, lasts = await self.end_offsets(), {}
        for partition, (first, last) in ranges.items():
            if max(first, 0) <= min(last, ends[partition] - 1):
                lasts[TopicPartition(self.topic, partition)] = min(last, ends[partition] - 1)
        if not lasts:
            return
        async with (
            kafka_errors(self.settings, READ),
            sequential_consumer(self.settings, list(lasts)) as consumer,
        ):
            for tp in lasts:
                consumer.seek(tp, max(0, ranges[tp.partition][0]))
            heard = time.monotonic()
            while lasts:
                batches = await consumer.getmany(*lasts, timeout_ms=1000)
                now = time.monotonic()
                heard = now if batches else heard
                self._fetches += len(batches)
                if now - heard > self.settings.append_timeout:
                    raise KafkaUnavailable(
                        f"Kafka at {self.settings.kafka} delivers no more records of {self.topic}:"
                        " check that it runs"
                    )
                for tp, rows in batches.items():
                    last = lasts[tp]
                    await self.seals.ready(rows)
                    yield (
                        tp.partition,
                        rows
                        if rows[-1].offset <= last
                        else [row for row in rows if row.offset <= last],
                    )
                # By the position: a mark of a transactional producer is read over, and no record
                # comes for it.
                for tp in [tp for tp, last in lasts.items() if await consumer.position(tp) > last]:
                    del lasts[tp]

    async def _fetch(self, partition: int, at: int, last: int) -> tuple[list[Raw], int]:
        """One fetch from ``at``; returns the records up to ``last`` and where to go on (``at``
        itself: the log holds no more).
        """
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
        batch, passed = await self._fetch_some(consumer, tp, at, last)
        if passed <= at or (batch and batch[0].position.offset < at):
            # There is nothing any more, or aiokafka went back to the first record: this is another
            # log than the one whose end was seen.
            self._begins.pop(partition, None)
            self._ends.pop(partition, None)
            return [], at
        self._fetches += 1
        return batch, passed

    async def _fetch_some(
        self, consumer: AIOKafkaConsumer, tp: TopicPartition, at: int, last: int
    ) -> tuple[list[Raw], int]:
        """:func:`fetch_some`, in time."""
        consumer.seek(tp, at)
        consumer.resume(tp)
        try:
            async with asyncio.timeout(self.settings.append_timeout):
                return await fetch_some(consumer, tp, at, last)
        except TimeoutError:
            raise KafkaUnavailable(
                f"Kafka at {self.settings.kafka} did not deliver {tp.topic} {tp.partition} at {at}"
                " in time"
            ) from None
        finally:
            consumer.pause(tp)
            # What was fetched beyond is dropped at once: aiokafka would hold back the node's next
            # fetch for it, a tenth of a second.
            await consumer.getmany(tp, timeout_ms=0)
            self._sweep.dropped()

    def _places(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic, partition) for partition in range(self.partitions)]

    async def end_offsets(self) -> dict[int, int]:
        async with reading_kafka(self.settings, READ):
            found = await (await self._get_consumer()).end_offsets(self._places())
        ends = {tp.partition: offset for tp, offset in found.items()}
        for partition, end in ends.items():
            if end < self._ends.get(partition, 0):
                # It never grows shorter: this is another log.
                self._begins.pop(partition, None)
                self._ends[partition] = end
        return ends

    async def last_records(self) -> dict[int, int]:
        ends = await self.end_offsets()
        moved = [
            partition
            for partition, end in ends.items()
            if self._tops.get(partition, (-1, -1))[0] != end
        ]
        for partition, top in zip(
            moved, await asyncio.gather(*(self._top(p, ends[p]) for p in moved)), strict=True
        ):
            self._tops[partition] = ends[partition], top
        return {partition: self._tops[partition][1] for partition in ends}

    async def _top(self, partition: int, end: int) -> int:
        """The offset after a partition's last record before ``end``, looked for backwards; mostly
        the record before it is there.
        """
        if end and await self._points.read(partition, [end - 1]):
            return end
        step, last = 1, end - 1
        while last >= 0:
            first = max(0, last - step + 1)
            at, top, more = first, 0, True
            while more:
                async with reading_kafka(self.settings, READ), self._locks[partition]:
                    rows, passed = await self._fetch(partition, at, last)
                top = rows[-1].offset + 1 if rows else top
                at, more = passed, at < passed <= last
            begin = self._begins.get(partition, 0)
            if top or first <= begin:
                return top or begin
            step, last = min(2 * step, 1000), first - 1
        return 0

    async def beginning_offsets(self) -> dict[int, int]:
        async with reading_kafka(self.settings, READ):
            found = await (await self._get_consumer()).beginning_offsets(self._places())
        self._begins = {tp.partition: offset for tp, offset in found.items()}
        return dict(self._begins)

    async def bounds(self, partition: int) -> tuple[int, int]:
        """The first offset that a partition holds records from, and the next record's offset."""
        async with reading_kafka(self.settings, READ):
            consumer, tp = await self._get_consumer(), TopicPartition(self.topic, partition)
            begins, ends = await consumer.beginning_offsets([tp]), await consumer.end_offsets([tp])
            return begins[tp], ends[tp]

    async def _get_consumer(self) -> AIOKafkaConsumer:
        async with self._starting:
            if self._consumer is None:
                consumer = make_consumer(self.settings, max_partition_fetch_bytes=PAGE_FETCH)
                await start_client(consumer, self.settings)
                consumer.assign(self._places())
                consumer.pause(*self._places())
                self._consumer = consumer
            return self._consumer


@lru_cache(maxsize=65536)
def _place(key: Key, partitions: int) -> tuple[int, bytes]:
    """A conversation's partition, and the key of its records."""
    return partition_of(key, partitions), str(key).encode()
