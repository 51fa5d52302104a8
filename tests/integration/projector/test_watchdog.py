"""Workers on real Kafka and Redis: one that stops in silence ends itself; one that is told to end
drains, and others go on at once.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete

from projections.errors import RedisUnavailable
from projections.names import partition_of
from projections.redis.store import RedisStore
from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.log.clients import admin_client, make_consumer
from streams.log.kafka_log import KafkaLog
from streams.log.topics import create_topics
from streams.maintenance.verify import verify
from streams.projector.compaction_scheduler import answered_requests
from streams.projector.progress import AnswerProgress, FoldProgress
from streams.settings.settings import Settings
from tests.conftest import fresh_settings
from tests.support.generations import open_generation
from tests.support.pipeline import POLICY
from tests.support.ports import closed_port
from tests.support.worker import running_worker, until
from tests.support.worker_process import KEYS, all_applied, messages
from threadfold.embedded.process import GuardedProcess
from threadfold.embedded.stack import EmbeddedStack

WORKER = (
    "import sys; from streams.worker import run_worker; from streams.settings.settings import"
    " Settings; sys.exit(run_worker(Settings.load()))"
)
SILENT = f"""
import asyncio
from streams.partition import runtime

async def silent(self):
    # What aiokafka was seen to do: the fetcher has ended, and whoever asks for records is given none, for ever.
    if self.partitions and any(p.checkpoint.offset >= 0 for p in self.partitions.values()):
        await asyncio.sleep(0.05)
        return {{}}
    return await heard(self)

heard, runtime.PartitionRuntime.fetch = runtime.PartitionRuntime.fetch, silent
{WORKER}
"""


@pytest.fixture
async def settings(stack: EmbeddedStack) -> AsyncIterator[Settings]:
    made = fresh_settings(stack, session_timeout=30.0, watchdog_seconds=1.0, summary_time_cap=1.0)
    await create_topics(made)
    await open_generation(made, POLICY)
    yield made


def start_worker(settings: Settings, log: Path, code: str = WORKER) -> GuardedProcess:
    names = (
        "kafka",
        "redis",
        "topic_prefix",
        "group",
        "partitions",
        "session_timeout",
        "watchdog_seconds",
        "summary_time_cap",
    )
    env = {
        **os.environ,
        **{f"THREADFOLD_{name.upper()}": str(getattr(settings, name)) for name in names},
    }
    process = GuardedProcess([sys.executable, "-c", code], env=env, log=log)
    process.start()
    return process


@pytest.mark.long
async def test_a_worker_whose_consumer_went_silent_ends_itself_and_says_what_stands_still(
    settings: Settings, tmp_path: Path
) -> None:
    log, store = (
        KafkaLog(settings, settings.partitions),
        RedisStore(settings.redis, settings.topic_prefix),
    )
    rng = random.Random(1)
    path = tmp_path / "silent.log"
    await log.append(messages(rng, 0, 100))
    process = start_worker(settings, path, SILENT)

    async def ended() -> bool:
        await log.append(messages(rng, 100, 4))
        await asyncio.sleep(0.1)
        return process.poll() is not None

    await until(ended, 60)
    said = path.read_text()
    # Requests for summaries wait for the fold, so the compactor may be what is seen first.
    assert (
        ("the worker ends: partition" in said or "the worker ends: the compactor" in said)
        and "waiting) did not move for" in said
        and "Traceback" not in said
    ), said[-2000:]
    await log.stop()
    await store.close()


@pytest.mark.long
async def test_a_worker_that_ends_under_load_drains_and_the_next_goes_on_without_a_session_time_out(
    settings: Settings, tmp_path: Path
) -> None:
    log, store = (
        KafkaLog(settings, settings.partitions),
        RedisStore(settings.redis, settings.topic_prefix),
    )
    rng = random.Random(2)
    first = start_worker(settings, tmp_path / "first.log")
    sent = 0
    for _ in range(10):
        await log.append(messages(rng, sent, 200))
        sent += 200

    async def begun() -> bool:
        return any(
            c is not None and c.offset > 0
            for c in [await store.checkpoint(1, p) for p in range(settings.partitions)]
        )

    await until(begun, 60)
    await log.append(messages(rng, sent, 200))
    sent += 200
    begin = time.monotonic()
    ended = asyncio.create_task(asyncio.to_thread(first.stop))
    second = start_worker(settings, tmp_path / "second.log")
    assert await ended == 0, (tmp_path / "first.log").read_text()[-2000:]
    drained = time.monotonic() - begin
    assert drained < 15, "SIGTERM drains within the bound"
    await log.append(messages(rng, sent, 200))
    sent += 200
    await all_applied(settings, log, store)
    assert time.monotonic() - begin < settings.session_timeout, (
        "the partitions were given back, not waited for"
    )
    assert second.stop() == 0
    generation = Generation(1, settings.partitions, POLICY)
    report = await verify(log, store, generation, (await live_rules(settings)), sample=None)
    assert (report.verified, report.differing) == (len(KEYS), [])
    await log.stop()
    await store.close()


async def live_rules(settings: Settings):  # type: ignore[no-untyped-def]
    control = await Control(settings).start()
    try:
        return control.state.rules(control.state.live_generation)
    finally:
        await control.stop()


async def test_the_folds_progress_is_what_the_brokers_and_the_checkpoints_say(
    settings: Settings,
) -> None:
    async with running_worker(settings, compact=False) as runtime:
        assert runtime.log is not None and runtime.projector is not None
        progress = FoldProgress(runtime.projector, runtime.log, runtime.store)
        await runtime.log.append(messages(random.Random(3), 0, 100))
        await all_applied(settings, runtime.log, runtime.store)
        before = await progress()
        assert set(before) == {f"partition {p}" for p in range(settings.partitions)} and {
            look.lag for look in before.values()
        } == {0}
        await runtime.log.append(messages(random.Random(4), 100, 100))
        await all_applied(settings, runtime.log, runtime.store)
        after = await progress()
        assert any(after[name].mark != before[name].mark for name in after)
        away = RedisStore(f"redis://127.0.0.1:{closed_port()}/0", settings.topic_prefix)
        with pytest.raises(RedisUnavailable):
            await FoldProgress(runtime.projector, runtime.log, away)()
        await away.close()


async def test_the_compactors_progress_is_what_its_group_has_committed(settings: Settings) -> None:
    taken = 0
    answered = answered_requests(settings)
    watched = AnswerProgress(answered.of, lambda: {0, 1}, lambda: taken)
    log = KafkaLog(settings, settings.partitions, "compactions")
    async with running_worker(settings, compact=False) as runtime:
        assert runtime.log is not None
        assert (await watched())["the compactor"].lag == 0
        # Whoever reads them is not there: requests come, and nobody commits.
        await runtime.log.append(messages(random.Random(5), 0, 400))

        async def asked() -> bool:
            return (await watched())["the compactor"].lag > 0

        await until(asked)
        ends = await log.end_offsets()
        look = (await watched())["the compactor"]
        assert 0 < look.lag == ends[0] + ends[1]
        taken = 1
        assert (await watched())["the compactor"].mark != look.mark
        consumer = make_consumer(settings, group=f"{settings.group}.agents")
        consumer.subscribe([settings.topic("compactions")])
        await consumer.start()

        async def caught_up() -> bool:
            await consumer.getmany(timeout_ms=100)
            await consumer.commit()
            return (await watched())["the compactor"].lag == 0

        await until(caught_up)
        await consumer.stop()
    await answered.stop()
    await log.stop()


async def test_requests_that_are_older_than_their_topics_retention_wait_for_nobody(
    settings: Settings,
) -> None:
    topic = settings.topic("compactions")
    log = KafkaLog(settings, settings.partitions, "compactions")
    await log.append(messages(random.Random(6), 0, 20))
    ends = await log.end_offsets()
    answered = answered_requests(settings)
    watched = AnswerProgress(answered.of, lambda: set(range(settings.partitions)), lambda: 0)
    assert (await watched())["the compactor"].lag == 20
    async with admin_client(settings) as admin:
        await admin.delete_records(
            {
                TopicPartition(topic, p): RecordsToDelete(before_offset=end)
                for p, end in ends.items()
            }
        )
    assert (await watched())["the compactor"].lag == 0
    await answered.stop()
    await log.stop()


async def test_a_partition_whose_events_are_all_gone_has_nothing_that_waits(
    settings: Settings,
) -> None:
    log = KafkaLog(settings, settings.partitions)
    await log.append(messages(random.Random(7), 0, 40))
    ends = await log.end_offsets()
    async with admin_client(settings) as admin:
        gone = {
            TopicPartition(settings.topic("events"), p): RecordsToDelete(before_offset=end)
            for p, end in ends.items()
        }
        await admin.delete_records(gone)
    accepting = Settings.load(
        env={},
        **{
            **{name: getattr(settings, name) for name in settings.__struct_fields__},
            "accept_truncated_log": True,
        },
    )
    async with running_worker(accepting, compact=False) as runtime:
        assert runtime.log is not None and runtime.projector is not None
        looks, projector = (
            FoldProgress(runtime.projector, runtime.log, runtime.store),
            runtime.projector,
        )

        async def nothing_left() -> bool:
            return len(projector.partitions) == settings.partitions and {
                look.lag for look in (await looks()).values()
            } == {0}

        await until(nothing_left)
    await log.stop()


async def test_a_partition_that_reads_the_log_in_the_middle_of_a_batch_is_seen_to_move(
    settings: Settings,
) -> None:
    async with running_worker(settings, compact=False) as runtime:
        assert runtime.log is not None and runtime.projector is not None
        await runtime.log.append(messages(random.Random(8), 0, 40))
        await all_applied(settings, runtime.log, runtime.store)
        looks = FoldProgress(runtime.projector, runtime.log, runtime.store)
        before = await looks()
        [_ async for _ in runtime.log.scan(0, 0, 3)]
        assert await looks() == before, "reads of others are no sign of life"
        partition = runtime.projector.partitions[0]
        row = next(
            one
            for one in messages(random.Random(9), 40, 40)
            if partition_of(one.key, settings.partitions) == 0
        )
        async with partition.turn:
            (position,) = await runtime.log.append([row])
            await partition.fold(list((await runtime.log.read([position])).values()))
            reading = (await looks())["partition 0"].mark
            [_ async for _ in runtime.log.scan(0, 0, 3)]
            assert (await looks())["partition 0"].mark != reading
            await partition.write()
