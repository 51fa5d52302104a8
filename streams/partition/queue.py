"""A partition's records between the consumer and the fold: a queue with a bound, and one task that
takes from it.

Each partition has its own, so one whose store is slow, or that reads the log for a rollback, holds
no other. What a batch takes is what has come meanwhile, up to a limit: one record when idle, for
latency, and many under load, where each costs less.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from streams.log.log import Row


class PartitionQueue:
    """Rows of one partition, in order, for ``work``, which is awaited with one batch at a time."""

    def __init__(
        self, work: Callable[[Sequence[Row]], Awaitable[None]], *, batch_rows: int, batch_bytes: int
    ) -> None:
        """Args: ``batch_rows`` and ``batch_bytes`` bound a batch (one row is always taken); twice
        as much is full.
        """
        self._work = work
        self._batch_rows = batch_rows
        self._batch_bytes = batch_bytes
        self._rows: deque[tuple[Sequence[Row], int]] = deque()
        """Rows that were put together, and their bytes."""
        self._count = 0
        self._bytes = 0
        self._more = asyncio.Event()
        self._closed = False
        self._poked = False
        self._task: asyncio.Task[None] | None = None

    def start(self, name: str) -> None:
        """Begin to work."""
        self._task = asyncio.create_task(self._run(), name=name)

    def put(self, rows: Sequence[Row]) -> None:
        """Queue rows that follow those before; the caller stops when the feed is :attr:`full`.
        Nothing happens once it is closed.
        """
        if rows and not self._closed:
            size = _size(rows)
            self._rows.append((rows, size))
            self._count += len(rows)
            self._bytes += size
            self._more.set()

    def poke(self) -> None:
        """Have ``work`` called soon, with an empty batch where nothing is queued."""
        self._poked = True
        self._more.set()

    @property
    def full(self) -> bool:
        """Whether no more should be put for now."""
        return self._count >= 2 * self._batch_rows or self._bytes >= 2 * self._batch_bytes

    @property
    def rows(self) -> int:
        """How many rows are queued."""
        return self._count

    @property
    def held(self) -> int:
        """Bytes that are queued, roughly."""
        return self._bytes

    def close(self) -> None:
        """Drop what is queued, and stop after the batch at hand."""
        self._closed = True
        self._rows.clear()
        self._count = self._bytes = 0
        self._more.set()

    async def closed(self) -> None:
        """Close, and wait until the batch at hand is done."""
        self.close()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while not self._closed:
            if not self._rows and not self._poked:
                self._more.clear()
                await self._more.wait()
                continue
            self._poked = False
            await self._work(self._take())

    def _take(self) -> Sequence[Row]:
        """The next batch: rows that were put together stay together as far as the bounds allow, and
        are not looked at one by one.
        """
        batch: list[Row] = []
        room = self._batch_bytes
        while self._rows and len(batch) < self._batch_rows:
            rows, size = self._rows.popleft()
            n = min(len(rows), self._batch_rows - len(batch))
            if size > room:
                n = min(n, _within(rows, room))
            if not batch:
                n = max(n, 1)
            if n < len(rows):
                rest, rows = rows[n:], rows[:n]
                later = _size(rest)
                self._rows.appendleft((rest, later))
                size -= later
                room = 0
            batch += rows
            room -= size
            self._bytes -= size
            if room <= 0:
                break
        self._count -= len(batch)
        return batch


def _size(rows: Sequence[Row]) -> int:
    return sum([len(row.value or b"") + 100 for row in rows])


def _within(rows: Sequence[Row], room: int) -> int:
    """How many of the first rows are within ``room`` bytes."""
    for n, row in enumerate(rows):
        room -= _size([row])
        if room < 0:
            return n
    return len(rows)
