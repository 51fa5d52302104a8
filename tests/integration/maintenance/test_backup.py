"""Backups on real Kafka and Redis: what is exported comes back at the same offsets, and after the
loss of everything all windows are as they were.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from projections.errors import Erased
from projections.names import Key, Position
from projections.storage.snapshots import take_snapshot
from streams.encryption.master_keys import new_master
from streams.log.kafka_log import KafkaLog
from streams.log.topic_copies import Extent, committed, extents, keep_timestamps
from streams.log.topics import create_topics, lost_memories, lost_summaries
from streams.maintenance.backup_files import SAVED
from streams.runtime.keyed_limit import KeyedLimit
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.conftest import fresh_settings
from tests.integration.log.test_truncated_log import eaten
from tests.support.commands import cli, ok
from tests.support.erasure import no_text
from tests.support.generations import open_generation
from tests.support.lost_redis import flush
from tests.support.moved_logs import (
    PLAIN,
    SEALED,
    differing,
    exported_keys,
    folder_of,
    id_of,
    records,
    talk,
)
from tests.support.pipeline import POLICY, applied, settled
from tests.support.worker import running_worker, until
from threadfold.embedded.stack import EmbeddedStack
from threadfold.service.conversations import ConversationService
from threadfold.service.erasure import Eraser
from threadfold.streaming.missed_summaries import MissedSummaries, Missing


@pytest.fixture
async def written(settings: Settings) -> Settings:
    """A log with 40 records, the last partitions of which end with a transaction's marker."""
    producer = AIOKafkaProducer(
        bootstrap_servers=settings.kafka, transactional_id=settings.topic_prefix
    )
    await producer.start()
    before = await _committed_ends(settings)
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
    with_markers = [end + new for end, new in zip(before, (13, 11, 11, 11), strict=True)]

    async def ended() -> bool:
        return await _committed_ends(settings) == with_markers

    await until(ended, what="the markers, which brokers write after they have answered")
    await open_generation(settings, {}, acme=None)
    return settings


async def _committed_ends(settings: Settings) -> list[int]:
    consumer = AIOKafkaConsumer(bootstrap_servers=settings.kafka, isolation_level="read_committed")
    await consumer.start()
    places = [TopicPartition(settings.topic("events"), number) for number in range(4)]
    ends = await consumer.end_offsets(places)
    await consumer.stop()
    return [ends[place] for place in places]


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
        assert ran.code == 1 and f"{file} was changed after the backup" in ran.said
    file.unlink()
    assert (await cli("backup", "check", saved)).code == 1
    (saved / "manifest.json").unlink()
    ran = await cli("backup", "check", saved)
    assert ran.code == 1 and "the backup is incomplete" in ran.said
    consumer = AIOKafkaConsumer(bootstrap_servers=other.kafka)
    await consumer.start()
    assert not [name for name in await consumer.topics() if name.startswith(other.topic_prefix)]
    await consumer.stop()


async def test_a_group_that_workers_are_in_is_refused_before_anything_is_written(
    written: Settings, stack: EmbeddedStack, tmp_path: Path
) -> None:
    data, saved = folder_of(written, tmp_path / "data"), tmp_path / "saved"
    await ok("backup", "export", saved, "--data", data)
    other = fresh_settings(stack)
    target = folder_of(other, tmp_path / "other")
    worker = AIOKafkaConsumer(
        written.topic("events"), bootstrap_servers=other.kafka, group_id=other.group
    )
    await worker.start()
    ran = await cli("backup", "import", saved, "--data", target)
    assert ran.code == 2 and f"workers of the group {other.group} run" in ran.said
    assert not [name for name in await worker.topics() if name.startswith(other.topic_prefix)]
    await worker.stop()
    await ok("backup", "import", saved, "--data", target)


async def more(settings: Settings, start: int, count: int, topic: str = "events") -> None:
    """Records at the end of a topic, over all partitions."""
    producer = AIOKafkaProducer(bootstrap_servers=settings.kafka)
    await producer.start()
    for number in range(start, start + count):
        await producer.send(settings.topic(topic), b"%d" % number, b"acme/k", number % 4)
    await producer.stop()


LOSES = ("summaries", "memories")


@pytest.fixture
async def cut(stack: EmbeddedStack) -> Settings:
    """Ten records in each partition of two topics, of which the first ones are lost: none of
    partition 0, all of partition 3.
    """
    settings = fresh_settings(stack)
    await create_topics(settings)
    await more(settings, 0, 8)
    for topic in LOSES:
        await more(settings, 0, 40, topic)
        await eaten(settings, {1: 1, 2: 4, 3: 10}, topic)
    return settings


async def missing(settings: Settings) -> list[Missing]:
    """What a stream of summaries from the beginning says is missing."""
    log = KafkaLog(settings, settings.partitions, "summaries")
    try:
        ends = await log.end_offsets()
        stream = MissedSummaries(log, KeyedLimit(1), "acme", [0] * 4, [ends[n] for n in range(4)])
        found: list[Missing] = []
        while await stream.next_page() is not None:
            found += stream.missing
        return found
    finally:
        await log.stop()


async def test_topics_that_had_lost_their_beginning_begin_there_when_they_are_restored(
    cut: Settings, stack: EmbeddedStack, tmp_path: Path
) -> None:
    data, saved = folder_of(cut, tmp_path / "data"), tmp_path / "saved"
    await ok("backup", "export", saved, "--data", data)
    other = fresh_settings(stack)
    target = folder_of(other, tmp_path / "other")
    await ok("backup", "import", saved, "--data", target)
    for topic in (*LOSES, "events"):
        assert await extents(other, topic) == await extents(cut, topic)
    for topic in LOSES:
        assert await records(other, topic) == await records(cut, topic)
    for said in (lost_summaries, lost_memories):
        before, after = await said(cut), await said(other)
        assert before and after == before.replace(cut.topic_prefix, other.topic_prefix)
    assert await missing(other) == await missing(cut)
    assert [(hole.partition, hole.first, hole.last) for hole in await missing(other)] == [
        (1, 0, 0),
        (2, 0, 3),
        (3, 0, 9),
    ]
    again = await cli("backup", "import", saved, "--data", target)
    assert again.code == 2 and "is there already, with 4 partitions" in again.said


async def test_a_chain_begins_where_the_first_of_its_records_were(
    cut: Settings, stack: EmbeddedStack, tmp_path: Path
) -> None:
    data = folder_of(cut, tmp_path / "data")
    await ok("backup", "export", tmp_path / "full", "--data", data)
    await more(cut, 40, 40, "summaries")
    # Of partition 3 nothing was saved, and what was lost since is in no backup.
    await eaten(cut, {0: 3, 1: 5, 3: 12}, "summaries")
    since = ("--since", tmp_path / "full")
    ran = await ok("backup", "export", tmp_path / "next", *since, "--data", data)
    assert "exported summaries: 38 records" in ran.lines

    other = fresh_settings(stack)
    await ok("backup", "import", tmp_path / "next", "--data", folder_of(other, tmp_path / "other"))
    assert await extents(other, "summaries") == [
        Extent(0, 20),
        Extent(1, 20),
        Extent(4, 20),
        Extent(12, 20),
    ]
    assert all(row[3] for row in await records(other, "summaries")), "no empty record is left"


@pytest.mark.long
async def test_backups_that_follow_one_another_are_restored_together(
    written: Settings, stack: EmbeddedStack, tmp_path: Path
) -> None:
    data = folder_of(written, tmp_path / "data")
    full, second, third = (tmp_path / name for name in ("full", "second", "third"))
    await ok("backup", "export", full, "--data", data)
    await more(written, 100, 10)
    ran = await ok("backup", "export", second, "--since", full, "--data", data)
    assert "exported events: 10 records" in ran.lines
    await more(written, 200, 3)
    await open_generation(written, {}, late=None)
    await ok("backup", "export", third, "--since", second, "--data", data)
    ran = await ok("backup", "check", third)
    assert ran.lines[0] == "unharmed 3 backups, in order"
    before = await records(written, "events")
    assert f"unharmed events: {len(before)} records" in ran.lines

    other = fresh_settings(stack, partitions=9)
    target = folder_of(other, tmp_path / "other")
    await ok("backup", "import", third, "--data", target)
    after = await records(other, "events")
    assert [row for row in after if row[3]] == before
    assert b"tenant/late" in {row[3] for row in await records(other, "control")}

    # One that is elsewhere is named; one that is lost is named by the error.
    away = tmp_path / "away"
    away.mkdir()
    second.rename(away / "second")
    for command in (("check", third), ("import", third, "--data", target)):
        ran = await cli("backup", *command)
        assert ran.code == 1 and "follows the backup second, which is not beside it" in ran.said
    await ok("backup", "check", third, away / "second", full)
    ran = await cli("backup", "check", full, third)
    assert ran.code == 1 and "do not follow one another" in ran.said
    (await ok("backup", "check", full))

    # Another log is not continued.
    ran = await cli("backup", "export", tmp_path / "x", "--since", full, "--data", target)
    assert ran.code == 0, "the restored log is the same"
    strange = fresh_settings(stack)
    await create_topics(strange)
    await more(strange, 0, 60)
    folder = folder_of(strange, tmp_path / "strange")
    ran = await cli("backup", "export", tmp_path / "y", "--since", full, "--data", folder)
    assert ran.code == 1 and f"is not the one that {full} was made of" in ran.said


@pytest.mark.long
async def test_a_backup_made_after_an_erasure_has_no_key_of_what_was_erased(
    stack: EmbeddedStack, tmp_path: Path
) -> None:
    first = fresh_settings(stack, master_keys=new_master("drill"))
    await flush(first)
    await create_topics(first)
    await open_generation(first, {}, sealed={"encryption": True})
    say = {"type": "message", "role": "user", "content": "I live in Oslo."}
    data, saved = folder_of(first, tmp_path / "data"), tmp_path / "saved"
    async with running_worker(first), ConversationService(first) as service:
        await service.append("sealed", [("gone", say), ("stays", say)])
        await ok("backup", "export", tmp_path / "before", "--data", data)
        await Eraser(service, no_text).conversation("sealed", "gone")
        assert len(await records(first, "keys")) > 4, "the broker has dropped nothing yet"
        await ok("backup", "export", saved, "--data", data)
        await ok(
            "backup", "export", tmp_path / "next", "--since", tmp_path / "before", "--data", data
        )
    for folder in (saved, tmp_path / "next"):
        assert exported_keys(folder) == {("sealed/gone", False), ("sealed/stays", True)}
    await ok("backup", "check", saved)

    second = fresh_settings(stack, master_keys=first.master_keys)
    await flush(second)
    await ok("backup", "import", tmp_path / "next", "--data", folder_of(second, tmp_path / "other"))
    async with running_worker(second) as runtime, ConversationService(second) as service:
        await settled(runtime, Key("sealed", "stays"))
        assert "Oslo" in str(await service.history("sealed", "stays"))
        with pytest.raises(Erased):
            await service.history("sealed", "gone")
        assert await differing(runtime) == []


async def windows(runtime: Runtime) -> dict[Key, bytes]:
    """Each window as snapshots have it."""
    return {key: take_snapshot(await settled(runtime, key)) for key in (*PLAIN, *SEALED)}


async def all_announced(runtime: Runtime) -> bool:
    """Whether the group has committed all of the log: nothing is announced again."""
    ends = await runtime.log.end_offsets()
    done = await committed(runtime.settings, runtime.settings.topic("events"), len(ends))
    return all(not end or done.get(number) == end for number, end in ends.items())


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
        await until(lambda: all_announced(runtime))
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
        ids = [id_of(record) for record in await records(second, "summaries")]
        assert {id_of(record) for record in topics["summaries"]} <= set(ids)
        assert sorted(ids) == sorted(set(ids)), "nothing is announced twice"


async def test_topics_that_are_filled_take_the_times_of_who_writes_from_their_first_record_on(
    stack: EmbeddedStack,
) -> None:
    for _ in range(4):
        settings = fresh_settings(stack)
        await create_topics(settings, filled=["events"])
        producer = AIOKafkaProducer(bootstrap_servers=settings.kafka)
        await producer.start()
        await keep_timestamps(settings, ["events"], keep=True)
        sent = await producer.send_and_wait(
            settings.topic("events"), b"{}", partition=0, timestamp_ms=1_000
        )
        await producer.stop()
        assert sent.timestamp_type == 0, "the broker would stamp it"
