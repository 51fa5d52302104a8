"""The log in memory."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence

from projections.events.validation import Record
from projections.names import Position, partition_of
from streams.encryption.payload_cipher import PayloadCipher, Unsealed
from streams.log.log import Raw, Row


class MemoryLog:
    """A :class:`streams.log.log.Log` in memory, for tests.

    It partitions by key as Kafka does, so a conversation has the same partition in both. Offsets of
    a partition start at 0 and have no gaps (Kafka's may have). An instance belongs to one event
    loop; calls of several tasks may interleave.
    """

    def __init__(self, partitions: int, *, seals: PayloadCipher | None = None) -> None:
        """Args: ``partitions``, 1 or more, fixed for the instance's life; ``seals`` None seals
        nothing. Raises ``ValueError`` below 1.
        """
        if partitions < 1:
            raise ValueError(f"a log has 1 or more partitions, not {partitions}")
        self.partitions = partitions
        self.seals: PayloadCipher = seals or Unsealed()
        self.accepts_lost_beginning = False
        self._rows: list[list[Raw]] = [[] for _ in range(partitions)]

    async def append(self, records: Sequence[Record]) -> list[Position]:
        return [
            self.put(partition_of(r.key, self.partitions), str(r.key).encode(), r.value)
            for r in await self.seals.seal(records)
        ]

    def put(
        self,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None = None,
    ) -> Position:
        """Append any bytes to a partition, as a foreign producer could; returns their position.
        ``timestamp`` is the broker's, in ms (None: now).

        Raises:
            IndexError: there is no such partition.
        """
        rows = self._rows[partition]
        position = Position(partition, len(rows))
        last = rows[-1].timestamp if rows else 0
        now = time.time_ns() // 1_000_000 if timestamp is None else timestamp
        rows.append(Raw(position, key, value, max(last, now)))
        return position

    def rows(self, partition: int) -> list[Raw]:
        """All records of a partition, in order."""
        return list(self._rows[partition])

    async def read(self, positions: Iterable[Position]) -> dict[Position, Raw]:
        found = {}
        for position in positions:
            if 0 <= position.partition < self.partitions and 0 <= position.offset < len(
                self._rows[position.partition]
            ):
                found[position] = self._rows[position.partition][position.offset]
        await self.seals.ready(found.values())
        return found

    async def read_within(
        self, positions: Sequence[Position], most_bytes: int
    ) -> tuple[dict[Position, Raw], int]:
        found: dict[Position, Raw] = {}
        for count, position in enumerate(positions, 1):
            found |= await self.read([position])
            if sum(len(raw.value or b"") for raw in found.values()) >= most_bytes:
                return found, count
        return found, len(positions)

    async def scan(self, partition: int, first: int, last: int) -> AsyncIterator[Raw]:
        at = max(0, first)
        while at <= last and at < len(self._rows[partition]):
            await self.seals.ready([self._rows[partition][at]])
            yield self._rows[partition][at]
            at += 1

    async def stream(
        self, ranges: Mapping[int, tuple[int, int]]
    ) -> AsyncGenerator[tuple[int, Sequence[Row]], None]:
        for partition, (first, last) in ranges.items():
            rows = self._rows[partition][max(0, first) : last + 1]
            for i in range(0, len(rows), 100):
                await self.seals.ready(rows[i : i + 100])
                yield partition, rows[i : i + 100]

    async def end_offsets(self) -> dict[int, int]:
        return {partition: len(rows) for partition, rows in enumerate(self._rows)}

    async def last_records(self) -> dict[int, int]:
        return await self.end_offsets()

    async def beginning_offsets(self) -> dict[int, int]:
        return dict.fromkeys(range(self.partitions), 0)
