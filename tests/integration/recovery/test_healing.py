"""The projector on real Kafka and Redis loses all its windows again and again: snapshots bring them
back, and the log proves them.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest
import redis.asyncio as aredis

from projections.errors import RedisUnavailable
from projections.names import partition_of
from projections.redis.store import RedisStore
from projections.storage.records import Applied, Checkpoint, Write
from streams.control.control_topic import Control
from streams.log.kafka_log import KafkaLog
from streams.log.topics import check_topics, create_topics
from streams.rebuild.rebuild import rebuild
from streams.recovery import partition_snapshots
from streams.recovery.snapshot_topic import KafkaSnapshots
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.conftest import fresh_settings
from tests.support.generations import open_generation
from tests.support.lost_redis import KEYS, covered, differing, flush
from tests.support.pipeline import POLICY
from tests.support.worker import running_worker, until
from tests.support.worker_process import all_applied, messages
from threadfold.embedded.stack import EmbeddedStack


@pytest.fixture
async def settings(
    stack: EmbeddedStack, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Settings]:
    """Topics of its own, and rounds every 30 events of a partition."""
    monkeypatch.setattr(partition_snapshots, "EVENTS_A_WINDOW", 0)
    made = fresh_settings(stack, snapshot_events=30)
    client = aredis.Redis.from_url(made.redis)
    await client.flushdb()
    await client.aclose()
    await create_topics(made)
    await open_generation(made, POLICY)
    yield made


async def folded(runtime: Runtime) -> int:
    """Records that partitions folded since they were prepared."""
    assert runtime.projector is not None
    counts = [p.counts for p in runtime.projector.partitions.values()]
    return sum(c.applied + c.duplicate + c.rejected for c in counts)


@pytest.mark.long
async def test_windows_come_back_from_snapshots_and_the_last_events_however_often_they_are_lost(
    settings: Settings,
) -> None:
    log = KafkaLog(settings, settings.partitions)
    rng = random.Random(3)
    sent = 0
    for _ in range(3):
        async with running_worker(settings) as runtime:
            for _ in range(10):
                await log.append(messages(rng, sent, 40))
                sent += 40
                await all_applied(settings, log, runtime.store)
            await covered(runtime, settings, await log.end_offsets())
        await flush(settings)
        await log.append(messages(rng, sent, 40))
        sent += 40
        async with running_worker(settings, compact=False) as runtime:
            await all_applied(settings, log, runtime.store)
            ends = sum((await log.end_offsets()).values())
            assert (
                await folded(runtime)
                <= settings.partitions * settings.snapshot_events * 2 + 40
                < ends
            )
            assert await differing(settings, log, runtime.store) == []
    await log.stop()


class Leaky(RedisStore):
    """Redis goes away after some windows were put back, each time."""

    left = 3

    async def apply(
        self, generation: int, partition: int, checkpoint: Checkpoint, writes: list[Write]
    ) -> Applied:
        if writes:
            self.left -= 1
            if self.left < 0:
                raise RedisUnavailable("the test's Redis is away")
        return await super().apply(generation, partition, checkpoint, writes)


@pytest.mark.long
async def test_a_worker_that_dies_while_it_heals_leaves_partitions_that_are_not_served_until_the_next_one_has_healed_them(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streams.recovery import healing

    monkeypatch.setattr(healing, "WRITE_WINDOWS", 1)
    log = KafkaLog(settings, settings.partitions)
    async with running_worker(settings) as runtime:
        await log.append(messages(random.Random(4), 0, 600))
        await all_applied(settings, log, runtime.store)
        await covered(runtime, settings, await log.end_offsets())
    await flush(settings)
    async with running_worker(settings) as runtime:
        assert runtime.projector is not None
        leaky = runtime.projector.store = Leaky(settings.redis, settings.topic_prefix)

        async def died() -> bool:
            return leaky.left < 0

        await until(died)
        unhealed = [
            p
            for p in range(settings.partitions)
            if (c := await leaky.checkpoint(1, p)) is None or c.healing
        ]
        assert unhealed
        await leaky.close()
    async with running_worker(settings) as runtime:
        await all_applied(settings, log, runtime.store)
        assert await differing(settings, log, runtime.store) == []
    await log.stop()


@pytest.mark.long
async def test_a_rebuild_writes_no_snapshot_and_its_generation_takes_its_own_once_it_is_live(
    settings: Settings,
) -> None:
    log, topic = (
        KafkaLog(settings, settings.partitions),
        KafkaSnapshots(settings, settings.partitions),
    )
    async with running_worker(settings) as runtime:
        await log.append(messages(random.Random(5), 0, 600))
        await all_applied(settings, log, runtime.store)
        await covered(runtime, settings, await log.end_offsets())
    before = [await topic.bounds(p) for p in range(settings.partitions)]
    assert all(before[partition_of(key, settings.partitions)][1] > 0 for key in KEYS)
    control, store = (
        await Control(settings).start(),
        RedisStore(settings.redis, settings.topic_prefix),
    )
    await rebuild(settings, control, log, store, policy={**POLICY, "min_messages": 6}, switch=True)
    assert [await topic.bounds(p) for p in range(settings.partitions)] == before
    async with running_worker(settings) as runtime:
        await log.append(messages(random.Random(6), 600, 200))
        await covered(runtime, settings, await log.end_offsets())
    await flush(settings)
    async with running_worker(settings, compact=False) as runtime:
        assert runtime.projector is not None

        async def healed() -> bool:
            ends = await log.end_offsets()
            found = {p: await store.checkpoint(2, p) for p in ends}
            return all(
                c is not None and not c.healing and c.offset == ends[p] - 1
                for p, c in found.items()
            )

        await until(healed)
        assert await folded(runtime) < sum((await log.end_offsets()).values())
        assert await differing(settings, log, store, 2) == []
    for client in (control, topic, log):
        await client.stop()
    await store.close()


async def test_new_topics_keep_snapshots_small_and_pass_the_check(settings: Settings) -> None:
    assert await check_topics(settings) == []
