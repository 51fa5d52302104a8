"""The log has lost its first events: it is said, and no window is served that would lack its
beginning.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
import redis.asyncio as aredis
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from examples.usage import Usage
from projections.errors import Healing, LogTruncated, UnknownProjection
from projections.names import partition_of
from projections.policy.policy import Rules
from projections.storage.records import Checkpoint
from projections.storage.snapshots import MARKER_KEY, decode_marker, decode_snapshot, stamp_of
from streams.control.control_topic import Control
from streams.log.clients import admin_client, make_producer
from streams.log.kafka_log import KafkaLog
from streams.log.retention import check_whole
from streams.log.topics import check_topics, create_topics
from streams.partition import assignment
from streams.rebuild.rebuild import rebuild
from streams.recovery import partition_snapshots
from streams.recovery.snapshot_topic import KafkaSnapshots
from streams.runtime.tasks import end_tasks
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.conftest import fresh_settings
from tests.support.commands import cli
from tests.support.generations import open_generation
from tests.support.lost_redis import covered, flush
from tests.support.pipeline import POLICY
from tests.support.restored_windows import snapshot_offsets
from tests.support.worker import running_worker, until
from tests.support.worker_process import KEYS, all_applied, messages, verified
from threadfold import custom
from threadfold.cli.up import prepare as prepare_stack
from threadfold.embedded.stack import EmbeddedStack
from threadfold.service.conversations import ConversationService


@pytest.fixture
async def settings(
    stack: EmbeddedStack, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Settings]:
    """Two partitions; a partition that is held back is looked at again at once."""
    monkeypatch.setattr(partition_snapshots, "EVENTS_A_WINDOW", 0)
    monkeypatch.setattr(assignment, "TRUNCATED_PAUSE", 0.2)
    made = fresh_settings(stack, snapshot_events=30, partitions=2)
    client = aredis.Redis.from_url(made.redis)
    await client.flushdb()
    await client.aclose()
    await create_topics(made)
    await open_generation(made, POLICY, acme=None)
    yield made


async def eaten(settings: Settings, before: dict[int, int], topic: str = "events") -> None:
    """Delete a topic's records before these offsets, as retention does."""
    async with admin_client(settings) as admin:
        wanted = {
            TopicPartition(settings.topic(topic), p): RecordsToDelete(before_offset=offset)
            for p, offset in before.items()
        }
        await admin.delete_records(wanted)


def environment(settings: Settings) -> dict[str, str]:
    return {
        f"THREADFOLD_{name.upper()}": str(getattr(settings, name))
        for name in ("kafka", "redis", "topic_prefix", "group")
    }


def but(settings: Settings, **others: object) -> Settings:
    """These settings with some others."""
    return Settings.load(
        env={},
        **{**{name: getattr(settings, name) for name in settings.__struct_fields__}, **others},
    )


async def needed(settings: Settings, partition: int) -> int:
    """The first offset that the latest snapshots of a partition, or their marker, need of the
    log.
    """
    topic, stamp = KafkaSnapshots(settings, settings.partitions), stamp_of(1, Rules(POLICY))
    latest: dict[bytes, int] = {}
    begin, end = await topic.bounds(partition)
    async for row in topic.scan(partition, begin, end - 1):
        assert row.key is not None
        if row.key == MARKER_KEY:
            marker = decode_marker(row.value, stamp)
            assert marker is not None
            latest[row.key] = marker.offset
        else:
            snapshot = decode_snapshot(row.value, stamp)
            assert snapshot is not None
            latest[row.key] = min(snapshot_offsets(snapshot.body), default=snapshot.offset)
    await topic.stop()
    return min(latest.values())


async def held_back(runtime: Runtime, settings: Settings) -> None:
    """Wait until every partition is marked as healing with nothing folded."""

    async def held() -> bool:
        found: list[Checkpoint | None] = [
            await runtime.store.checkpoint(1, p) for p in range(settings.partitions)
        ]
        return all(c is not None and c.healing and c.offset == -1 for c in found)

    await until(held)


@pytest.mark.long
async def test_what_is_gone_and_what_will_go_is_said_by_the_checks(settings: Settings) -> None:
    log = KafkaLog(settings, settings.partitions)
    await log.append(messages(random.Random(1), 0, 60))
    assert await check_topics(settings) == []
    await eaten(settings, {0: 5})
    async with admin_client(settings) as admin:
        resource = ConfigResource(
            ConfigResourceType.TOPIC, settings.topic("events"), {"retention.ms": "86400000"}
        )
        await admin.alter_configs([resource])
    env = environment(settings)
    checked, doctor = await cli("topics", "check", env=env), await cli("doctor", env=env)
    for ran in (checked, doctor):
        assert ran.code == 1
        (going,) = [line for line in ran.lines if "retention.ms is 86400000, it must be -1" in line]
        assert "Kafka would delete events" in going
        (gone,) = [line for line in ran.lines if "has lost its beginning" in line]
        assert "partition 0 (begins at offset 5)" in gone
        assert "retention.ms=-1" in gone
        assert "THREADFOLD_ACCEPT_TRUNCATED_LOG" in gone
    accepted = await cli("topics", "check", env={**env, "THREADFOLD_ACCEPT_TRUNCATED_LOG": "true"})
    assert "has lost its beginning" not in accepted.out and "retention.ms" in accepted.out
    await log.stop()


async def test_the_doctor_notes_summaries_that_are_gone_and_what_follows(
    settings: Settings,
) -> None:
    log = KafkaLog(settings, settings.partitions, "summaries")
    await log.append(messages(random.Random(1), 0, 60))
    await log.stop()
    env = environment(settings)
    assert "has lost its beginning" not in (await cli("doctor", env=env)).out
    await eaten(settings, {1: 5}, "summaries")
    ran = await cli("doctor", env=env)
    (gone,) = [line for line in ran.lines if "has lost its beginning" in line]
    assert gone.split()[0] == "note"
    assert f"{settings.topic('summaries')} has" in gone and "1 (begins at offset 5)" in gone
    assert "`missing`" in gone


async def test_up_starts_on_a_log_that_lost_its_beginning_and_says_so(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    log = KafkaLog(settings, settings.partitions)
    await log.append(messages(random.Random(1), 0, 60))
    await log.stop()
    await eaten(settings, {0: 5})
    partitions, _ = await prepare_stack(settings)
    assert partitions == 2
    assert "has lost its beginning, in partition 0" in capsys.readouterr().err


@pytest.mark.long
async def test_results_of_a_projection_never_give_way_to_what_a_log_without_its_beginning_has(
    settings: Settings,
) -> None:
    """A rebuild switched right results away for wrong ones, and said nothing."""
    log = KafkaLog(settings, settings.partitions)
    await log.append(messages(random.Random(1), 0, 60))
    assert (await custom.rebuild(settings, Usage())).live
    async with custom.ProjectionReader.open(settings, Usage()) as view:
        before = await view.all("acme")
    assert sum(day["events"] for day in before.values()) == 60
    await eaten(settings, {0: 5})
    ran = await cli("projection", "rebuild", "examples.usage:Usage", env=environment(settings))
    assert (
        ran.code == 2
        and "projection usage cannot be folded again" in ran.err
        and "THREADFOLD_ACCEPT_TRUNCATED_LOG" in ran.err
    )
    with pytest.raises(LogTruncated):
        await custom.verify(settings, Usage())
    running = asyncio.create_task(custom.run(settings, Usage()))
    async with custom.ProjectionReader.open(settings, Usage()) as view:
        assert await view.all("acme") == before
        await log.append(messages(random.Random(2), 60, 10))

        async def went_on() -> bool:
            return sum(day["events"] for day in (await view.all("acme")).values()) == 70

        await until(went_on)
        await flush(settings)

        async def healing_or_gone() -> bool:
            try:
                await view.all("acme")
            except (Healing, UnknownProjection):
                return True
            return False

        await until(healing_or_gone)
        await end_tasks([running])
        assert await healing_or_gone(), "what is left of the log is not shown as all there was"
        assert (await custom.rebuild(but(settings, accept_truncated_log=True), Usage())).live
        assert sum(day["events"] for day in (await view.all("acme")).values()) == 65
    await log.stop()


@pytest.mark.long
async def test_a_retry_of_a_quarantined_conversation_does_not_pass_over_what_is_gone(
    settings: Settings,
) -> None:
    log, key = KafkaLog(settings, settings.partitions), KEYS[0]
    number = partition_of(key, settings.partitions)
    async with running_worker(settings, compact=False) as runtime:
        producer = make_producer(settings)
        await producer.start()
        bad = await producer.send_and_wait(
            settings.topic("events"), b"{", str(key).encode(), partition=number
        )
        await producer.stop()
        await log.append(messages(random.Random(1), 0, 40))
        await all_applied(settings, log, runtime.store)
    await eaten(settings, {number: bad.offset + 3})
    ran = await cli("dead-letters", "retry", str(key), env=environment(settings))
    assert (
        ran.code == 1
        and f"{key}: it is parked at {number}-{bad.offset}, and the log begins at offset {bad.offset + 3}"
        in ran.out
    )
    shown = await cli(
        "dead-letters", "inspect", f"{number}-{bad.offset}", env=environment(settings)
    )
    assert (
        shown.code == 2
        and f"is not in the log any more, which begins at offset {bad.offset + 3}" in shown.err
    )
    accepted = await cli(
        "dead-letters",
        "retry",
        str(key),
        env={**environment(settings), "THREADFOLD_ACCEPT_TRUNCATED_LOG": "true"},
    )
    assert accepted.code == 0 and f"{key}: continues" in accepted.out, accepted.out + accepted.err
    await log.stop()


async def counted(view: custom.ProjectionReader) -> int:
    return sum(day["events"] for day in (await view.all("acme")).values())


@pytest.mark.parametrize("accept", [pytest.param(False, marks=pytest.mark.long), True])
async def test_results_go_on_where_just_what_they_were_folded_from_is_gone(
    settings: Settings, accept: bool
) -> None:
    """A checkpoint whose record retention took was held for another log's, and right results were
    dropped.
    """
    settings = but(settings, accept_truncated_log=accept)
    log = KafkaLog(settings, settings.partitions)
    await log.append(messages(random.Random(1), 0, 60))
    assert (await custom.rebuild(settings, Usage())).live
    await eaten(settings, await log.end_offsets())
    await log.append(messages(random.Random(2), 60, 10))
    running = asyncio.create_task(custom.run(settings, Usage()))
    async with custom.ProjectionReader.open(settings, Usage()) as view:

        async def went_on() -> bool:
            return await counted(view) == 70

        await until(went_on)
    await end_tasks([running])
    await log.stop()


@pytest.mark.long
async def test_of_partitions_of_which_nothing_is_left_a_projection_is_complete_where_that_is_accepted(
    settings: Settings,
) -> None:
    log = KafkaLog(settings, settings.partitions)
    await log.append(messages(random.Random(1), 0, 60))
    await eaten(settings, await log.end_offsets())
    with pytest.raises(LogTruncated, match="projection usage cannot be folded again"):
        await custom.run(settings, Usage())
    running = asyncio.create_task(custom.run(but(settings, accept_truncated_log=True), Usage()))
    async with custom.ProjectionReader.open(settings, Usage()) as view:

        async def there() -> bool:
            try:
                return await counted(view) == 0
            except (Healing, UnknownProjection):
                return False

        await until(there)
        await end_tasks([running])
        assert (await custom.rebuild(but(settings, accept_truncated_log=True), Usage())).live
        assert await counted(view) == 0
    await log.stop()


@pytest.mark.long
async def test_windows_that_were_folded_stay_and_snapshots_bring_them_back(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    log = KafkaLog(settings, settings.partitions)
    async with running_worker(settings) as runtime:
        for lot in range(10):
            await log.append(messages(random.Random(lot), 40 * lot, 40))
            await all_applied(settings, log, runtime.store)
        await covered(runtime, settings, await log.end_offsets())
    # What the snapshots' tails are read from, and what came after them, is still there; so is what
    # a summary after them makes whole again.
    first = {p: await needed(settings, p) for p in range(settings.partitions)}
    async with ConversationService(settings) as backend:
        for key in KEYS:
            window = await backend.window("acme", key.conversation)
            starts = [first[window.partition], *(entry.start for entry in window.tail)]
            first[window.partition] = min(starts)
    assert max(first.values()) > 0
    await eaten(settings, first)
    async with (
        running_worker(settings, compact=False) as runtime,
        ConversationService(settings) as backend,
    ):
        await all_applied(settings, log, runtime.store)
        before = [(await backend.window("acme", key.conversation)).image() for key in KEYS]
    assert "has lost its beginning" in caplog.text
    await flush(settings)
    async with (
        running_worker(settings, compact=False) as runtime,
        ConversationService(settings) as backend,
    ):
        await all_applied(settings, log, runtime.store)
        assert [(await backend.window("acme", key.conversation)).image() for key in KEYS] == before
        await log.append(messages(random.Random(3), 400, 20))
        await all_applied(settings, log, runtime.store)
    await log.stop()


async def test_where_the_beginning_is_gone_nothing_is_served_until_the_operator_accepts_it(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings = but(settings, snapshot_events=0)
    log = KafkaLog(settings, settings.partitions)
    async with running_worker(settings) as runtime:
        await log.append(messages(random.Random(4), 0, 200))
        await all_applied(settings, log, runtime.store)
    await eaten(settings, dict.fromkeys(range(settings.partitions), 20))
    await flush(settings)
    async with (
        running_worker(settings, compact=False) as runtime,
        ConversationService(settings) as backend,
    ):
        await held_back(runtime, settings)
        with pytest.raises(Healing):
            await backend.window("acme", KEYS[0].conversation)
        await backend.append(
            "acme",
            [(KEYS[0].conversation, {"type": "message", "role": "user", "content": "goes on"})],
        )
        await held_back(runtime, settings)
    assert "begins at offset 20, its windows were folded up to -1" in caplog.text
    control = await Control(settings).start()
    with pytest.raises(
        LogTruncated, match=r"partitions 0 \(begins at offset 20\), 1 \(begins at offset 20\)"
    ):
        await rebuild(settings, control, log, runtime.store)
    with pytest.raises(LogTruncated):
        await check_whole(log, settings.topic("events"), accept=False)
    await control.stop()
    accepting = but(settings, accept_truncated_log=True)
    async with (
        running_worker(accepting, compact=False) as runtime,
        ConversationService(accepting) as backend,
    ):
        await all_applied(accepting, log, runtime.store)
        assert (await verified(accepting, log, runtime.store)).differing == []
        assert (await backend.window("acme", KEYS[0].conversation)).meta.count > 0
    assert "which is accepted" in caplog.text
    await log.stop()


async def test_events_that_were_eaten_before_they_were_folded_hold_the_partition_back(
    settings: Settings,
) -> None:
    log = KafkaLog(settings, settings.partitions)
    async with running_worker(settings) as runtime:
        await log.append(messages(random.Random(5), 0, 60))
        await all_applied(settings, log, runtime.store)
    await log.append(messages(random.Random(6), 60, 200))
    ends = await log.end_offsets()
    await eaten(settings, {p: end - 5 for p, end in ends.items()})
    async with running_worker(settings, compact=False) as runtime:

        async def held() -> bool:
            found = [await runtime.store.checkpoint(1, p) for p in range(settings.partitions)]
            return all(
                c is not None and c.healing and c.target == ends[p] - 1 for p, c in enumerate(found)
            )

        await until(held)
    await log.stop()


async def test_a_repair_leaves_windows_that_the_log_cannot_give_back(settings: Settings) -> None:
    log = KafkaLog(settings, settings.partitions)
    accepting = but(settings, accept_truncated_log=True)
    async with running_worker(accepting, compact=False) as runtime:
        await log.append(messages(random.Random(5), 0, 60))
        await all_applied(settings, log, runtime.store)
        await eaten(settings, await log.end_offsets())
        await log.append(messages(random.Random(5), 60, 4))
        await all_applied(settings, log, runtime.store)
        async with ConversationService(accepting) as backend:
            before = [(await backend.window("acme", key.conversation)).image() for key in KEYS]
            env = {**environment(settings), "THREADFOLD_ACCEPT_TRUNCATED_LOG": "true"}
            ran = await cli("verify", "--deep", "--repair", env=env)
            after = [(await backend.window("acme", key.conversation)).image() for key in KEYS]
    assert ran.code == 1, ran.out + ran.err
    left = [line for line in ran.lines if line.startswith("not repaired: ")]
    assert len(left) == len(KEYS) and all("the log has lost events of it" in one for one in left)
    assert before == after
    await log.stop()
