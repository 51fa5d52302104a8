"""Verify on a real stack with a worker and its snapshots: what is planted in Redis is found, from
snapshots and deep, and mended.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis.asyncio as aredis

from projections.names import Key, partition_of
from projections.storage.records import Checkpoint, Index
from streams.maintenance.verify import VerifyReport, verify
from streams.recovery.snapshot_topic import KafkaSnapshots
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.support.commands import cli
from tests.support.generations import open_generation
from tests.support.pipeline import POLICY, append, applied, sentence, settled
from tests.support.worker import running_worker, until
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config

KEYS = [Key("acme", f"v{i}") for i in range(12)]


@pytest.fixture(scope="module")
async def runtime(settings: Settings) -> AsyncIterator[Runtime]:
    made = msgspec.structs.replace(settings, snapshot_events=20)
    await open_generation(made, POLICY)
    async with running_worker(made) as running:
        rng = random.Random(3)
        for turn in range(4):
            for key in KEYS:
                flats: list[dict[str, Any]] = [
                    {"type": "message", "role": "user", "content": sentence(rng)} for _ in range(12)
                ]
                flats[0] = {
                    "type": "suspension",
                    "suspension_id": f"s{turn}",
                    "kind": "input",
                    "prompt": "well?",
                }
                sent = await append(running, key, flats, turn * 20)
        await applied(running, sent[-1])
        for key in KEYS:
            await settled(running, key)
        yield running


async def check(runtime: Runtime, **options: Any) -> VerifyReport:
    record = runtime.control.state.generations[1]
    topic = KafkaSnapshots(runtime.settings, runtime.log.partitions)
    try:
        return await verify(
            runtime.log,
            runtime.store,
            record,
            runtime.control.state.rules(record),
            snapshots=topic,
            **options,
        )
    finally:
        await topic.stop()


async def plant(runtime: Runtime, settings: Settings) -> dict[Key, str]:
    """Put something wrong into most conversations; returns what of it is to be found."""
    client = aredis.Redis.from_url(settings.redis)

    def name(key: Key, what: str) -> str:
        tag = f"{settings.topic_prefix}:{{1:{partition_of(key, settings.partitions)}}}"
        return (
            f"{tag}:{what}"
            if what in ("due", "timers", "recent:acme", "waiting:acme")
            else f"{tag}:{what}:{key}"
        )

    k = KEYS
    try:
        chunk = min(field for field in await client.hkeys(name(k[0], "w")) if field.isdigit())
        await client.hset(
            name(k[0], "w"), chunk, (await client.hget(name(k[0], "w"), chunk))[:-3] + b'!"}'
        )
        await client.hdel(name(k[1], "w"), "b")
        await client.delete(name(k[2], "w"), name(k[2], "r"))
        await client.hset(name(k[3], "w"), "h", b"\x00garbage")
        await client.hset(name(k[4], "r"), "0", await client.hget(name(k[5], "r"), "0"))
        await client.delete(name(k[6], "w"))
        await client.set(name(k[6], "w"), b"of another kind")
        await client.zadd(name(k[7], "due"), {str(k[7]): 0})
        await client.zadd(name(k[8], "timers"), {str(k[8]): 1 << 50})
        await client.zrem(name(k[9], "recent:acme"), k[9].conversation)
        await client.zrem(name(k[10], "waiting:acme"), k[10].conversation)
        strange = Key("acme", "strange")
        for field, value in (await client.hgetall(name(k[11], "w"))).items():
            await client.hset(name(strange, "w"), field, value)
    finally:
        await client.aclose()
    return {
        k[0]: "cannot be read",
        k[1]: "cannot be read",
        k[2]: "missing",
        k[3]: "cannot be read",
        k[4]: "recent ids",
        k[6]: "something else",
        k[7]: "wrongly in the due set",
        k[8]: "wrongly in the timers",
        k[9]: "missing in the recent conversations",
        k[10]: "missing in those that wait",
        strange: "the log has no such conversation",
    }


@pytest.mark.long
async def test_what_is_planted_is_found_from_snapshots_and_deep_and_mended_under_traffic(
    runtime: Runtime, settings: Settings, tmp_path: Path
) -> None:
    async def covered() -> bool:
        projector = runtime.projector
        owned = projector.partitions.values()
        return all(
            projector.snapshot_writer.covered(p.number) >= 0
            for p in owned
            if p.checkpoint.offset >= 20
        )

    await until(covered)
    deep, quick = await check(runtime, deep=True), await check(runtime)
    assert (deep.differences, quick.differences) == ([], [])
    assert deep.verified == quick.verified == len(KEYS)
    assert quick.events < deep.events
    expected = await plant(runtime, settings)
    for options in ({"deep": True}, {}):
        report = await check(runtime, **options)
        found = {one.key: one.what for one in report.differences}
        assert sorted(report.differing) == sorted(map(str, expected))
        for key, what in expected.items():
            assert what in found[key], (options, key, found[key])
    stop = asyncio.Event()

    async def traffic() -> None:
        rng = random.Random(6)
        for turn in range(10_000):
            if stop.is_set():
                return
            await append(
                runtime,
                Key("acme", f"t{turn % 9}"),
                [{"type": "message", "role": "user", "content": sentence(rng)}],
                turn,
            )

    sending = asyncio.create_task(traffic())
    write_config(tmp_path / CONFIG_FILE, runtime.settings)
    ran = await cli("verify", "--repair", "--data", tmp_path)
    assert ran.code == 1, ran.err
    assert sorted(line for line in ran.lines if "repaired" in line) == sorted(
        f"repaired: {key}" for key in expected
    )
    assert ran.lines[-1].endswith(f"differing: {len(expected)}")
    ran = await cli("verify", "--deep", "--data", tmp_path)
    stop.set()
    await sending
    assert ran.code == 0 and len(ran.lines) == 1, ran.out
    for key in KEYS:
        sent = await append(
            runtime, key, [{"type": "message", "role": "user", "content": "and on"}], 900
        )
        await applied(runtime, sent[0])
    assert (await check(runtime, deep=True)).differences == []
    assert (await check(runtime, sample=4)).verified == 4


async def test_a_list_that_begins_while_lists_are_sought_is_no_difference(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, looked = runtime.store.index, set[int]()

    async def begins_meanwhile(generation: int, partition: int) -> tuple[Checkpoint | None, Index]:
        checkpoint, index = await read(generation, partition)
        if partition not in looked:
            looked.add(partition)
            index.lists.pop("recent:acme", None)
        return checkpoint, index

    monkeypatch.setattr(runtime.store, "index", begins_meanwhile)
    report = await check(runtime)
    assert report.differences == []
    assert len(looked) == runtime.log.partitions
