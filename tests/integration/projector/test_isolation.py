"""One partition whose writes hang holds no other, and what waits for it is bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from projections.events.validation import Record, make_record
from projections.fold.replay import replay
from projections.names import Key, partition_of
from projections.storage.records import Applied, Checkpoint, Write
from streams.log.history import event_of
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.support.worker import running_worker, until


def key_in(partition: int, partitions: int) -> Key:
    return next(
        key
        for i in range(1000)
        if partition_of(key := Key("acme", f"c{i}"), partitions) == partition
    )


def records(key: Key, first: int, n: int) -> list[Record]:
    return [
        make_record(
            key,
            {"type": "message", "role": "user", "content": f"{i} " + "word " * 50},
            where="event",
            now="2026-01-01T00:00:00Z",
            new_id=f"{key}-{i}",
        )
        for i in range(first, first + n)
    ]


def hold_writes(runtime: Runtime, partition: int) -> asyncio.Event:
    """Let the store take no batch of a partition before the event is set."""
    go, apply = asyncio.Event(), runtime.store.apply

    async def held(
        generation: int, number: int, checkpoint: Checkpoint, writes: list[Write]
    ) -> Applied:
        if number == partition and writes:
            await go.wait()
        return await apply(generation, number, checkpoint, writes)

    runtime.store.apply = held  # type: ignore[method-assign]
    return go


@pytest.mark.long
async def test_a_partition_whose_writes_hang_holds_no_other_and_what_waits_for_it_is_bounded(
    settings: Settings,
) -> None:
    import msgspec

    small = msgspec.structs.replace(
        settings,
        batch_events=50,
        topic_prefix=settings.topic_prefix,
        group=f"{settings.group}.held",
    )
    async with running_worker(small, compact=False) as runtime:
        assert runtime.projector is not None and runtime.log is not None
        log, projector = runtime.log, runtime.projector
        slow, quick = key_in(0, log.partitions), key_in(1, log.partitions)
        await until(lambda: _all_prepared(runtime))
        go = hold_writes(runtime, 0)
        for i in range(40):
            await log.append(records(slow, 500 * i, 500))
        for i in range(20):
            done = await log.append(records(quick, 10 * i, 10))
            async with asyncio.timeout(5):
                await until(lambda last=done[-1]: _reached(runtime, 1, last.offset))
        assert projector.partitions[0].checkpoint.offset == -1
        queues = list(projector.runtime.queues())
        assert sum(queue.full for queue in queues) == 1
        assert sum(queue.rows for queue in queues) < 20_000, "a fetch beyond the bound at most"
        go.set()
        ends = await log.end_offsets()
        await until(lambda: _reached(runtime, 0, ends[0] - 1))
        _, (parts,) = await runtime.store.read(1, 0, [slow])
        rows: list[Any] = [
            (raw.offset, event_of(raw, slow, log.seals))
            async for raw in log.scan(0, 0, ends[0] - 1)
        ]
        assert parts is not None
        assert (
            parts.load(slow, 0, projector.rules).image()
            == replay(slow, 0, projector.rules, rows).image()
        )


async def _all_prepared(runtime: Runtime) -> bool:
    assert runtime.projector is not None and runtime.log is not None
    return len(runtime.projector.partitions) == runtime.log.partitions


async def _reached(runtime: Runtime, partition: int, offset: int) -> bool:
    checkpoint = await runtime.store.checkpoint(1, partition)
    return checkpoint is not None and checkpoint.offset >= offset
