"""What an attack on the fast release found; each test fails on the code it was found in."""

from __future__ import annotations

import asyncio
import gc
import json
import random
from collections.abc import AsyncIterator
from types import SimpleNamespace

import msgspec
import pytest
import redis.asyncio as aredis
from aiokafka.cluster import ClusterMetadata

from projections.errors import InvalidPolicy, KafkaUnavailable, ThreadfoldError
from projections.events.validation import Record
from projections.names import Key
from projections.redis.store import RedisStore
from streams.control.follower import Control
from streams.log.appender import Appender
from streams.log.log import KafkaLog
from streams.log.topics import create_topics
from streams.settings.settings import Settings
from streams.worker import Runtime
from tests.conftest import fresh_settings
from tests.integration.projector.test_outages import all_applied, messages
from tests.integration.projector.test_pipeline import POLICY
from tests.integration.recovery.test_healing import differing, flush
from tests.support.commands import cli, ok
from tests.support.generations import open_generation
from tests.support.worker import running_worker, until
from threadfold.embedded.stack import EmbeddedStack


@pytest.fixture
async def settings(stack: EmbeddedStack) -> AsyncIterator[Settings]:
    made = fresh_settings(stack, snapshot_events=0)
    await flush(made)
    await create_topics(made)
    await open_generation(made, POLICY)
    yield made


async def test_callers_that_gave_up_while_kafka_does_not_answer_leave_no_bytes_behind() -> None:
    class Frozen:
        """A producer whose broker does not answer; an idempotent one tries for ever."""

        client = SimpleNamespace(cluster=ClusterMetadata())

        def create_batch(self):  # type: ignore[no-untyped-def]
            from aiokafka.producer.message_accumulator import BatchBuilder

            return BatchBuilder(1 << 20, 0, is_transactional=False)

        async def send_batch(self, *_: object, **__: object) -> object:
            return asyncio.get_running_loop().create_future()

    one, producer = Appender("events", 0), Frozen()
    for _ in range(200):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.002):
                await one.append(producer, [(b"acme/c", b"x" * 100_000)])  # type: ignore[arg-type]
    gc.collect()
    held = sum(len(row[1]) for job in one._jobs for row in job.rows)
    await one.stop()
    assert held <= 1_000_000, f"{held} bytes of callers that are gone"


async def test_a_damaged_block_of_recent_ids_makes_the_partition_heal(settings: Settings) -> None:
    log = KafkaLog(settings, settings.partitions)
    rng = random.Random(1)
    async with running_worker(settings) as runtime:
        await log.append(messages(rng, 0, 300))
        await all_applied(settings, log, runtime.store)
    client = aredis.Redis.from_url(settings.redis)
    for key in [k async for k in client.scan_iter(match="*:r:*")]:
        await client.hset(key, "0", msgspec.msgpack.encode((b"x" * 8, [-1])))
    async with running_worker(settings) as runtime:
        await log.append(messages(rng, 300, 100))
        await all_applied(settings, log, runtime.store, 8.0)
        assert await differing(settings, log, runtime.store) == []
    await client.aclose()
    await log.stop()


async def test_recent_ids_that_were_lost_make_the_partition_heal(settings: Settings) -> None:
    log = KafkaLog(settings, settings.partitions)
    sent = messages(random.Random(2), 0, 300)
    async with running_worker(settings, compact=False) as runtime:
        await log.append(sent)
        await all_applied(settings, log, runtime.store)
    client = aredis.Redis.from_url(settings.redis)
    for key in [k async for k in client.scan_iter(match="*:r:*")]:
        await client.delete(key)
    async with running_worker(settings, compact=False) as runtime:
        await log.append(sent[:100])
        await all_applied(settings, log, runtime.store, 8.0)
        assert await differing(settings, log, runtime.store) == []
    await client.aclose()
    await log.stop()


async def test_windows_of_an_earlier_release_heal_without_another_event(settings: Settings) -> None:
    log = KafkaLog(settings, settings.partitions)
    async with running_worker(settings, compact=False) as runtime:
        await log.append(messages(random.Random(3), 0, 300))
        await all_applied(settings, log, runtime.store)
    client = aredis.Redis.from_url(settings.redis)
    for name in [k async for k in client.scan_iter(match="*:w:*")]:
        # As the release before left them: strings and lists, beside a state of the very same
        # fields.
        await client.delete(name, name.replace(b":w:", b":r:"))
        await client.set(name, b"meta")
        await client.rpush(name.replace(b":w:", b":t:"), b"entry")
        await client.rpush(name.replace(b":w:", b":r:"), b"ids")
    for name in [k async for k in client.scan_iter(match="*:state")]:
        await client.hdel(name, "layout")
    async with running_worker(settings, compact=False) as runtime:

        async def right() -> bool:
            try:
                return await differing(settings, log, runtime.store) == []
            except ThreadfoldError:
                return False

        await until(right, 8.0)
    await client.aclose()
    await log.stop()


async def test_a_partition_that_heals_slowly_does_not_hold_another_that_has_to_be_prepared(
    settings: Settings, monkeypatch
) -> None:  # type: ignore[no-untyped-def]
    from streams.projector import projector as module

    log = KafkaLog(settings, settings.partitions)
    rng = random.Random(4)
    slow = asyncio.Event()
    began = asyncio.Event()

    async def heal(partition, *_: object):  # type: ignore[no-untyped-def]
        if partition.number == 0:
            began.set()
            await slow.wait()

    async with running_worker(settings, compact=False) as runtime:
        await log.append(messages(rng, 0, 300))
        await all_applied(settings, log, runtime.store)
        monkeypatch.setattr(module, "heal_from_snapshots", heal)
        client = aredis.Redis.from_url(settings.redis)
        prefix = settings.topic_prefix
        await client.delete(f"{prefix}:{{1:0}}:state")
        await began.wait()
        for p in (1, 2, 3):
            # As if another process had written them once: they are well, and have to be loaded
            # again.
            await client.hset(f"{prefix}:{{1:{p}}}:state", "revision", "9" * 16)
        await log.append(messages(rng, 300, 100))

        async def others() -> bool:
            ends = await log.end_offsets()
            found = [await runtime.store.checkpoint(1, p) for p in (1, 2, 3)]
            return all(
                c is not None and not c.healing and c.offset == ends[p] - 1
                for p, c in zip((1, 2, 3), found, strict=True)
            )

        try:
            await until(others, 6.0)
        finally:
            slow.set()
        await client.aclose()
    await log.stop()


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
        await all_applied(settings, log, runtime.store)
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


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ('summarizer = "nowhere"', "'nowhere' is none of this deployment's summarisers"),
        (
            'reducers = [{ name = "compact_tool_results", replacement = "callable:gone" }]',
            "no 'callable:gone' is registered",
        ),
    ],
)
async def test_a_deployments_policy_that_names_what_is_not_there_is_refused_at_the_start(  # type: ignore[no-untyped-def]
    stack: EmbeddedStack, tmp_path, policy: str, said: str
) -> None:
    """Taken, it was found out by each new tenant's first append, which then answered 422."""
    file = tmp_path / "policy.toml"
    file.write_text(policy)
    made = fresh_settings(stack, policy=str(file))
    await create_topics(made)
    runtime = Runtime(made)
    with pytest.raises(InvalidPolicy, match=said):
        await runtime.start()
    await runtime.stop()


async def test_a_number_that_cannot_be_stored_does_not_stop_its_partition(
    settings: Settings,
) -> None:
    log, key = KafkaLog(settings, settings.partitions), Key("acme", "huge")
    spill = {"chars": 10**30, "bytes": 1, "sha256": "", "size": 1, "chunks": []}
    data = {"tool_call_id": "a", "content": "x", "spill": spill}
    event = {
        "specversion": "1.0",
        "id": "1",
        "type": "threadfold.tool.result.v1",
        "source": key.source,
        "data": data,
    }
    async with running_worker(settings, compact=False) as runtime:
        await log.append(
            [Record(key, "1", "threadfold.tool.result.v1", json.dumps(event).encode())]
        )
        await log.append(messages(random.Random(8), 0, 20))
        await all_applied(settings, log, runtime.store, 8.0)
    await log.stop()


async def test_a_tenants_policy_file_is_checked_over_the_deployments_and_not_alone(
    settings: Settings, tmp_path
) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "tenant.toml"
    env = {
        "THREADFOLD_KAFKA": settings.kafka,
        "THREADFOLD_REDIS": settings.redis,
        "THREADFOLD_TOPIC_PREFIX": settings.topic_prefix,
    }
    file.write_text(
        "model_window = 9000"
    )  # less than the default reserve_tokens, more than this deployment's
    assert (await ok("tenants", "add", "narrow", "--policy", file, env=env)).out.startswith("tf_")
    file.write_text("model_window = 100")
    ran = await cli("tenants", "add", "other", "--policy", file, env=env)
    assert (ran.code, ran.out) == (2, "")
    assert "reserve_tokens" in ran.said
