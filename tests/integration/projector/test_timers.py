"""Time and loops on real Kafka and Redis, with two workers: sessions close, suspensions expire,
loops are told, each counted once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import redis.asyncio as aredis

from projections.events import types as events
from projections.events.types import AnyEvent, LoopDetected
from projections.names import Key, Position, partition_of
from projections.render.read_header import state_of
from projections.window.window import Window
from streams.log.history import event_of
from streams.partition.effects import Effects
from streams.projector.effect_sink import Publisher
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.support.generations import open_generation
from tests.support.pipeline import append, folded_from_log, stored
from tests.support.worker import running_worker, until


@pytest.fixture(scope="module")
async def workers(settings: Settings) -> AsyncIterator[list[Runtime]]:
    await open_generation(settings, {})
    async with (
        running_worker(settings, compact=False) as one,
        running_worker(settings, compact=False) as two,
    ):

        async def both_work() -> bool:
            return bool(one.projector.partitions) and bool(two.projector.partitions)

        await until(both_work)
        yield [one, two]


async def history(runtime: Runtime, key: Key) -> list[AnyEvent]:
    partition = partition_of(key, runtime.log.partitions)
    end = (await runtime.log.end_offsets())[partition]
    rows = [
        event_of(raw, key, runtime.log.seals)
        async for raw in runtime.log.scan(partition, 0, end - 1)
    ]
    return [event for event in rows if event is not None]


async def in_state(runtime: Runtime, key: Key, state: str) -> Window:
    async def there() -> Window | None:
        window = await stored(runtime, key)
        return window if window is not None and state_of(window.state) == state else None

    return await until(there, what=f"{key} is {state}")


async def test_sessions_close_by_themselves_and_suspensions_expire_once_each(
    workers: list[Runtime],
) -> None:
    runtime = workers[0]
    keys = [Key("acme", f"quiet{i}") for i in range(8)]
    soon = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    for key in keys:
        flats = [
            {"type": "conversation.opened", "policy": {"idle_close_seconds": 1}},
            {"type": "message", "role": "user", "content": "hello"},
            {
                "type": "suspension",
                "suspension_id": "s1",
                "kind": "approval",
                "prompt": "go on?",
                "expires_at": soon,
            },
        ]
        await append(runtime, key, flats)
    partitions = {partition_of(key, runtime.log.partitions) for key in keys}
    assert all(partitions & set(worker.projector.partitions) for worker in workers), (
        "each worker owns some of them"
    )
    for key in keys:
        window = await in_state(runtime, key, "idle")
        assert window.state.suspensions == []
        said = await history(runtime, key)
        closings = [e.data for e in said if isinstance(e, events.SessionClosedEvent)]
        expiries = [e.data for e in said if isinstance(e, events.ResolutionEvent)]
        assert closings == [
            events.SessionClosed("idle", str(Position(window.partition, window.state.last_message)))
        ]
        assert expiries == [events.Resolution("s1", "expired")]
        assert (window.meta.count, window.meta.duplicates, window.meta.skipped) == (5, 0, 0)
        assert window.image() == (await folded_from_log(runtime, key)).image()


async def test_a_session_that_goes_on_is_closed_when_it_ends(workers: list[Runtime]) -> None:
    runtime, key = workers[0], Key("acme", "quiet0")
    await in_state(runtime, key, "idle")
    (position,) = await append(
        runtime, key, [{"type": "message", "role": "user", "content": "one more thing"}], 100
    )
    window = await in_state(runtime, key, "active")
    assert window.state.last_message == position.offset
    await in_state(runtime, key, "idle")
    closings = [
        e.data.after
        for e in await history(runtime, key)
        if isinstance(e, events.SessionClosedEvent)
    ]
    assert len(closings) == 2 and closings[-1] == str(position)


@pytest.mark.long
async def test_timers_are_there_again_when_redis_was_wiped(
    workers: list[Runtime], settings: Settings
) -> None:
    runtime = workers[0]
    keys = [Key("acme", f"later{i}") for i in range(8)]
    soon = (datetime.now(UTC) + timedelta(seconds=3)).isoformat()
    for key in keys:
        suspension = {
            "type": "suspension",
            "suspension_id": "s1",
            "kind": "external",
            "expires_at": soon,
        }
        opened = {"type": "conversation.opened", "policy": {"idle_close_seconds": 3}}
        await append(
            runtime,
            key,
            [opened, {"type": "message", "role": "user", "content": "hello"}, suspension],
        )
    for key in keys:
        await in_state(runtime, key, "awaiting_input")
    client = aredis.Redis.from_url(settings.redis)
    await client.flushdb()
    await client.aclose()
    for key in keys:
        window = await in_state(runtime, key, "idle")
        assert window.state.suspensions == [] and window.meta.count == 5


async def test_a_loop_is_reported_in_the_log_and_said_again_it_is_a_duplicate(
    workers: list[Runtime], settings: Settings
) -> None:
    runtime, key = workers[0], Key("acme", "loop")
    (position,) = await append(
        runtime, key, [{"type": "message", "role": "assistant", "content": "again"}]
    )
    loop = LoopDetected("search", "ab" * 32, 3)
    publisher = Publisher(settings, runtime.log)
    effects = Effects(loops=[(key, position.offset, loop)])
    assert effects
    await publisher.publish(position.partition, effects, [])
    await publisher.publish(position.partition, effects, [])
    publisher.announced_before[position.partition] = position.offset + 1
    await publisher.publish(position.partition, effects, [])
    publisher.announced_before.clear()
    await publisher.publish(
        position.partition,
        Effects(loops=[(key, position.offset, LoopDetected("\ud800", "", 3))]),
        [],
    )
    await publisher.stop()

    async def told() -> Window | None:
        window = await stored(runtime, key)
        return window if window is not None and window.meta.duplicates else None

    window = await until(told)
    assert window.state.loop == {"tool": "search", "arguments_sha256": "ab" * 32, "count": 3}
    said = [e for e in await history(runtime, key) if isinstance(e, events.LoopDetectedEvent)]
    assert [e.data for e in said] == [loop, loop] and said[0].id == said[1].id
    assert (window.meta.count, window.meta.duplicates) == (2, 1)
