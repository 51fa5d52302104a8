"""Peer `read_only`: aiokafka's ``getmany`` and ``orjson.loads`` of every value, nothing else: what
Python can read at all.

The consumer is made as the product makes its own. The clock runs from the first request for records
to the last record.
"""

from __future__ import annotations

import asyncio
import time

import orjson
from aiokafka import TopicPartition

from benchmarks.support.children import answer, read_job
from benchmarks.support.meters import Meter
from streams.log.clients import make_consumer
from streams.settings.settings import Settings


async def run(settings: Settings, groups: dict[str, list[int]]) -> None:
    """Read the topic once, and answer with events a second."""
    consumer = make_consumer(settings)
    await consumer.start()
    topic = settings.topic("events")
    partitions = [TopicPartition(topic, number) for number in range(settings.partitions)]
    consumer.assign(partitions)
    await consumer.seek_to_beginning()
    expected = sum((await consumer.end_offsets(partitions)).values())
    events, begin, meter = 0, time.perf_counter(), Meter(groups)
    while events < expected:
        batches = await consumer.getmany(timeout_ms=200)
        for rows in batches.values():
            for row in rows:
                orjson.loads(row.value)
            events += len(rows)
    seconds = time.perf_counter() - begin
    usage = meter.stop()
    await consumer.stop()
    answer(events / seconds, usage=usage, events=events, seconds=round(seconds, 3))


if __name__ == "__main__":
    settings, groups, _ = read_job()
    asyncio.run(run(settings, groups))
