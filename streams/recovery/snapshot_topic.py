"""The snapshots topic: writing records to a partition, and finding a partition's latest marker.

It is key-compacted and has as many partitions as the events topic; a conversation's snapshot has
its events' partition. Reading it never decides what is true: see ``streams.recovery.healing`` for
what is trusted, ``streams.recovery.partition_snapshots`` for what makes that safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from projections.errors import KafkaUnavailable, TopicMismatch
from projections.names import Position
from projections.storage.snapshots import MARKER_KEY, Marker, Stamp, decode_marker
from streams.log.clients import SharedProducer, kafka_errors, reading_kafka
from streams.log.kafka_log import KafkaLog
from streams.log.log import Log, Raw
from streams.log.random_reads import RandomReads
from streams.log.topics import partition_count
from streams.partition.log_identity import identity
from streams.settings.settings import Settings

Row = tuple[bytes, bytes | None]
"""Key and value of a record to be written; no value deletes the key's snapshot."""

LOOK_BACK = 500


class SnapshotTopic(Protocol):
    """Where snapshots are kept. :class:`KafkaSnapshots` is the real one."""

    async def usable(self) -> str | None:
        """Why snapshots cannot be kept here, None when they can."""

    async def put(self, partition: int, rows: Sequence[Row]) -> list[int]:
        """Write records to a partition; returns their offsets once they are safe.

        Raises:
            EventTooLarge, KafkaUnavailable: unknown which of them are in.
        """

    def scan(self, partition: int, first: int, last: int) -> AsyncIterator[Raw]:
        """The records from offset ``first`` to ``last``, both included, in order; offsets that
        compaction removed are passed over.
        """

    async def read(self, partition: int, offsets: Sequence[int]) -> dict[int, Raw]:
        """The records at these offsets; those that are not there (any more) are absent. Raises
        KafkaUnavailable.
        """

    async def bounds(self, partition: int) -> tuple[int, int]:
        """The first offset that a partition holds records from (compaction leaves it), and the one
        that the next record will get.
        """


class KafkaSnapshots:
    """The snapshots topic in Kafka; nothing connects before it is used."""

    def __init__(self, settings: Settings, partitions: int) -> None:
        self.settings = settings
        self.partitions = partitions
        self._log = KafkaLog(settings, partitions, "snapshots")
        self._points = RandomReads(
            settings, settings.topic("snapshots"), "reading snapshots", damaged=True
        )
        # A producer of its own: what the projector has to say does not queue behind snapshots.
        self._producer = SharedProducer(settings)
        self._usable = False
        self.written = 0
        """Records written so far, deletions included."""

    @property
    def reads(self) -> int:
        """Fetches that were answered so far."""
        return self._log.reads

    async def stop(self) -> None:
        """Flush and close the clients."""
        await self._producer.stop()
        await self._points.stop()
        await self._log.stop()

    async def usable(self) -> str | None:
        try:
            count = await partition_count(self.settings, "snapshots")
        except TopicMismatch as error:
            return str(error)
        if count != self.partitions:
            return (
                f"topic {self._log.topic} has {count} partitions, the events have {self.partitions}"
            )
        return None

    async def put(self, partition: int, rows: Sequence[Row]) -> list[int]:
        async with (
            kafka_errors(self.settings, "writing snapshots"),
            asyncio.timeout(self.settings.append_timeout),
            self._producer.lent() as producer,
        ):
            sent: list[Any] = [
                await producer.send(self._log.topic, value, key, partition=partition)
                for key, value in rows
            ]
            offsets = [int(done.offset) for done in await asyncio.gather(*sent)]
        self.written += len(offsets)
        if any(offset < 0 for offset in offsets):
            raise KafkaUnavailable("writing snapshots: Kafka does not tell where they are")
        return offsets

    def scan(self, partition: int, first: int, last: int) -> AsyncIterator[Raw]:
        return self._log.scan(partition, first, last)

    async def read(self, partition: int, offsets: Sequence[int]) -> dict[int, Raw]:
        async with reading_kafka(self.settings, "bringing a sleeping conversation back"):
            # Asked for once, and again after a failure: of a topic with fewer partitions no leader
            # is ever found.
            if not self._usable and await self.usable() is not None:
                return {}
            self._usable = False
            try:
                found = await self._points.read(partition, offsets)
            except TopicMismatch:
                if await self.usable() is None:
                    raise
                return {}
            self._usable = True
            return found

    async def bounds(self, partition: int) -> tuple[int, int]:
        return await self._log.bounds(partition)


async def find_marker(
    topic: SnapshotTopic, log: Log, partition: int, stamp: Stamp
) -> tuple[Marker, Raw] | None:
    """The partition's latest marker and the log's record it names.

    None when there is no marker, or the latest is of another stamp, or the log is not the one it
    was made of, or records that it counts on were deleted.
    """
    begin, end = await topic.bounds(partition)
    first, step, value = end, LOOK_BACK, None
    while first > begin and value is None:
        # Backwards in growing steps: the latest marker is at most one round of snapshots away from
        # the end.
        last, first, step = first - 1, max(begin, first - step), step * 4
        async for row in topic.scan(partition, first, last):
            if row.key == MARKER_KEY:
                value = row.value
    marker = decode_marker(value, stamp)
    if marker is None or marker.begin != begin:
        return None
    position = Position(partition, marker.offset)
    raw = (
        (await log.read([position])).get(position)
        if marker.offset < (await log.end_offsets())[partition]
        else None
    )
    return (marker, raw) if raw is not None and identity(raw) == marker.digest else None
