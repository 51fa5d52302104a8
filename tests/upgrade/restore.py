"""Brings what a release left behind into topics and a Redis of a test."""

from __future__ import annotations

import base64
from functools import cached_property
from pathlib import Path
from typing import Any

import redis.asyncio as aredis
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from streams.settings.settings import Settings
from tests.golden.files import bytes_of, read_lines


class Left:
    """What a deployment of a release left behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def about(self) -> dict[str, Any]:
        """Its policy, master keys and API keys, the committed offsets, and what it answered."""
        (found,) = read_lines(self.folder / "about.jsonl.gz")
        return dict(found)

    async def topics(self, settings: Settings) -> None:
        """Every record where it stood, and the offsets that workers had committed."""
        producer = AIOKafkaProducer(bootstrap_servers=settings.kafka)
        await producer.start()
        try:
            for row in read_lines(self.folder / "topics.jsonl.gz"):
                sent = await producer.send_and_wait(
                    settings.topic(row["topic"]),
                    bytes_of(row["value"]),
                    bytes_of(row["key"]),
                    partition=row["partition"],
                    timestamp_ms=row["timestamp"],
                    headers=[(name, value.encode()) for name, value in row["headers"]],
                )
                if row["topic"] == "events":
                    assert sent.offset == row["offset"], "positions are offsets"
        finally:
            await producer.stop()
        for group, offsets in self.about["commits"].items():
            await self._commit(settings, f"{settings.group}{group}", offsets)

    async def _commit(self, settings: Settings, group: str, offsets: dict[str, int]) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=settings.kafka, group_id=group, enable_auto_commit=False
        )
        await consumer.start()
        try:
            places = {}
            for name, offset in offsets.items():
                topic, _, partition = name.partition("/")
                place = TopicPartition(settings.topic(topic), int(partition))
                places[place] = OffsetAndMetadata(offset, "")
            consumer.assign(list(places))
            await consumer.commit(places)
        finally:
            await consumer.stop()

    def count(self, topic: str) -> int:
        """How many records a topic had."""
        rows = read_lines(self.folder / "topics.jsonl.gz")
        return sum(row["topic"] == topic for row in rows)

    async def redis(self, settings: Settings) -> None:
        """All that Redis held, under the prefix of these settings."""
        client = aredis.Redis.from_url(settings.redis)
        for row in read_lines(self.folder / "redis.jsonl.gz"):
            key = settings.topic_prefix + row["key"].removeprefix("threadfold")
            value = row["value"]
            if row["type"] == "hash":
                await client.hset(key, mapping={_raw(f): _raw(v) for f, v in value})
            elif row["type"] == "zset":
                await client.zadd(key, {_raw(member): score for member, score in value})
            else:
                assert row["type"] == "string", row["type"]
                await client.set(key, _raw(value), px=None if row["ttl"] < 0 else row["ttl"])
        await client.aclose()


async def record_count(settings: Settings, name: str) -> int:
    """How many records a topic has."""
    consumer = AIOKafkaConsumer(bootstrap_servers=settings.kafka, enable_auto_commit=False)
    await consumer.start()
    try:
        topic = settings.topic(name)
        await consumer.topics()
        places = [TopicPartition(topic, p) for p in range(settings.partitions)]
        return sum((await consumer.end_offsets(places)).values())
    finally:
        await consumer.stop()


def _raw(text: str) -> bytes:
    return base64.b64decode(text)
