"""Rebuilds in several processes, on real Kafka and Redis, go on after they are killed or cancelled."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
import redis.asyncio as aredis

from projections.events.validation import Record
from projections.names import Key, partition_of
from projections.redis.store import RedisStore
from projections.storage.records import NOTHING, Checkpoint, Verdict, write_of
from projections.window.window import Window
from streams.control import generations
from streams.control.control_topic import Control
from streams.control.generations import GenerationBusy, Hold, begin, drop
from streams.log.kafka_log import KafkaLog
from streams.rebuild import build_pool
from streams.rebuild.build import Bounds
from streams.rebuild.build_pool import BuildFailed
from streams.rebuild.rebuild import rebuild
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.support.processes import alive, children, freeze
from tests.support.rebuilds import EVENTS, POLICY, caught_up, forgotten, images
from tests.support.worker import running_worker, until
from tests.support.worker_process import messages

OFTEN = Bounds(events=200, seconds=60.0)
"""So that a rebuild that is killed has written something."""


async def written(runtime: Runtime, number: int) -> int:
    """How many records a generation's checkpoints say are folded."""
    checkpoints = [await runtime.store.checkpoint(number, p) for p in range(runtime.log.partitions)]
    return sum(c.offset + 1 for c in checkpoints if c is not None)


@pytest.mark.long
async def test_rebuilds_begun_in_the_same_moment_never_share_a_number(
    runtime: Runtime, settings: Settings
) -> None:
    controls = [await Control(settings).start() for _ in range(4)]
    try:
        for turn in range(2):
            begun = await asyncio.gather(
                *(
                    begin(control, {**POLICY, "min_messages": 10 + 4 * turn + i})
                    for i, control in enumerate(controls)
                )
            )
            assert len({generation.number for generation, _ in begun}) == 4
            for control in controls:
                state = await control.sync()
                for generation, resumed in begun:
                    assert not resumed
                    assert state.generations[generation.number] == generation
            for generation, _ in begun:
                await forgotten(settings, runtime, generation.number)
        again = await Control(settings).start()
        assert again.state.claims == controls[0].state.claims
        await again.stop()
    finally:
        for control in controls:
            await control.stop()


@pytest.mark.long
async def test_processes_build_the_same_windows_side_by_side(
    runtime: Runtime, settings: Settings
) -> None:
    seen: list[tuple[int, int]] = []
    report = await rebuild(
        settings,
        runtime.control,
        runtime.log,
        runtime.store,
        jobs=2,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert report.events == EVENTS
    assert seen[-1] == (EVENTS, EVENTS)
    assert await images(runtime, report.generation) == await images(runtime, 1)
    again = await rebuild(settings, runtime.control, runtime.log, runtime.store, jobs=2)
    assert (again.resumed, again.events, again.generation) == (True, 0, report.generation)
    await forgotten(settings, runtime, report.generation)


@pytest.mark.long
async def test_a_process_that_is_killed_ends_the_rebuild_which_goes_on_from_its_checkpoints(
    runtime: Runtime, settings: Settings
) -> None:
    before = set(children(os.getpid()))
    building = asyncio.create_task(
        rebuild(settings, runtime.control, runtime.log, runtime.store, jobs=2, bounds=OFTEN)
    )
    number = max(runtime.control.state.claims, default=1) + 1
    victim, other = await one_stopped(os.getpid(), before)
    await until(lambda: some(written(runtime, number)))
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(BuildFailed, match="ended by signal 9; what is built stays"):
        await asyncio.wait_for(building, 120)
    assert not alive(other)
    done = await written(runtime, number)
    assert 0 < done < EVENTS
    report = await rebuild(settings, runtime.control, runtime.log, runtime.store, jobs=2)
    assert (report.generation, report.resumed, report.events) == (number, True, EVENTS - done)
    assert await images(runtime, number) == await images(runtime, 1)
    await forgotten(settings, runtime, number)


async def one_stopped(parent: int, before: set[int]) -> list[int]:
    """The two processes of a rebuild once they are there; the first is frozen, so that the rebuild
    is not done before it goes on.
    """

    async def both() -> list[int]:
        found = sorted(set(children(parent)) - before)
        return found if len(found) == 2 else []

    found: list[int] = await until(both)
    freeze(found[0])
    return found


async def some(count: Any) -> bool:
    return await count > 0


PARENT = """
import asyncio, sys
import msgspec
from projections.redis.store import RedisStore
from streams.rebuild.build import Bounds
from streams.control.control_topic import Control
from streams.log.kafka_log import KafkaLog
from streams.rebuild.rebuild import rebuild
from streams.settings.settings import Settings

async def main():
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=Settings)
    control = await Control(settings).start()
    store = RedisStore(settings.redis, settings.topic_prefix)
    await rebuild(settings, control, KafkaLog(settings, settings.partitions), store, jobs=2, bounds=Bounds(events=200, seconds=60.0))

asyncio.run(main())
"""


@pytest.mark.long
async def test_a_rebuild_whose_parent_is_killed_leaves_no_orphan_and_goes_on(
    runtime: Runtime, settings: Settings
) -> None:
    number = max(runtime.control.state.claims, default=1) + 1
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE)  # noqa: ASYNC220 (it is to be killed)
    try:
        assert parent.stdin is not None
        parent.stdin.write(msgspec.json.encode(settings) + b"\n")
        parent.stdin.flush()
        started = await one_stopped(parent.pid, set())
        await until(lambda: some(written(runtime, number)))
    finally:
        parent.kill()
        parent.wait()
        parent.stdin.close()
    os.kill(started[0], signal.SIGCONT)

    async def gone() -> bool:
        return not any(map(alive, started))

    await until(gone)
    done = await written(runtime, number)
    await runtime.control.sync()
    with pytest.raises(GenerationBusy, match=f"generation {number} is being built"):
        async with Hold(runtime.store, number, patience=0.0):
            raise AssertionError("a process that was killed a moment ago has let go")
    client = aredis.Redis.from_url(settings.redis)
    assert (
        0
        < await client.pttl(f"{settings.topic_prefix}:{{{number}:held}}")
        <= generations.HOLD * 1000
    )
    await client.delete(f"{settings.topic_prefix}:{{{number}:held}}")  # what its time does
    await client.aclose()
    report = await rebuild(settings, runtime.control, runtime.log, runtime.store)
    assert (report.generation, report.resumed, report.events) == (number, True, EVENTS - done)
    assert await images(runtime, number) == await images(runtime, 1)
    await forgotten(settings, runtime, number)


@pytest.mark.long
async def test_a_rebuild_that_is_cancelled_writes_what_it_has_folded_and_ends_its_processes(
    runtime: Runtime, settings: Settings
) -> None:
    before = set(children(os.getpid()))
    number = max(runtime.control.state.claims, default=1) + 1
    building = asyncio.create_task(
        rebuild(settings, runtime.control, runtime.log, runtime.store, jobs=2)
    )
    frozen, _ = await one_stopped(os.getpid(), before)
    await until(lambda: some(written(runtime, number)))
    building.cancel()
    os.kill(frozen, signal.SIGCONT)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(building, build_pool.GRACE + 5)
    assert not set(children(os.getpid())) - before
    done = await written(runtime, number)
    assert done > 0
    report = await rebuild(settings, runtime.control, runtime.log, runtime.store)
    assert report.events == EVENTS - done
    await forgotten(settings, runtime, number)


@pytest.mark.parametrize("opening", [0.0, pytest.param(0.5, marks=pytest.mark.long)])
async def test_a_rebuild_ends_while_conversations_are_erased_all_the_time(
    runtime: Runtime, settings: Settings, monkeypatch: pytest.MonkeyPatch, opening: float
) -> None:
    """An erasure writes beside it in the partitions that it builds, also while it opens the log."""
    stream = runtime.log.stream

    async def opened(ranges: Mapping[int, tuple[int, int]]) -> AsyncGenerator[Any, None]:
        await asyncio.sleep(opening)
        async with aclosing(stream(ranges)) as batches:
            async for batch in batches:
                yield batch

    monkeypatch.setattr(runtime.log, "stream", opened)
    policy = {**POLICY, "min_messages": 78 if opening else 79}
    generation, _ = await begin(runtime.control, policy)
    number, store, rules = generation.number, runtime.store, runtime.control.state.rules(generation)
    written_beside = 0

    async def erase() -> None:
        nonlocal written_beside
        for turn in itertools.count():
            key = Key("acme", f"erased-{turn}")
            window = Window(key, partition_of(key, runtime.log.partitions), rules)
            window.erase(-1)
            checkpoint = await store.checkpoint(number, window.partition) or Checkpoint()
            writes = [write_of(window, NOTHING, checkpoint.timestamp)]
            answer = await store.apply(number, window.partition, checkpoint, writes)
            written_beside += answer.verdict is Verdict.APPLIED
            await asyncio.sleep(0.02)

    erasing = asyncio.create_task(erase())
    try:
        await rebuild(settings, runtime.control, runtime.log, runtime.store, number=number)
    finally:
        erasing.cancel()
    assert written_beside > 3
    assert await written(runtime, number) == EVENTS
    assert await images(runtime, number) == await images(runtime, runtime.control.state.live)
    await forgotten(settings, runtime, number)


async def test_a_generation_that_is_built_is_not_dropped_and_one_that_was_dropped_is_not_built_on(
    runtime: Runtime, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    generation, _ = await begin(runtime.control, {**POLICY, "min_messages": 77})
    with pytest.raises(generations.LiveGeneration):
        await drop(runtime.control, runtime.store, 1)
    monkeypatch.setattr(generations.Hold.__init__, "__kwdefaults__", {"patience": 0.1})
    async with Hold(runtime.store, generation.number):
        with pytest.raises(GenerationBusy):
            await drop(runtime.control, runtime.store, generation.number)
        with pytest.raises(GenerationBusy):
            await rebuild(
                settings, runtime.control, runtime.log, runtime.store, number=generation.number
            )
    assert await drop(runtime.control, runtime.store, generation.number) == 0
    with pytest.raises(generations.UnknownGeneration):
        await rebuild(
            settings, runtime.control, runtime.log, runtime.store, number=generation.number
        )


@pytest.mark.long
async def test_a_rebuild_writes_now_and_then_by_bytes_too(settings: Settings) -> None:
    from streams.rebuild.build import Bounds
    from streams.rebuild.rebuild import rebuild

    log = KafkaLog(settings, settings.partitions)
    control, store = (
        await Control(settings).start(),
        RedisStore(settings.redis, settings.topic_prefix),
    )
    async with running_worker(settings, compact=False) as runtime:
        for part in range(10):
            await log.append(
                [
                    Record(r.key, r.id, r.type, r.value)
                    for r in messages(random.Random(7), 100 * part, 100)
                ]
            )
        await until(lambda: caught_up(runtime), limit=60)
    sizes: list[int] = []
    apply = store.apply

    async def counted(generation, partition, checkpoint, writes):  # type: ignore[no-untyped-def]
        sizes.append(sum(len(value) for write in writes for _, value in write.put))
        return await apply(generation, partition, checkpoint, writes)

    stream = log.stream

    async def in_pieces(ranges):  # type: ignore[no-untyped-def]
        async for number, rows in stream(ranges):
            for i in range(0, len(rows), 20):
                yield number, rows[i : i + 20]

    store.apply, log.stream = counted, in_pieces  # type: ignore[method-assign, assignment]
    await rebuild(
        settings,
        control,
        log,
        store,
        policy={**POLICY, "min_messages": 6},
        bounds=Bounds(size=40_000),
    )
    assert len([size for size in sizes if size]) > settings.partitions * 2
    await control.stop()
    await store.close()
    await log.stop()
