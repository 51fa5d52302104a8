"""A partition's feed: batches are what has come, in order, within bounds; one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from projections.names import Position
from streams.log.log import Raw, Row
from streams.partition.queue import PartitionQueue
from tests.support.worker import until


def rows(first: int, n: int, size: int = 10) -> list[Raw]:
    return [Raw(Position(0, first + i), b"t/c", b"x" * size, 0) for i in range(n)]


class Work:
    """What a feed works on: notes the batches, and waits while it is held."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.busy = 0
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self, batch: Sequence[Row]) -> None:
        self.busy += 1
        assert self.busy == 1, "one batch at a time"
        self.batches.append([row.offset for row in batch])
        await self.go.wait()
        self.busy -= 1


async def settle(work: Work, n: int) -> None:
    async def taken() -> bool:
        return sum(map(len, work.batches)) >= n

    await until(taken, limit=5)


async def test_an_idle_feed_takes_each_row_at_once_and_a_busy_one_takes_what_came_meanwhile() -> (
    None
):
    work = Work()
    feed = PartitionQueue(work, batch_rows=100, batch_bytes=10**6)
    feed.start("feed")
    for i in range(3):
        feed.put(rows(i, 1))
        await settle(work, i + 1)
    assert work.batches == [[0], [1], [2]]
    work.go.clear()
    feed.put(rows(3, 1))
    await settle(work, 4)
    for i in range(4, 44):
        feed.put(rows(i, 1))
    work.go.set()
    await settle(work, 44)
    assert work.batches[4:] == [list(range(4, 44))]
    await feed.closed()


async def test_a_batch_is_bounded_by_rows_and_by_bytes_but_for_one_large_row() -> None:
    work = Work()
    feed = PartitionQueue(work, batch_rows=10, batch_bytes=1_000)
    work.go.clear()
    feed.put([*rows(0, 25, 1), *rows(25, 3, 400), *rows(28, 1, 5_000), *rows(29, 1, 1)])
    work.go.set()
    feed.start("feed")
    await settle(work, 30)
    assert work.batches == [
        list(range(0, 9)),
        list(range(9, 18)),
        list(range(18, 25)),
        [25, 26],
        [27],
        [28],
        [29],
    ]
    await feed.closed()


async def test_a_full_feed_says_so_until_there_is_room() -> None:
    work = Work()
    feed = PartitionQueue(work, batch_rows=10, batch_bytes=10_000)
    feed.put(rows(0, 19))
    assert not feed.full
    feed.put(rows(19, 1))
    assert feed.full
    feed.start("feed")
    await settle(work, 20)
    assert not feed.full
    feed.put(rows(20, 2, 12_000))
    assert feed.full, "by bytes"
    await feed.closed()


async def test_a_closed_feed_ends_after_the_batch_at_hand_and_drops_the_rest() -> None:
    work = Work()
    feed = PartitionQueue(work, batch_rows=2, batch_bytes=10**6)
    work.go.clear()
    feed.put(rows(0, 6))
    feed.start("feed")
    await settle(work, 2)
    closing = asyncio.create_task(feed.closed())
    await asyncio.sleep(0)
    feed.put(rows(6, 1))
    assert not closing.done()
    work.go.set()
    await closing
    assert work.batches == [[0, 1]]
