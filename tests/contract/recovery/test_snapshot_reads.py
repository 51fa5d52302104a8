"""Reading single records of the snapshots topic at their offsets."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from projections.errors import KafkaUnavailable
from streams.log.clients import admin_client
from streams.log.random_reads import RandomReads
from streams.log.topics import create_topics
from streams.recovery.snapshot_topic import KafkaSnapshots
from streams.settings.settings import Settings
from tests.conftest import fresh_settings
from tests.support.ports import closed_port
from tests.support.worker import until
from threadfold.embedded.stack import EmbeddedStack


@pytest.fixture
async def topic(stack: EmbeddedStack) -> AsyncIterator[KafkaSnapshots]:
    settings = fresh_settings(stack, partitions=2)
    await create_topics(settings)
    made = KafkaSnapshots(settings, 2)
    yield made
    await made.stop()


def value(n: int) -> bytes:
    """Two sizes: many in one fetch, and larger than what is asked for at once."""
    return os.urandom(100_000) if n % 10 == 3 else b"value %d" % n


async def test_records_are_found_at_their_offsets_and_nothing_where_there_is_none(
    topic: KafkaSnapshots,
) -> None:
    rows = [(b"acme/c%d" % n, value(n)) for n in range(60)]
    offsets = []
    for i in range(0, 60, 7):
        offsets += await topic.put(1, rows[i : i + 7])
    for wanted in (
        [0],
        [59],
        [3, 4, 13, 55],
        list(range(60)),
        [58, 59, 60, 61, 10**9],
        [60],
        [],
        [7, 7, 7],
    ):
        found = await topic.read(1, wanted)
        assert {n: (row.key, row.value, row.offset) for n, row in found.items()} == {
            n: (*rows[n], n) for n in set(wanted) if n in offsets
        }
    assert await topic.read(0, [0, 1]) == {}
    each = await asyncio.gather(*(topic.read(1, [n]) for n in range(60)))
    assert [row.value for found in each for row in found.values()] == [body for _, body in rows]


async def test_a_topic_that_is_gone_has_no_records_and_one_made_anew_has_its_own(
    topic: KafkaSnapshots,
) -> None:
    rows = [(b"acme/c%d" % n, value(n)) for n in range(12)]
    await topic.put(1, rows)
    assert set(await topic.read(1, [5])) == {5}
    name = topic.settings.topic("snapshots")
    async with admin_client(topic.settings) as admin:
        await admin.delete_topics([name])

        async def gone() -> bool:
            return name not in await admin.list_topics()

        await until(gone)
    assert await topic.read(1, [5]) == {}
    await create_topics(topic.settings)

    async def again() -> bool:
        return await topic.read(1, [5]) == {} and await topic.usable() is None

    await until(again)
    assert await topic.put(1, rows[:1]) == [0]
    assert set(await topic.read(1, [0, 5])) == {0}


async def test_brokers_that_are_away_are_named_in_bounded_time() -> None:
    settings = Settings(kafka=f"127.0.0.1:{closed_port()}", append_timeout=1.0)
    reads = RandomReads(settings, "threadfold.snapshots", "reading snapshots")
    with pytest.raises(KafkaUnavailable, match="does not answer"):
        await reads.read(0, [1])
    await reads.stop()
