"""Workers, Redis and Kafka die under traffic: nothing acknowledged is lost or doubled, and every
window equals the log's fold.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer

from projections.errors import KafkaUnavailable, RedisUnavailable
from projections.names import Key
from projections.redis.store import RedisStore
from streams.log.kafka_log import KafkaLog
from streams.log.login import connection
from streams.log.topics import create_topics
from streams.partition.effects import Effects
from streams.projector.effect_sink import Publisher
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.conftest import fresh_settings
from tests.support.generations import open_generation
from tests.support.pipeline import POLICY
from tests.support.worker import running_worker, until
from tests.support.worker_process import (
    KEYS,
    all_applied,
    count_messages,
    messages,
    verified,
    worker,
)
from threadfold.embedded.stack import EmbeddedStack
from threadfold.testing import MemoryLog


@pytest.fixture(scope="module")
def own_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStack]:
    """A stack of its own: its servers are killed here."""
    with EmbeddedStack(tmp_path_factory.mktemp("stack")) as running:
        yield running


@pytest.fixture
async def settings(own_stack: EmbeddedStack) -> AsyncIterator[Settings]:
    made = fresh_settings(own_stack, append_timeout=5.0, session_timeout=6.0)
    await create_topics(made)
    await open_generation(made, POLICY)
    yield made


def start_again(stack: EmbeddedStack) -> None:
    """Start a Kafka that was killed, on its port and with its data."""
    killed = stack.embedded_kafka
    assert killed is not None
    again = type(killed)(killed.data, port=int(killed.address.rpartition(":")[2]))
    again.start()
    stack.embedded_kafka = again


@pytest.mark.long
async def test_workers_killed_mid_run_lose_and_double_nothing(
    settings: Settings, tmp_path: Path
) -> None:
    log, store = (
        KafkaLog(settings, settings.partitions),
        RedisStore(settings.redis, settings.topic_prefix),
    )
    rng = random.Random(7)
    workers = [worker(settings, tmp_path / "w0.log"), worker(settings, tmp_path / "w1.log")]
    sent = 0
    for round_ in range(3):
        for _ in range(10):
            await log.append(messages(rng, sent, 40))
            sent += 40
            await asyncio.sleep(0.05)
        workers[round_ % 2].kill()
        workers[round_ % 2] = worker(settings, tmp_path / f"w{round_ + 2}.log")

    async def started() -> bool:  # before, SIGTERM ends the process at once
        logs = [(tmp_path / f"w{number}.log").read_text() for number in (3, 4)]
        return all("Recovery]: Starting" in text for text in logs)

    await until(started, 60.0)
    await all_applied(settings, log, store)
    for process in workers:
        assert process.stop() == 0
    report = await verified(settings, log, store)
    assert (report.verified, report.differing) == (len(KEYS), [])
    assert await count_messages(log, store, settings) == sent
    await log.stop()
    await store.close()


@pytest.mark.long
async def test_redis_killed_under_traffic_comes_back_and_windows_heal(
    settings: Settings, own_stack: EmbeddedStack
) -> None:
    assert own_stack.embedded_redis is not None
    log = KafkaLog(settings, settings.partitions)
    rng = random.Random(8)
    port = int(own_stack.embedded_redis.address.rpartition(":")[2])
    async with running_worker(settings) as runtime:
        await log.append(messages(rng, 0, 300))
        await all_applied(settings, log, runtime.store)
        own_stack.embedded_redis.kill()
        with pytest.raises(RedisUnavailable, match="does not answer"):
            await runtime.store.checkpoint(1, 0)
        await log.append(messages(rng, 300, 300))
        again = type(own_stack.embedded_redis)(own_stack.embedded_redis.data, port=port)
        again.start()
        own_stack.embedded_redis = again
        await all_applied(settings, log, runtime.store)
        assert (await verified(settings, log, runtime.store)).differing == []
        assert await count_messages(log, runtime.store, settings) == 600
    await log.stop()


@pytest.mark.long
async def test_kafka_killed_under_traffic_means_unknown_and_a_repeat_with_the_same_ids_is_safe(
    settings: Settings, own_stack: EmbeddedStack
) -> None:
    assert own_stack.embedded_kafka is not None
    log = KafkaLog(settings, settings.partitions)
    rng = random.Random(9)
    async with running_worker(settings) as runtime:
        await log.append(messages(rng, 0, 200))
        await all_applied(settings, log, runtime.store)
        own_stack.embedded_kafka.kill()
        batch = messages(rng, 200, 50)
        with pytest.raises(KafkaUnavailable, match="repeat it with the same ids"):
            await log.append(batch)
        await asyncio.to_thread(start_again, own_stack)

        async def repeated() -> bool:
            try:
                await log.append(batch)
            except KafkaUnavailable:
                return False
            return True

        await until(repeated)
        await all_applied(settings, log, runtime.store)
        assert (await verified(settings, log, runtime.store)).differing == []
        assert await count_messages(log, runtime.store, settings) == 250
    await log.stop()


@pytest.mark.long
async def test_the_app_runs_under_fausts_own_command(settings: Settings, tmp_path: Path) -> None:
    log, store = (
        KafkaLog(settings, settings.partitions),
        RedisStore(settings.redis, settings.topic_prefix),
    )
    process = worker(
        settings, tmp_path / "faust.log", "-m", "faust", "-A", "streams.app", "worker", "-l", "warn"
    )
    await log.append(messages(random.Random(10), 0, 200))
    await all_applied(settings, log, store)
    assert process.stop() == 0, (tmp_path / "faust.log").read_text()[-2000:]
    assert (await verified(settings, log, store)).differing == []
    await log.stop()
    await store.close()


@pytest.mark.long
async def test_a_projector_whose_kafka_is_gone_stops_all_the_same(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with EmbeddedStack(tmp_path / "stack") as own:
        made = fresh_settings(own, snapshot_events=0, append_timeout=2.0, session_timeout=6.0)
        await create_topics(made)
        await open_generation(made, POLICY)
        log, runtime = KafkaLog(made, made.partitions), Runtime(made)
        await runtime.start()
        assert runtime.projector is not None and own.embedded_kafka is not None
        running = asyncio.create_task(runtime.projector.run())
        await log.append(messages(random.Random(5), 0, 200))
        await all_applied(made, log, runtime.store)
        own.embedded_kafka.kill()
        waiting = asyncio.create_task(log.append(messages(random.Random(6), 200, 10)))
        await asyncio.sleep(0.2)
        runtime.projector.stop()
        done, _ = await asyncio.wait([running], timeout=12.0)
        running.cancel()
        assert done, "it still waits for its last commit"
        with pytest.raises(KafkaUnavailable):
            await waiting
        async with asyncio.timeout(20.0):
            await log.stop()
            await runtime.stop()


@pytest.mark.long
async def test_what_could_not_be_published_while_kafka_was_down_does_not_come_later(
    own_stack: EmbeddedStack,
) -> None:
    settings = fresh_settings(own_stack, append_timeout=3.0)
    await create_topics(settings)
    key, log = Key("acme", "c"), MemoryLog(settings.partitions)
    former, owner = Publisher(settings, log), Publisher(settings, log)
    await former.publish(0, Effects(voided=[(key, 1, "before")]), [])
    assert own_stack.embedded_kafka is not None
    own_stack.embedded_kafka.kill()
    with pytest.raises(KafkaUnavailable):
        await former.publish(0, Effects(voided=[(key, 2, "given up")]), [])
    await asyncio.to_thread(start_again, own_stack)
    # By now another process owns the partition; the former owner still publishes for others.
    await owner.publish(0, Effects(voided=[(key, 3, "after")]), [])
    for n in range(4, 14):
        await former.publish(0, Effects(voided=[(key, n, "of another")]), [])
        await asyncio.sleep(0.1)
    await former.stop()
    await owner.stop()
    topic = settings.topic("summaries")
    said = []
    async with AIOKafkaConsumer(
        topic, **connection(settings), auto_offset_reset="earliest"
    ) as client:
        while "of another" not in said[-10:-9]:
            said.append(json.loads((await client.getone()).value)["data"]["summary_id"])
    assert said == ["before", "after", *["of another"] * 10]
