"""Records written to a topic as they are, by a producer that knows nothing of events."""

from __future__ import annotations

from aiokafka import AIOKafkaProducer
from aiokafka.structs import RecordMetadata

from streams.settings.settings import Settings


async def put_raw(
    settings: Settings, topic: str, *rows: tuple[int, bytes, bytes | None]
) -> list[RecordMetadata]:
    """Write rows, each a partition, a key and a value, in this order; returns where they stand."""
    async with AIOKafkaProducer(bootstrap_servers=settings.kafka) as producer:
        return [
            await producer.send_and_wait(settings.topic(topic), value, key, partition=partition)
            for partition, key, value in rows
        ]
