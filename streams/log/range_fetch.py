"""One fetch of a range of the log. What the broker answers with is unpacked a little at a time: the
event loop has more to do.
"""

from __future__ import annotations

import asyncio

from aiokafka import TopicPartition

from projections.names import Position
from streams.log.clients import AIOKafkaConsumer
from streams.log.log import Raw

MOST = 2_000
"""Records of one fetch, about."""
UNPACKED = 100
"""Records that are unpacked before others have their turn: some half a millisecond."""
WAIT_MS = 1_000


async def fetch_some(
    consumer: AIOKafkaConsumer, tp: TopicPartition, at: int, last: int
) -> tuple[list[Raw], int]:
    """What the broker has from ``at`` on up to ``last``, and where it goes on; ``at`` itself where
    the log has become shorter than it was. The consumer stands at ``at``.

    There may be no record in between, but marks of transactional producers, which take an offset
    each.
    """
    while True:
        found = await _unpacked(consumer, tp, last, WAIT_MS)
        passed: int = await consumer.position(tp)
        while found and len(found) < MOST and passed <= last:
            await asyncio.sleep(0)
            more = await _unpacked(consumer, tp, last, 0)
            if not more:
                break
            found += more
            passed = await consumer.position(tp)
        if found or passed > at:
            return found, passed
        if (await consumer.end_offsets([tp]))[tp] <= at:
            return [], at


async def _unpacked(
    consumer: AIOKafkaConsumer, tp: TopicPartition, last: int, timeout_ms: int
) -> list[Raw]:
    found = await consumer.getmany(tp, timeout_ms=timeout_ms, max_records=UNPACKED)
    return [
        Raw(Position(tp.partition, one.offset), one.key, one.value, one.timestamp)
        for one in found.get(tp, ())
        if one.offset <= last
    ]
