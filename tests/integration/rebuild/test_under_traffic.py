"""Rebuilding into another generation and switching, and verifying windows against the log, on real
Kafka and Redis under traffic.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
import redis.asyncio as aredis

from projections.errors import Healing
from projections.names import Key, partition_of
from streams.maintenance.verify import verify
from streams.rebuild.rebuild import rebuild
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.support.generations import open_generation
from tests.support.pipeline import POLICY, append, applied, sentence, settled
from tests.support.worker import running_worker, until
from threadfold.service.conversations import ConversationService

KEYS = [Key("acme", f"c{i}") for i in range(8)]


@pytest.fixture(scope="module")
async def runtime(settings: Settings) -> AsyncIterator[Runtime]:
    await open_generation(settings, POLICY)
    async with running_worker(settings) as running:
        rng = random.Random(5)
        for turn in range(5):
            for key in KEYS:
                flats = [
                    {"type": "message", "role": role, "content": sentence(rng)}
                    for role in ("user", "assistant") * 5
                ]
                positions = await append(running, key, flats, turn * 10)
        await applied(running, positions[-1])
        for key in KEYS:
            await settled(running, key)
        yield running


async def check(runtime: Runtime, generation: int = 1, sample: int | None = None):  # type: ignore[no-untyped-def]
    record = runtime.control.state.generations[generation]
    return await verify(
        runtime.log, runtime.store, record, runtime.control.state.rules(record), sample=sample
    )


@pytest.mark.long
async def test_verify_finds_every_window_as_the_log_says_while_traffic_runs(
    runtime: Runtime,
) -> None:
    async def traffic() -> None:
        rng = random.Random(6)
        for turn in range(200):
            await append(
                runtime,
                rng.choice(KEYS),
                [{"type": "message", "role": "user", "content": sentence(rng)}],
                5000 + turn,
            )

    sending = asyncio.create_task(traffic())
    reports = [await check(runtime) for _ in range(3)]
    await sending
    for report in reports:
        assert (report.verified, report.differing) == (len(KEYS), [])
    assert (await check(runtime, sample=3)).verified == 3


async def test_verify_names_a_window_that_somebody_changed(
    runtime: Runtime, settings: Settings
) -> None:
    key = KEYS[3]
    partition = partition_of(key, settings.partitions)
    client = aredis.Redis.from_url(settings.redis)
    name = f"{settings.topic_prefix}:{{1:{partition}}}:w:{key}"
    before = await client.hgetall(name)
    chunk = min(field for field in before if field.isdigit())
    for field, value in (
        (chunk, None),
        (chunk, before[chunk][:-3] + b'!"}'),
        (b"h", b"\x00garbage"),
        (b"b", None),
    ):
        if value is None:
            await client.hdel(name, field)
        else:
            await client.hset(name, field, value)
        assert (await check(runtime)).differing == [str(key)], field
        await client.hset(name, mapping=before)
    await client.delete(name)
    assert (await check(runtime)).differing == [str(key)]
    await client.hset(name, mapping=before)
    await client.aclose()
    assert (await check(runtime)).differing == []


async def test_a_rebuild_under_the_same_rules_gives_the_same_windows_and_switches_readers(
    runtime: Runtime, settings: Settings
) -> None:
    seen: list[tuple[int, int]] = []
    report = await rebuild(
        settings,
        runtime.control,
        runtime.log,
        runtime.store,
        switch=True,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert report.live and report.generation == 2 and seen[-1][0] == seen[-1][1] > 0
    await runtime.control.sync()
    await until(lambda: _generation_serves(runtime, 2))
    for key in KEYS:
        partition = partition_of(key, settings.partitions)
        _, (old,) = await runtime.store.read(1, partition, [key])
        _, (new,) = await runtime.store.read(2, partition, [key])
        rules = runtime.control.state.rules(runtime.control.state.generations[1])
        assert old is not None and new is not None
        assert old.load(key, partition, rules).image() == new.load(key, partition, rules).image()
    done = await append(
        runtime, KEYS[0], [{"type": "message", "role": "user", "content": "after the switch"}], 9000
    )
    await until(lambda: _reached(runtime, 2, done[0].partition, done[0].offset))
    assert (await check(runtime, 2)).differing == []


async def test_a_rebuild_under_other_rules_takes_effect_with_the_switch_only(
    runtime: Runtime, settings: Settings
) -> None:
    policy = {**POLICY, "working_budget": 900, "keep_recent_tokens": 400}
    control, log, store = runtime.control, runtime.log, runtime.store
    await rebuild(settings, control, log, store, policy=policy)
    assert control.state.live == 2
    report = await rebuild(settings, control, log, store, policy=policy, switch=True)
    assert report.resumed and control.state.live == report.generation == 3
    await until(lambda: _generation_serves(runtime, 3))
    assert runtime.projector.rules.deployment["working_budget"] == 900
    assert (await check(runtime, 3)).differing == []
    assert await store.drop_generation(1, settings.partitions) > 0
    assert await stored_under(runtime, 1, KEYS[0]) is None


async def stored_under(runtime: Runtime, generation: int, key: Key) -> object:
    return (await runtime.store.read(generation, partition_of(key, runtime.log.partitions), [key]))[
        1
    ][0]


async def _generation_serves(runtime: Runtime, generation: int) -> bool:
    projector = runtime.projector
    owned = [p for p in projector.partitions.values() if p.generation == generation]
    return len(owned) == runtime.log.partitions and not any(p.checkpoint.healing for p in owned)


async def _reached(runtime: Runtime, generation: int, partition: int, offset: int) -> bool:
    checkpoint = await runtime.store.checkpoint(generation, partition)
    return checkpoint is not None and checkpoint.offset >= offset


@pytest.mark.long
async def test_readers_never_step_back_when_generations_are_switched_under_traffic(
    runtime: Runtime, settings: Settings
) -> None:
    key = KEYS[5]
    stop = asyncio.Event()
    answered: list[int] = []
    backwards: list[tuple[int, int]] = []

    async def traffic() -> None:
        for turn in range(100_000):
            if stop.is_set():
                return
            await append(
                runtime,
                key,
                [{"type": "message", "role": "user", "content": f"tick {turn}"}],
                50_000 + turn,
            )

    async def read(backend: ConversationService) -> None:
        seen = -1
        while not stop.is_set():
            try:
                position = (await backend.window(key.tenant, key.conversation)).meta.position
            except Healing:
                await asyncio.sleep(0.005)
                continue
            if position < seen:
                backwards.append((seen, position))
            seen = max(seen, position)
            answered.append(position)

    async with ConversationService(settings) as backend:
        tasks = [asyncio.create_task(traffic()), asyncio.create_task(read(backend))]
        for _ in range(3):
            report = await rebuild(
                settings, runtime.control, runtime.log, runtime.store, switch=True
            )
            await until(lambda number=report.generation: _generation_serves(runtime, number))
        stop.set()
        await asyncio.gather(*tasks)
    assert backwards == []
    assert len(answered) > 20
    assert (await check(runtime, report.generation)).differing == []
