"""Looking for a text in everything that is stored: each record of every topic as it stands, and
each value in Redis.
"""

from __future__ import annotations

from typing import Any

import redis.asyncio as aredis
from aiokafka import TopicPartition

from streams.log.clients import make_consumer
from streams.log.topics import SPECS, partition_count
from streams.settings.settings import Settings


async def raw_records(settings: Settings, topic: str) -> list[tuple[bytes, bytes | None]]:
    """All records of a topic now, as key and value."""
    consumer = make_consumer(settings)
    await consumer.start()
    found: list[tuple[bytes, bytes | None]] = []
    try:
        name = settings.topic(topic)
        partitions = [
            TopicPartition(name, p) for p in range(await partition_count(settings, topic))
        ]
        consumer.assign(partitions)
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(tp) < ends[tp] for tp in partitions]):
            for rows in (await consumer.getmany(timeout_ms=200)).values():
                found += [(row.key or b"", row.value) for row in rows]
    finally:
        await consumer.stop()
    return found


async def topics_with(settings: Settings, text: bytes) -> set[str]:
    """The topics that hold a text anywhere in a key or value."""
    found = set()
    for spec in SPECS:
        if any(
            text in key or text in (value or b"")
            for key, value in await raw_records(settings, spec.name)
        ):
            found.add(spec.name)
    return found


async def redis_keys_with(settings: Settings, text: bytes) -> list[bytes]:
    """The keys in Redis that hold a text in their name or value."""
    client: Any = aredis.Redis.from_url(settings.redis)
    try:
        found = []
        async for name in client.scan_iter(count=1000):
            kind = await client.type(name)
            if kind == b"hash":
                value = b"\n".join(
                    part for item in (await client.hgetall(name)).items() for part in item
                )
            elif kind == b"zset":
                value = b"\n".join(await client.zrange(name, 0, -1))
            elif kind == b"stream":
                value = repr(await client.xrange(name)).encode()
            elif kind == b"list":
                value = b"\n".join(await client.lrange(name, 0, -1))
            else:
                value = await client.get(name) or b""
            if text in name or text in value:
                found.append(name)
        return found
    finally:
        await client.aclose()
