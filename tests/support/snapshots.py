"""A snapshots topic in memory that can be compacted, fail and be written to by strangers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from projections.errors import KafkaUnavailable
from projections.names import Position
from streams.log.log import Raw
from streams.recovery.snapshot_topic import Row


class MemorySnapshots:
    """A :class:`streams.recovery.snapshot_topic.SnapshotTopic` in this process; every write lets
    other tasks run in between.
    """

    def __init__(self, partitions: int) -> None:
        self.rows: list[list[Raw]] = [[] for _ in range(partitions)]
        self.next = [0] * partitions
        self.begin = [0] * partitions
        self.fail_after: int | None = None
        self.reads = 0

    async def usable(self) -> str | None:
        return None

    async def put(self, partition: int, rows: Sequence[Row]) -> list[int]:
        offsets = []
        for key, value in rows:
            await asyncio.sleep(0)
            if self.fail_after is not None:
                if self.fail_after == 0:
                    raise KafkaUnavailable("writing snapshots: the test's brokers are away")
                self.fail_after -= 1
            offset = self.next[partition]
            self.next[partition] += 1
            self.rows[partition].append(Raw(Position(partition, offset), key, value, 0))
            offsets.append(offset)
        return offsets

    async def scan(self, partition: int, first: int, last: int) -> AsyncIterator[Raw]:
        for row in list(self.rows[partition]):
            if first <= row.position.offset <= last:
                yield row

    async def read(self, partition: int, offsets: Sequence[int]) -> dict[int, Raw]:
        await asyncio.sleep(0)
        self.reads += 1
        return {
            row.position.offset: row
            for row in self.rows[partition]
            if row.position.offset in set(offsets)
        }

    async def bounds(self, partition: int) -> tuple[int, int]:
        return self.begin[partition], self.next[partition]

    def delete(self, partition: int, before: int) -> None:
        """Delete records, as an operator's tool does."""
        self.begin[partition] = before
        self.rows[partition] = [
            row for row in self.rows[partition] if row.position.offset >= before
        ]

    def compact(self, partition: int) -> None:
        """Keep the latest record of each key, and deletions not at all, as Kafka does in the
        end.
        """
        latest = {row.key: row for row in self.rows[partition]}
        last = self.next[partition] - 1
        self.rows[partition] = [
            row
            for row in self.rows[partition]
            if latest[row.key] is row and (row.value is not None or row.position.offset == last)
        ]
