"""Backups on real Kafka and Redis: what is exported comes back at the same offsets, and after the
loss of everything all windows are as they were.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from projections.names import Key, Position
from projections.storage.snapshots import take_snapshot
from streams.encryption.master_keys import new_master
from streams.log.topics import create_topics, partition_count
from streams.maintenance.backup import SAVED
from streams.maintenance.verify import verify
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.conftest import fresh_settings
from tests.support.commands import cli, ok
from tests.support.generations import open_generation
from tests.support.lost_redis import flush
from tests.support.pipeline import POLICY, append, applied, sentence, settled
from tests.support.worker import running_worker
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config
from threadfold.embedded.stack import EmbeddedStack

PLAIN = [Key("acme", f"b{i}") for i in range(8)]
SEALED = [Key("sealed", f"b{i}") for i in range(4)]


def folder_of(settings: Settings, path: Path) -> Path:
    """A data folder by which commands find the stack of these settings."""
    path.mkdir()
    write_config(path / CONFIG_FILE, settings)
    return path


async def records(settings: Settings, name: str) -> list[tuple[Any, ...]]:
    """All records of a topic with their places, times and headers, in the order of places."""
    consumer = AIOKafkaConsumer(bootstrap_servers=settings.kafka)
    await consumer.start()
    try:
        topic = settings.topic(name)
        places = [TopicPartition(topic, p) for p in range(await partition_count(settings, name))]
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        ends = await consumer.end_offsets(places)
        found = []
        while any([await consumer.position(tp) < ends[tp] for tp in places]):
            for rows in (await consumer.getmany(timeout_ms=200)).values():
                found += [
                    (r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
                    for r in rows
                ]
        return sorted(found)
    finally:
        await consumer.stop()


@pytest.fixture
async def written(settings: Settings) -> Settings:
    """A log with 40 records, the last partitions of which end with a transaction's marker."""
    producer = AIOKafkaProducer(
        bootstrap_servers=settings.kafka, transactional_id=settings.topic_prefix
    )
    await producer.start()
    async with producer.transaction():
        for number in range(40):
            await producer.send(
                settings.topic("events"),
                b"%d" % number,
                b"acme/k",
                number % 4,
                headers=[("content-type", b"text/plain")],
            )
    async with producer.transaction():
        await producer.send(settings.topic("events"), b"after the marker", b"acme/k", 0)
    await producer.stop()
    await open_generation(settings, {}, acme=None)
    return settings


async def test_every_record_comes_back_at_its_offset_and_time_beside_gaps(
    written: Settings, stack: EmbeddedStack, tmp_path: Path
) -> None:
    data, saved = folder_of(written, tmp_path / "data"), tmp_path / "saved"
    ran = await ok("backup", "export", saved, "--data", data)
    assert "exported events: 41 records" in ran.lines
    assert {path.stat().st_mode & 0o777 for path in saved.iterdir()} == {0o600}
    assert saved.stat().st_mode & 0o777 == 0o700
    assert (await ok("backup", "check", saved)).lines[2] == "unharmed events: 41 records"

    other = fresh_settings(stack, partitions=9)
    target = folder_of(other, tmp_path / "other")
    await ok("backup", "import", saved, "--data", target)
    before, after = await records(written, "events"), await records(other, "events")
    assert [row for row in after if row[3]] == before
    fillers = [(row[0], row[1]) for row in after if not row[3]]
    assert sorted([row[:2] for row in before] + fillers) == [row[:2] for row in after]
    assert (await records(other, "control"))[0][2:] == (await records(written, "control"))[0][2:]
    assert (await ok("topics", "check", "--data", target)).lines == ["topics: ok"]

    again = await cli("backup", "import", saved, "--data", target)
    assert again.code == 2 and "is there already, with 4 partitions" in again.said
    full = await cli("backup", "export", saved, "--data", data)
    assert full.code == 1 and "is not empty" in full.said


async def test_a_damaged_or_unfinished_backup_is_refused_before_anything_is_written(
    written: Settings, stack: EmbeddedStack, tmp_path: Path
) -> None:
    data, saved = folder_of(written, tmp_path / "data"), tmp_path / "saved"
    await ok("backup", "export", saved, "--data", data)
    other = fresh_settings(stack)
    target = folder_of(other, tmp_path / "other")
    file = saved / "events-00002.jsonl.gz"
    whole = file.read_bytes()
    file.write_bytes(whole[:-9] + b"x" + whole[-8:])
    for command in (("check", saved), ("import", saved, "--data", target)):
        ran = await cli("backup", *command)
        assert ran.code == 1 and f"{file} is not as it was written" in ran.said
    file.unlink()
    assert (await cli("backup", "check", saved)).code == 1
    (saved / "manifest.json").unlink()
    ran = await cli("backup", "check", saved)
    assert ran.code == 1 and "not finished" in ran.said
    consumer = AIOKafkaConsumer(bootstrap_servers=other.kafka)
    await consumer.start()
    assert not [name for name in await consumer.topics() if name.startswith(other.topic_prefix)]
    await consumer.stop()


async def talk(runtime: Runtime) -> None:
    """Conversations of two tenants, with summaries and rollbacks; one has its payloads encrypted."""
    rng = random.Random(7)
    for key in (*PLAIN, *SEALED):
        for turn in range(4):
            flats: list[dict[str, Any]] = [
                {"type": "message", "role": "user", "content": sentence(rng)} for _ in range(12)
            ]
            sent = await append(runtime, key, flats, turn * 12)
        flats = [{"type": "rollback", "to": str(sent[3])}, flats[0]]
        sent = await append(runtime, key, flats, 48)
        await applied(runtime, sent[-1])
    for key in (*PLAIN, *SEALED):
        await settled(runtime, key)


async def differing(runtime: Runtime) -> list[str]:
    record = runtime.control.state.generations[1]
    report = await verify(
        runtime.log, runtime.store, record, runtime.control.state.rules(record), deep=True
    )
    assert report.verified == len(PLAIN) + len(SEALED)
    return report.differing


async def windows(runtime: Runtime) -> dict[Key, bytes]:
    """Each window as snapshots have it."""
    return {key: take_snapshot(await settled(runtime, key)) for key in (*PLAIN, *SEALED)}


@pytest.fixture
async def lost(tmp_path: Path) -> AsyncIterator[EmbeddedStack]:
    """Another Kafka and another Redis, both empty."""
    with EmbeddedStack() as running:
        yield running


@pytest.mark.long
async def test_after_the_loss_of_kafka_and_redis_every_window_is_as_it_was(
    stack: EmbeddedStack, lost: EmbeddedStack, tmp_path: Path
) -> None:
    master = new_master("drill")
    first = fresh_settings(stack, master_keys=master, snapshot_events=50)
    await flush(first)
    await create_topics(first)
    await open_generation(first, POLICY, acme=None, sealed={"encryption": True})
    saved = tmp_path / "saved"
    async with running_worker(first) as runtime:
        await talk(runtime)
        assert await differing(runtime) == []
        assert await records(first, "summaries") and await records(first, "keys")
        # While the worker runs: nobody has to be stopped for a backup.
        await ok("backup", "export", saved, "--data", folder_of(first, tmp_path / "data"))
        before = await windows(runtime)
        topics = {name: await records(first, name) for name in SAVED}

    second = fresh_settings(
        lost, master_keys=master, topic_prefix=first.topic_prefix, group=first.group
    )
    await flush(second)
    await ok("backup", "import", saved, "--data", folder_of(second, tmp_path / "lost"))
    for name in ("events", "summaries", "memories"):
        assert await records(second, name) == topics[name]
    async with running_worker(second) as runtime:
        ends = await runtime.log.end_offsets()
        for number, end in ends.items():
            if end:
                await applied(runtime, Position(number, end - 1))
        assert await windows(runtime) == before
        assert await differing(runtime) == []
        # What was accepted but not announced when the backup was made is announced now.
        ids = [_id(record) for record in await records(second, "summaries")]
        assert {_id(record) for record in topics["summaries"]} <= set(ids)
        assert sorted(ids) == sorted(set(ids)), "nothing is announced twice"


def _id(record: tuple[Any, ...]) -> str:
    """The id of a record's event."""
    return str(msgspec.json.decode(record[4])["id"])
