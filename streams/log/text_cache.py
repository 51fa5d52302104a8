"""A log that remembers: records that were streamed or read a moment ago are answered from memory,
in bounded bytes.

A rollback into summarised history reads its conversation back to the first event, and the next one
reads most of it again. Live that is rare; in a rebuild all rollbacks of years come in one go, and
each scattered read costs a round trip to Kafka.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from operator import attrgetter

from projections.events.validation import Record
from projections.names import Position
from streams.encryption.payload_cipher import PayloadCipher
from streams.log.log import Log, Raw, Row

STREAMED_BYTES = 64 << 20
READ_BYTES = 32 << 20
"""Bytes of records kept at most, of those that went by last and of those that were read last."""
ROW_BYTES = 500
"""What a record takes in memory beside its value, about."""
_offset = attrgetter("offset")


class TextCache:
    """A :class:`streams.log.log.Log` in front of another one. For one reader, in one event loop;
    records never change.
    """

    def __init__(
        self, log: Log, streamed_bytes: int = STREAMED_BYTES, read_bytes: int = READ_BYTES
    ) -> None:
        self._log = log
        self._streams: dict[int, deque[tuple[Sequence[Row], int]]] = {}
        """Of each partition, the batches that went by, without a gap between them, and their sizes.
        """
        self._order: deque[int] = deque()
        """Whose batch came when."""
        self._streamed, self._streamed_most = 0, streamed_bytes
        self._rows: OrderedDict[Position, Raw] = OrderedDict()
        self._read, self._read_most = 0, read_bytes

    @property
    def partitions(self) -> int:
        """How many partitions the log has."""
        return self._log.partitions

    @property
    def seals(self) -> PayloadCipher:
        """Those of the log behind."""
        return self._log.seals

    async def append(self, records: Sequence[Record]) -> list[Position]:
        """Append to the log behind; raises as it does."""
        return await self._log.append(records)

    async def beginning_offsets(self) -> dict[int, int]:
        """For each partition the offset of its first record."""
        return await self._log.beginning_offsets()

    async def end_offsets(self) -> dict[int, int]:
        """For each partition the offset the next record will get."""
        return await self._log.end_offsets()

    async def last_records(self) -> dict[int, int]:
        """For each partition the offset after its last record."""
        return await self._log.last_records()

    async def stream(
        self, ranges: Mapping[int, tuple[int, int]]
    ) -> AsyncGenerator[tuple[int, Sequence[Row]], None]:
        """The records of several partitions, as the log behind streams them; what went by lately is
        kept.
        """
        for partition in ranges:
            # Where the stream begins anew there may be a gap.
            self._streamed -= sum(size for _, size in self._streams.pop(partition, ()))
        async with aclosing(self._log.stream(ranges)) as batches:
            async for number, rows in batches:
                if rows:
                    self._went_by(number, rows)
                yield number, rows

    async def read(self, positions: Iterable[Position]) -> dict[Position, Raw]:
        """The records at these positions; positions that the log does not hold are absent from the
        answer.
        """
        found: dict[Position, Raw] = {}
        missing: list[Position] = []
        for position in positions:
            raw = self._known(position)
            if raw is None:
                missing.append(position)
            else:
                found[position] = raw
        if missing:
            for position, raw in (await self._log.read(missing)).items():
                found[position] = raw
                self._was_read(raw)
        if found:
            await self._log.seals.ready(found.values())
        return found

    async def scan(self, partition: int, first: int, last: int) -> AsyncIterator[Raw]:
        """All records of a partition from offset ``first`` to ``last``, both included, in order."""
        batches = self._streams.get(partition)
        if not batches or not (
            batches[0][0][0].offset <= first and last <= batches[-1][0][-1].offset
        ):
            async for raw in self._log.scan(partition, first, last):
                yield raw
            return
        for rows, _ in list(batches):
            if rows[-1].offset < first or rows[0].offset > last:
                continue
            part = rows[
                bisect_left(rows, first, key=_offset) : bisect_left(rows, last + 1, key=_offset)
            ]
            await self._log.seals.ready(part)
            for row in part:
                yield _raw(partition, row)

    def _known(self, position: Position) -> Raw | None:
        raw = self._rows.get(position)
        if raw is not None:
            self._rows.move_to_end(position)
            return raw
        batches = self._streams.get(position.partition)
        if not batches or position.offset < batches[0][0][0].offset:
            return None
        i = bisect_left(batches, position.offset, key=_last)
        rows = batches[i][0] if i < len(batches) else ()
        at = bisect_left(rows, position.offset, key=_offset)
        return (
            _raw(position.partition, rows[at])
            if at < len(rows) and rows[at].offset == position.offset
            else None
        )

    def _went_by(self, number: int, rows: Sequence[Row]) -> None:
        size = sum([len(row.value or b"") for row in rows]) + ROW_BYTES * len(rows)
        self._streams.setdefault(number, deque()).append((rows, size))
        self._order.append(number)
        self._streamed += size
        while self._streamed > self._streamed_most and len(self._order) > 1:
            batches = self._streams.get(self._order.popleft())
            if batches:
                self._streamed -= batches.popleft()[1]

    def _was_read(self, raw: Raw) -> None:
        if raw.position not in self._rows:
            self._rows[raw.position] = raw
            self._read += _size(raw)
            while self._read > self._read_most and len(self._rows) > 1:
                self._read -= _size(self._rows.popitem(last=False)[1])


def _last(batch: tuple[Sequence[Row], int]) -> int:
    return batch[0][-1].offset


def _raw(partition: int, row: Row) -> Raw:
    return Raw(Position(partition, row.offset), row.key, row.value, row.timestamp)


def _size(raw: Raw) -> int:
    return len(raw.value or b"") + ROW_BYTES
