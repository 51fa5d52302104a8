"""A worker to which nothing but junk comes stops with one clear error, and leaves everything where
it was.
"""

from __future__ import annotations

import msgspec

from projections.names import Key, partition_of
from projections.redis.store import RedisStore
from streams.log.clients import make_producer
from streams.settings.settings import Settings
from tests.support.commands import cli
from tests.support.generations import open_generation
from tests.support.worker import running_worker, until


async def test_a_worker_stops_when_too_much_is_poison_and_goes_on_with_a_larger_share(
    settings: Settings,
) -> None:
    await open_generation(settings, {})
    key = Key("acme", "junk")
    number = partition_of(key, settings.partitions)
    producer = make_producer(settings)
    await producer.start()
    for i in range(40):
        await producer.send(settings.topic("events"), b"%d" % i, None, partition=number)
    await producer.flush()
    await producer.stop()
    env = {
        f"THREADFOLD_{name.upper()}": str(getattr(settings, name))
        for name in ("kafka", "redis", "topic_prefix", "group", "partitions")
    }
    ran = await cli("worker", env=env, limit=90)
    assert ran.code == 2, ran.err
    last = ran.err.splitlines()[-1]
    assert (
        last.startswith("threadfold: ")
        and "max_poison_share" in last
        and f"the last is {number}-" in last
    ), ran.err
    assert "Traceback" not in ran.err and "Crashed" not in ran.err, ran.err
    store = RedisStore(settings.redis, settings.topic_prefix)
    try:
        stored = await store.checkpoint(1, number)
        assert stored is not None and stored.offset < 39
        async with running_worker(
            msgspec.structs.replace(settings, max_poison_share=1.0), compact=False
        ):
            await until(lambda: _reached(store, number, 39))
    finally:
        await store.close()


async def _reached(store: RedisStore, number: int, offset: int) -> bool:
    stored = await store.checkpoint(1, number)
    return stored is not None and stored.offset >= offset
