"""The whole way on real Kafka and Redis: append, project, compact, accept, announce, lose Redis,
replay.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator

import pytest
import redis.asyncio as aredis

from projections.events import types as events
from projections.events.codec import decode_event
from projections.events.validation import make_record
from projections.names import Key, partition_of
from streams.log.clients import make_consumer
from streams.partition.partition import Partition
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.support.generations import open_generation
from tests.support.pipeline import (
    POLICY,
    append,
    applied,
    folded_from_log,
    sentence,
    settled,
    stored,
)
from tests.support.worker import running_worker, until


@pytest.fixture(scope="module")
async def runtime(settings: Settings) -> AsyncIterator[Runtime]:

    await open_generation(settings, POLICY)
    async with running_worker(settings) as running:
        yield running


async def test_messages_go_the_whole_way_and_compactions_keep_the_window_bounded(
    runtime: Runtime,
) -> None:
    rng = random.Random(1)
    keys = [Key("acme", f"c{i}") for i in range(6)]
    for turn in range(12):
        for key in keys:
            flats = [
                {"type": "message", "role": role, "content": sentence(rng)}
                for role in ("user", "assistant") * 4
            ]
            positions = await append(runtime, key, flats, turn * 8)
    await applied(runtime, positions[-1])
    for key in keys:
        window = await settled(runtime, key)
        assert window.meta.summary is not None and window.meta.summary.previous is not None
        assert window.tail_tokens <= window.policy.budget(0)
        assert window.image() == (await folded_from_log(runtime, key)).image()


async def test_accepted_summaries_and_only_these_reach_the_summaries_topic(
    runtime: Runtime, settings: Settings
) -> None:
    consumer = make_consumer(settings)
    await consumer.start()
    from aiokafka import TopicPartition

    topic = settings.topic("summaries")
    tps = [TopicPartition(topic, p) for p in range(settings.partitions)]
    consumer.assign(tps)
    await consumer.seek_to_beginning()
    ends = await consumer.end_offsets(tps)
    said: dict[str, list[str]] = {}
    while any([await consumer.position(tp) < ends[tp] for tp in tps]):
        for rows in (await consumer.getmany(timeout_ms=200)).values():
            for row in rows:
                event = decode_event(row.value)
                assert isinstance(event, events.SummaryEvent)
                said.setdefault(row.key.decode(), []).append(event.data.summary_id)
    await consumer.stop()
    for key in [Key("acme", f"c{i}") for i in range(6)]:
        window = await folded_from_log(runtime, key)
        chain = said[str(key)]
        assert len(set(chain)) == len(chain) >= 2
        assert chain[-1] == window.meta.summary.summary_id


async def test_every_window_comes_back_byte_for_byte_when_redis_is_wiped(
    runtime: Runtime, settings: Settings
) -> None:
    keys = [Key("acme", f"c{i}") for i in range(6)]
    before = {key: (await settled(runtime, key)).image() for key in keys}
    client = aredis.Redis.from_url(settings.redis)
    await client.flushdb()
    await client.aclose()

    async def back() -> bool:
        found = [await runtime.store.checkpoint(1, p) for p in range(settings.partitions)]
        return all(c is not None and not c.healing for c in found)

    await until(back)
    for key in keys:
        window = await stored(runtime, key)
        assert window is not None
        assert window.image() == before[key]


async def test_a_repeat_is_recognised_and_a_rollback_into_summarised_history_restores_it(
    runtime: Runtime,
) -> None:
    key = Key("acme", "back")
    rng = random.Random(2)
    flats = [
        {"type": "message", "role": role, "content": sentence(rng)}
        for role in ("user", "assistant") * 30
    ]
    positions = await append(runtime, key, flats)
    again = await append(runtime, key, flats[:3])
    await applied(runtime, again[-1])
    window = await settled(runtime, key)
    assert window.meta.duplicates == 3
    assert window.meta.summary is not None and positions[4].offset < window.meta.summary.to
    done = await append(runtime, key, [{"type": "rollback", "to": str(positions[4])}], 1000)
    await applied(runtime, done[0])
    window = await settled(runtime, key)
    assert window.meta.summary is None
    said = [json.loads(e.body)["content"] for e in window.tail if e.body]
    assert said == [flat["content"] for flat in flats[:5]]
    assert window.image() == (await folded_from_log(runtime, key)).image()


async def test_poison_records_become_dead_letters_and_hold_nobody_up(
    runtime: Runtime, settings: Settings
) -> None:
    key = Key("acme", "poison")
    partition = partition_of(key, settings.partitions)
    from streams.log.clients import make_producer

    producer = make_producer(settings)
    await producer.start()
    topic = settings.topic("events")
    bad = [(b"no-slash", b"{}"), (b"acme/parked-beside", b"{not json"), (str(key).encode(), None)]
    bad.append((str(key).encode(), make_record(Key("other", "x"), {"type": "message", "role": "user", "content": "x"}, where="e",
                now="2026-01-01T00:00:00Z", new_id="x").value))  # fmt: skip
    places = [
        (await producer.send_and_wait(topic, value, k, partition=partition)).offset
        for k, value in bad
    ]
    await producer.stop()
    good = await append(
        runtime, key, [{"type": "message", "role": "user", "content": "still here"}]
    )
    await applied(runtime, good[0])
    window = await stored(runtime, key)
    assert window is not None and window.meta.count == 1
    letters = make_consumer(settings)
    letters.subscribe([settings.topic("dead-letters")])
    await letters.start()
    found: dict[str, str] = {}

    async def all_there() -> bool:
        for rows in (await letters.getmany(timeout_ms=100)).values():
            for row in rows:
                letter = json.loads(row.value)
                found[letter["position"]] = letter["cause"]
        return len(found) == 4

    await until(all_there)
    await letters.stop()
    assert set(found) == {f"{partition}-{offset}" for offset in places}
    assert all(found.values())


async def test_a_second_worker_shares_the_partitions_and_nothing_is_lost_or_doubled(
    runtime: Runtime, settings: Settings
) -> None:
    keys = [Key("acme", f"shared{i}") for i in range(12)]
    async with running_worker(settings) as second:
        for turn in range(20):
            sent = await asyncio.gather(
                *(
                    append(
                        runtime,
                        key,
                        [{"type": "message", "role": "user", "content": f"message {turn}"}],
                        turn,
                    )
                    for key in keys
                )
            )
        await until(lambda: _both_work(runtime, second))
        for positions in sent:
            await applied(runtime, positions[-1])
    for key in keys:
        window = await settled(runtime, key)
        assert window.meta.count - (window.meta.summary is not None) >= 20
        assert window.image() == (await folded_from_log(runtime, key)).image()


async def _both_work(first: Runtime, second: Runtime) -> bool:
    return bool(first.projector.partitions) and bool(second.projector.partitions)


async def test_a_window_that_cannot_be_read_makes_its_partition_fold_anew(
    runtime: Runtime, settings: Settings
) -> None:
    key = Key("acme", "spoiled")
    first = await append(runtime, key, [{"type": "message", "role": "user", "content": "one"}])
    await applied(runtime, first[0])
    partition = first[0].partition
    client = aredis.Redis.from_url(settings.redis)
    await client.set(f"{settings.topic_prefix}:{{1:{partition}}}:w:{key}", b"\xff not a window")
    await client.aclose()

    async def owned() -> Partition | None:  # on a busy machine the group may just share anew
        return runtime.projector.partitions.get(partition)

    live: Partition = await until(owned)
    async with live.turn:
        live.adopt(live.checkpoint)  # nothing cached is kept
    second = await append(runtime, key, [{"type": "message", "role": "user", "content": "two"}], 1)
    await applied(runtime, second[0])
    window = await stored(runtime, key)
    assert window is not None and window.image() == (await folded_from_log(runtime, key)).image()


async def test_a_control_record_of_nobodys_making_does_not_stop_the_follower(
    runtime: Runtime, settings: Settings
) -> None:
    from streams.log.clients import make_producer

    producer = make_producer(settings)
    await producer.start()
    for key, value in (
        (b"generation/x", b"{}"),
        (b"tenant/a", b"{not json"),
        (b"\xff", b"1"),
        (b"later/kind", b"?"),
    ):
        await producer.send_and_wait(settings.topic("control"), value, key, partition=0)
    await producer.stop()
    await runtime.control.ensure_tenant("after-garbage")
    assert "after-garbage" in runtime.control.state.tenants
