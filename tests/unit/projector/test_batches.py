"""A batch that fails is tried again, and a fetch of a partition that is far behind is bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import TopicPartition

from projections.errors import TopicMismatch
from projections.names import Position
from streams.control.follower import Control
from streams.log.log import Raw
from streams.partition.partition import Partition
from streams.partition.queue import PartitionQueue
from streams.projector.projector import Projector
from streams.settings.settings import Settings
from tests.support.histories import KEY, RULES
from threadfold.testing import MemoryLog, MemoryStore


class _NoTopic:
    """A voice whose topic somebody deleted."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def report(self, *_: object) -> None:
        """Cuts are none of this test's business."""

    async def speak(self, partition: int, spoken: object, batch: object) -> None:
        raise self.error


@pytest.mark.parametrize(
    "error", [TopicMismatch("a topic does not exist"), OverflowError("not foreseen")]
)
async def test_a_batch_that_fails_in_any_way_is_tried_again_and_does_not_end_its_partition_in_silence(
    error: Exception,
) -> None:
    settings = Settings(kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0")
    projector = Projector(settings, Control(settings), MemoryLog(1), MemoryStore())

    async def learn(tenant: str) -> None:
        del tenant

    voice: Any = _NoTopic(error)
    partition = Partition(0, 1, projector.store, projector.log, RULES, learn=learn, voice=voice)
    projector._take_over(partition)
    feed = projector._feeds[0]
    try:
        feed.put([Raw(Position(0, 0), str(KEY).encode(), b"{no event", 0)])
        for _ in range(200):
            if 0 in projector._unprepared:
                break
            await asyncio.sleep(0.005)
        assert feed._task is not None and not feed._task.done(), "the feed still takes rows"
        assert 0 in projector._unprepared, "the partition is prepared anew, from its checkpoint"
    finally:
        feed.close()
        await asyncio.gather(feed.closed(), return_exceptions=True)


class _Behind:
    """A consumer that holds many records of a partition, compressed, and unpacks as many as it is
    asked for.
    """

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Raw]]:
        del timeout_ms
        count = 200_000 if max_records is None else min(200_000, max_records)
        return {partitions[0]: [Raw(Position(0, i), b"k", b"v", 0) for i in range(count)]}


async def test_a_fetch_of_a_partition_that_is_far_behind_does_not_unpack_all_that_came_of_it() -> (
    None
):
    settings = Settings(kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0")
    projector = Projector(settings, Control(settings), MemoryLog(1), MemoryStore())
    consumer: Any = _Behind()
    projector._feeds[0] = PartitionQueue(
        lambda rows: asyncio.sleep(0),
        batch_rows=settings.batch_events,
        batch_bytes=settings.batch_bytes,
    )
    rows = await projector._fetch(consumer)
    assert sum(map(len, rows.values())) <= 2 * settings.batch_events
