"""A partition's records between the consumer and the fold: a queue with a bound, and one task that takes from it.

Each partition has its own, so one whose store is slow, or that reads the log for a rollback, holds no other. What a batch takes is what has
come meanwhile, up to a limit: one record when idle, for latency, and many under load, where each costs less.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from streams.log import Row


class Feed:
    """Rows of one partition, in order, for ``work``, which is awaited with one batch at a time."""

    def __init__(self, work: Callable[[list[Row]], Awaitable[None]], *, batch_rows: int, batch_bytes: int) -> None:
        """Args: ``batch_rows`` and ``batch_bytes`` bound a batch (one row is always taken); twice as much is full."""
        self._work = work
        self._batch_rows = batch_rows
        self._batch_bytes = batch_bytes
        self._rows: deque[Row] = deque()
        self._bytes = 0
        self._more = asyncio.Event()
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    def start(self, name: str) -> None:
        """Begin to work."""
        self._task = asyncio.create_task(self._run(), name=name)

    def put(self, rows: Sequence[Row]) -> None:
        """Queue rows that follow those before; the caller stops when the feed is :attr:`full`. Nothing happens once it is closed."""
        if not self._closed:
            self._rows.extend(rows)
            self._bytes += sum(map(_size, rows))
            self._more.set()

    @property
    def full(self) -> bool:
        """Whether no more should be put for now."""
        return len(self._rows) >= 2 * self._batch_rows or self._bytes >= 2 * self._batch_bytes

    def close(self) -> None:
        """Drop what is queued, and stop after the batch at hand."""
        self._closed = True
        self._rows.clear()
        self._more.set()

    async def closed(self) -> None:
        """Close, and wait until the batch at hand is done."""
        self.close()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while not self._closed:
            if not self._rows:
                self._more.clear()
                await self._more.wait()
                continue
            await self._work(self._take())

    def _take(self) -> list[Row]:
        rows, size = self._rows, 0
        batch: list[Row] = []
        while rows and len(batch) < self._batch_rows and (not batch or size + _size(rows[0]) <= self._batch_bytes):
            row = rows.popleft()
            size += _size(row)
            batch.append(row)
        self._bytes -= size
        return batch


def _size(row: Row) -> int:
    return len(row.value or b"") + 100
