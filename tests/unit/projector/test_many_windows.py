"""A batch of many conversations is written in parts: Redis answers others between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka import TopicPartition

from projections.events.validation import make_record
from projections.names import Key
from projections.storage.records import Checkpoint
from streams.control.control_topic import Control
from streams.control.state import State
from streams.log.log import Row
from streams.partition.failure_share import Excess, Failing
from streams.partition.partition import Partition
from streams.projector.projector import MOST_WINDOWS, Projector, windows_at_most
from streams.settings.settings import Settings
from threadfold.testing import MemoryLog, MemoryStore

MANY = 2 * MOST_WINDOWS + 100


class Counting(MemoryStore):
    """Counts the windows of each write."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    async def apply(
        self, generation: int, partition: int, checkpoint: Checkpoint, writes: Sequence[Any]
    ) -> Any:
        self.sizes.append(len(writes))
        return await super().apply(generation, partition, checkpoint, writes)


class Known(Control):
    """Every tenant is known."""

    async def sync(self) -> State:
        return self.state


class Consumer:
    """As much of a consumer as is asked here: its group is new."""

    async def committed(self, tp: TopicPartition) -> int:
        return 0

    def seek(self, tp: TopicPartition, offset: int) -> None: ...


async def begun(store: MemoryStore) -> tuple[Projector, Partition, list[Row]]:
    """A projector whose one partition has not folded an event of each of many conversations."""
    settings = Settings(kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0", partitions=1)
    log = MemoryLog(1)
    for i in range(MANY):
        key = Key("acme", f"c{i}")
        flat = {"type": "message", "role": "user", "content": "hello"}
        now = "2026-01-01T00:00:00Z"
        record = make_record(key, flat, where="event", now=now, new_id=f"m{i}")
        log.put(0, str(key).encode(), record.value)
    projector = Projector(settings, Known(settings), log, store)
    projector.generation = 1
    projector.runtime.assigned([0])
    assert await projector.runtime.prepare(Consumer(), 0)  # type: ignore[arg-type]
    return projector, projector.partitions[0], [raw async for raw in log.scan(0, 0, MANY - 1)]


async def test_a_batch_of_many_conversations_is_written_in_parts() -> None:
    store = Counting()
    projector, partition, rows = await begun(store)
    await projector.process(partition, rows)
    assert partition.checkpoint.offset == MANY - 1
    assert [size for size in store.sizes if size] == [MOST_WINDOWS, MOST_WINDOWS, 100]


async def test_a_partition_that_halts_goes_no_further_than_the_part_in_which_it_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    projector, partition, rows = await begun(MemoryStore())
    fold = partition.fold

    async def failing(part: Sequence[Row]) -> None:
        await fold(part)
        partition.excess = Excess(1, 1, Failing(part[-1].offset, "it fails"), part[-1].offset)

    monkeypatch.setattr(partition, "fold", failing)
    await projector.process(partition, rows)
    assert partition.checkpoint.offset == MOST_WINDOWS - 1
    assert projector.halted_after(0) == MOST_WINDOWS - 1


async def test_few_conversations_and_none_are_one_part() -> None:
    assert list(windows_at_most([], 2)) == [[]]
    log = MemoryLog(1)
    for name in (b"a", b"b", b"a", b"b", b"c", b"a", b"d"):
        log.put(0, name, b"x")
    rows = [raw async for raw in log.scan(0, 0, 6)]
    parts = [[row.offset for row in part] for part in windows_at_most(rows, 2)]
    assert parts == [[0, 1, 2, 3], [4, 5], [6]]
