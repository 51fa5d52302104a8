"""Where partitions end, as the brokers say now."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from aiokafka.client import ConnectionGroup
from aiokafka.protocol.offset import OffsetRequest, OffsetResetStrategy

from streams.log.clients import AIOKafkaConsumer, KafkaError, TopicPartition


async def end_offsets(
    consumer: AIOKafkaConsumer, places: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Of each partition the offset that its next record will get.

    Each broker is asked once, over a connection of its own: on the consumer's, the answer waits
    until the broker answers the fetch before it.
    """
    client: Any = consumer._client
    by_leader: defaultdict[int | None, list[TopicPartition]] = defaultdict(list)
    for place in places:
        by_leader[client.cluster.leader_for_partition(place)].append(place)
    ends: dict[TopicPartition, int] = {}
    for found in await asyncio.gather(*(_ask(client, *asked) for asked in by_leader.items())):
        ends |= found
    missing = [place for asked in by_leader.values() for place in asked if place not in ends]
    if missing:
        ends |= await consumer.end_offsets(missing)  # which tries until there is a leader
    return ends


async def _ask(
    client: Any, leader: int | None, places: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """What a leader says of its partitions; nothing of those that it does not know."""
    if leader in (None, -1):
        return {}
    topics: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for topic, partition in places:
        topics[topic].append((partition, OffsetResetStrategy.LATEST))
    with suppress(KafkaError):
        request = OffsetRequest(-1, 0, list(topics.items()))
        response = await client.send(leader, request, group=ConnectionGroup.COORDINATION)
        return {
            TopicPartition(topic, partition): int(offset)
            for topic, answers in response.topics
            for partition, code, *_, offset in answers
            if code == 0
        }
    return {}
