"""The partition runtime: rebalances, failures, and how much it fetches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import TopicPartition

from projections.errors import KeyUnusable, TopicMismatch
from projections.names import Position
from projections.storage.records import Checkpoint
from streams.log.log import Raw, Row
from streams.partition.folder import Folder, Prepared
from streams.partition.owned import Fenced, OwnedPartition
from streams.partition.runtime import PartitionRuntime
from streams.settings.settings import Settings
from tests.support.worker import until
from threadfold.testing import MemoryLog

SETTINGS = Settings(kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0")


class Count(OwnedPartition):
    """Counts its rows."""

    def __init__(self, number: int) -> None:
        super().__init__(number, f"partition {number}")

    async def stored_checkpoint(self) -> Checkpoint:
        return self.checkpoint


class Counting(Folder[Count]):
    """Folds rows by counting them, or fails on the first ones."""

    name = "counting"
    fatal = (KeyUnusable,)

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.prepared: list[int] = []
        self.offsets: list[int] = []

    async def prepare(self, number: int, committed: int) -> Prepared[Count] | None:
        self.prepared.append(number)
        return Prepared(Count(number), 0)

    async def process(self, partition: Count, rows: Sequence[Row]) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.offsets += [row.offset for row in rows]

    async def drop(self, partition: Count) -> None:
        """There is no store."""

    async def look_after(self, partition: Count) -> None:
        """Nothing is to be done."""


class Consumer:
    """As much of a consumer as is asked here. It holds many records, compressed, and unpacks as
    many as it is asked for.
    """

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition("events", number) for number in self.numbers}

    async def committed(self, _: TopicPartition) -> None:
        """Nothing was committed."""

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Every read begins at the first record."""

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Raw]]:
        del timeout_ms
        count = 200_000 if max_records is None else min(200_000, max_records)
        return {partitions[0]: [row(i) for i in range(count)]}


def row(offset: int) -> Raw:
    return Raw(Position(0, offset), b"acme/c", b"v", 0)


@asynccontextmanager
async def running(
    folder: Folder[Count], *numbers: int
) -> AsyncIterator[tuple[PartitionRuntime[Count], Any]]:
    runtime = PartitionRuntime(SETTINGS, MemoryLog(2), folder, group="g")
    runtime.consumer = consumer = Consumer(*numbers)
    try:
        yield runtime, consumer
    finally:
        await asyncio.gather(*(queue.closed() for queue in runtime.queues()))


async def test_a_partition_assigned_while_others_are_prepared_is_prepared_in_the_next_round() -> (
    None
):
    class Rebalanced(Counting):
        async def prepare(self, number: int, committed: int) -> Prepared[Count] | None:
            if consumer.numbers == (0,):
                consumer.numbers = (0, 1)
                runtime.revoked([0])
                runtime.assigned([0, 1])
            return await super().prepare(number, committed)

    folder = Rebalanced()
    async with running(folder, 0) as (runtime, consumer):
        runtime.assigned([0])
        await asyncio.gather(*runtime.prepare_all())
        await asyncio.gather(*runtime.prepare_all())
        assert folder.prepared == [0, 1]
        assert runtime.assignment().keys() == {0, 1} and None not in runtime.assignment().values()


async def test_a_partition_that_is_taken_away_while_it_is_prepared_is_not_folded() -> None:
    class Revoked(Counting):
        async def prepare(self, number: int, committed: int) -> Prepared[Count] | None:
            runtime.revoked([number])
            return await super().prepare(number, committed)

    async with running(Revoked(), 0) as (runtime, _):
        runtime.assigned([0])
        await asyncio.gather(*runtime.prepare_all())
        assert not runtime.partitions and not runtime.unprepared


@pytest.mark.parametrize(
    "error",
    [TopicMismatch("a topic does not exist"), OverflowError("not foreseen"), Fenced("another's")],
)
async def test_a_batch_that_fails_in_any_way_is_tried_again_and_does_not_end_its_partition_in_silence(
    error: Exception,
) -> None:
    folder = Counting(error)
    async with running(folder, 0) as (runtime, _):
        queue = runtime.take_over(Count(0))
        queue.put([row(0)])
        await until(lambda: asyncio.sleep(0, 0 in runtime.unprepared))
        queue.put([row(1)])
        await until(lambda: asyncio.sleep(0, not queue.held))
        assert folder.offsets == [], "nothing is folded beyond what failed"
        assert runtime.failure is None
        await until(lambda: _prepared(runtime))
        (queue,) = runtime.queues()
        queue.put([row(0)])
        await until(lambda: asyncio.sleep(0, folder.offsets == [0]))


async def _prepared(runtime: PartitionRuntime[Count]) -> bool:
    await asyncio.gather(*runtime.prepare_all())
    return not runtime.unprepared


async def test_a_fatal_error_ends_the_run_and_nothing_is_folded_after_it() -> None:
    folder = Counting(KeyUnusable("no master key"))
    async with running(folder, 0) as (runtime, _):
        queue = runtime.take_over(Count(0))
        queue.put([row(0)])
        await until(lambda: asyncio.sleep(0, runtime.failure is not None))
        queue.put([row(1)])
        await until(lambda: asyncio.sleep(0, not queue.held))
        assert isinstance(runtime.failure, KeyUnusable) and folder.offsets == []


async def test_a_fetch_of_a_partition_that_is_far_behind_does_not_unpack_all_that_came_of_it() -> (
    None
):
    async with running(Counting(), 0) as (runtime, _):
        runtime.take_over(Count(0))
        rows = await runtime.fetch()
        assert 0 < sum(map(len, rows.values())) <= 2 * SETTINGS.batch_events


async def test_rows_fetched_before_their_partition_was_prepared_anew_are_not_folded() -> None:
    class Waiting:
        """A watch that reads the log for partition 0 until partition 1 is prepared anew."""

        async def follows(self, number: int, _: Sequence[Row]) -> bool:
            if number == 0:
                runtime.prepare_again(1, 0.0)
                await asyncio.gather(*runtime.prepare_all())
            return True

        def way(self, _: int) -> None:
            """Nobody asks for it."""

        def begin(self, *_: object) -> None:
            """Partition 1 is fed from its checkpoint again."""

        end = way

    class Both(Consumer):
        async def getmany(
            self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
        ) -> dict[TopicPartition, list[Raw]]:
            return {tp: [row(7)] for tp in sorted(self.assignment())}

    folder = Counting()
    async with running(folder, 0, 1) as (runtime, _):
        runtime.assigned([0, 1])
        await asyncio.gather(*runtime.prepare_all())
        runtime.consumer, runtime.watch = Both(0, 1), Waiting()  # type: ignore[assignment]
        await runtime.step()
        assert folder.prepared == [0, 1, 1]
        assert [queue.rows for queue in runtime.queues()] == [1, 0], (
            "they stand behind those that are fetched next"
        )
