"""A Redis that is away, refuses to write, or holds what is not ours."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import redis.asyncio as aredis
import uvloop

from projections.errors import CorruptWindow, RedisUnavailable
from projections.names import Key
from projections.redis.store import RedisStore
from projections.storage.listing import Found, Listing
from projections.storage.records import Checkpoint, Verdict
from streams.settings.settings import Settings
from tests.support.ports import closed_port
from tests.support.store import A, at, begin, write


async def test_without_redis_every_call_says_so_in_bounded_time() -> None:
    store = RedisStore(f"redis://user:secret@127.0.0.1:{closed_port()}/0", timeout=1.0)
    began = time.monotonic()
    for call in (
        store.checkpoint(1, 0),
        store.read(1, 0, [A]),
        store.apply(1, 0, Checkpoint(), [write()]),
        store.due(1, 0, 0, 1),
        store.requested(1, 0, [A], 1),
        store.timers(1, 0, 0, 1),
        store.put_off(1, 0, {A: 1}),
        store.drop_partition(1, 0),
        store.ping(),
    ):
        with pytest.raises(RedisUnavailable, match="does not answer") as caught:
            await call
        assert "secret" not in str(caught.value)
    assert time.monotonic() - began < 30
    await store.close()


async def test_a_server_that_refuses_to_write_is_named_with_its_reason(
    settings: Settings, generation: int
) -> None:
    client = aredis.Redis.from_url(settings.redis)
    user = f"reader{generation}"
    await client.execute_command(
        "ACL", "SETUSER", user, "on", ">pass", "~*", "+@read", "+@connection"
    )
    store = RedisStore(
        settings.redis.replace("redis://", f"redis://{user}:pass@"), settings.topic_prefix
    )
    try:
        with pytest.raises(RedisUnavailable, match=r"refused: .*no permissions"):
            await store.apply(generation, 0, Checkpoint(), [write()])
    finally:
        await client.execute_command("ACL", "DELUSER", user)
        await client.aclose()
        await store.close()


async def test_connections_that_the_server_closed_meanwhile_are_not_used(
    settings: Settings, generation: int
) -> None:
    client = aredis.Redis.from_url(settings.redis)
    store = RedisStore(settings.redis, settings.topic_prefix)
    try:
        revision = await begin(store, generation)
        await asyncio.gather(*(store.listed(generation, 0, "recent:a", None, 9) for _ in range(5)))
        await client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await asyncio.sleep(0.05)  # for the client to hear of it
        for _ in range(5):
            assert await store.listed(generation, 0, "recent:a", None, 9) == []
        applied = await store.apply(generation, 0, at(revision, 1), [write()])
        assert applied.verdict is Verdict.APPLIED
    finally:
        await client.aclose()
        await store.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_connection_that_closes_just_before_a_call_is_an_outage(
    settings: Settings,
    generation: int,
    loop: Callable[[], asyncio.AbstractEventLoop],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened, transports = asyncio.open_connection, list[asyncio.Transport]()

    async def opening(*args: Any, **options: Any) -> Any:
        reader, writer = await opened(*args, **options)
        transports.append(writer.transport)
        return reader, writer

    async def closes() -> bool:  # the last look before a connection is used
        transports[-1].abort()
        return False

    async def run() -> None:
        store = RedisStore(settings.redis, settings.topic_prefix)
        await store.checkpoint(generation, 0)
        (node,) = await store.servers.each()
        for call in (store.checkpoint, store.drop_partition):
            connection = await node.redis.connection_pool.get_connection()
            await node.redis.connection_pool.release(connection)
            connection.can_read = closes
            with pytest.raises(RedisUnavailable, match="does not answer"):
                await call(generation, 0)
            del connection.can_read
            assert await store.checkpoint(generation, 0) is None
        await store.close()

    monkeypatch.setattr(asyncio, "open_connection", opening)
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


async def test_another_kind_of_value_under_a_key_is_corrupt_and_not_an_outage(
    settings: Settings, generation: int
) -> None:
    client = aredis.Redis.from_url(settings.redis)
    store = RedisStore(settings.redis, settings.topic_prefix)
    await client.set(f"{settings.topic_prefix}:{{{generation}:0}}:state", "not a hash")
    try:
        for call in (
            store.apply(generation, 0, Checkpoint(), [write()]),
            store.checkpoint(generation, 0),
        ):
            with pytest.raises(CorruptWindow, match="something else under a key of the windows"):
                await call
        await store.drop_partition(generation, 0)
        assert await store.checkpoint(generation, 0) is None
    finally:
        await client.aclose()
        await store.close()


async def test_a_state_that_lost_a_field_counts_as_none(
    settings: Settings, generation: int
) -> None:
    store, client = (
        RedisStore(settings.redis, settings.topic_prefix),
        aredis.Redis.from_url(settings.redis),
    )
    await begin(store, generation)
    await client.hdel(f"{settings.topic_prefix}:{{{generation}:0}}:state", "hash")
    assert await store.checkpoint(generation, 0) is None
    await client.aclose()
    await store.close()


async def test_a_listed_time_that_is_infinite_is_left_out_of_lists_and_told_apart(
    settings: Settings, generation: int
) -> None:
    store, client = (
        RedisStore(settings.redis, settings.topic_prefix),
        aredis.Redis.from_url(settings.redis),
    )
    await begin(store, generation, replace(write(A), listing=Listing(50)))
    tag = f"{settings.topic_prefix}:{{{generation}:0}}"
    await client.zadd(f"{tag}:recent:{A.tenant}", {"endless": math.inf})
    await client.zadd(f"{tag}:timers", {"acme/endless": math.inf})
    listed = await store.listed(generation, 0, f"recent:{A.tenant}", None, 9)
    assert listed == [Found(50, A.conversation)]
    _, index = await store.index(generation, 0)
    assert index.lists[f"recent:{A.tenant}"] == {A.conversation: 50, "endless": -1}
    assert index.timers[Key("acme", "endless")] == -1
    await client.aclose()
    await store.close()
