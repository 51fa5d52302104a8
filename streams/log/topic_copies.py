"""Topics read whole, as they stand, and written again at the same offsets: what backups are made of
and come back from.

A position is an offset, and events name positions. So a topic that is not compacted gets every
record back at its offset. Where the original has none (a transaction's marker), an empty record
takes the place: an invalid record, which is set aside and belongs to nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiokafka.admin import RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import for_code

from projections.errors import TopicMismatch
from streams.log.clients import (
    TopicPartition,
    admin_client,
    kafka_errors,
    make_consumer,
    sequential_consumer,
    start_client,
    stop_client,
)
from streams.log.replication import config_of
from streams.log.topics import (
    COMPACTED,
    OWN_TIMES,
    SHOW_UP,
    SPECS,
    TIMESTAMPS,
    TopicSpec,
    new_topic,
    partition_count,
    replication_for,
)
from streams.settings.settings import Settings

AT_ONCE = 500
"""Records that are on their way to the broker at once."""
FILLER = [("threadfold-filler", b"1")]
"""The header of a record that stands where the original had none."""


class Copied(NamedTuple):
    """A record with all that a topic keeps of it; ``timestamp`` in ms."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class Extent(NamedTuple):
    """A partition's first offset, and the one its next record gets."""

    first: int
    end: int


def is_compacted(spec: TopicSpec) -> bool:
    """Whether the topic keeps the latest record of each key alone, so that offsets mean nothing."""
    return spec.config["cleanup.policy"] == COMPACTED["cleanup.policy"]


async def extents(settings: Settings, name: str) -> list[Extent]:
    """What each partition of a topic holds, by the topic's short name.

    Raises:
        TopicMismatch: there is no such topic.
        KafkaUnavailable: the brokers do not answer.
    """
    topic = settings.topic(name)
    places = [TopicPartition(topic, n) for n in range(await partition_count(settings, name))]
    async with (
        kafka_errors(settings, f"reading topic {topic}"),
        sequential_consumer(settings, places) as consumer,
    ):
        first = await consumer.beginning_offsets(places)
        end = await consumer.end_offsets(places)
        return [Extent(first[tp], end[tp]) for tp in places]


async def read_partition(
    settings: Settings, topic: str, partition: int, end: int, *, first: int = 0
) -> AsyncIterator[list[Copied]]:
    """All records from offset ``first`` to before ``end``, as they come; raises
    KafkaUnavailable.
    """
    place, limit = TopicPartition(topic, partition), settings.append_timeout
    async with (
        kafka_errors(settings, f"reading topic {topic}"),
        sequential_consumer(settings, [place]) as consumer,
    ):
        if first:
            consumer.seek(place, first)
        else:
            await consumer.seek_to_beginning(place)
        deadline = asyncio.get_running_loop().time() + limit
        before = -1
        while (position := await consumer.position(place)) < end:
            now = asyncio.get_running_loop().time()
            if position > before:
                before, deadline = position, now + limit
            elif now > deadline:
                raise TimeoutError(f"no record came from partition {partition} within {limit:g} s")
            rows = (await consumer.getmany(place, timeout_ms=200)).get(place, [])
            found = [_copied(row) for row in rows if row.offset < end]
            if found:
                yield found


def _copied(row: Any) -> Copied:
    # A client cannot write a record without key and value: it comes back with an empty key.
    key = b"" if row.key is None and row.value is None else row.key
    return Copied(row.offset, row.timestamp, key, row.value, tuple(row.headers))


class PartitionWriter:
    """Writes copies into one partition of a topic, from its first offset on."""

    def __init__(self, producer: Any, topic: str, partition: int, *, exact: bool) -> None:
        """Args: ``exact``: every record gets the offset that it had."""
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._exact = exact
        self._next = 0
        self._sent: list[Any] = []

    async def write(self, records: Sequence[Copied]) -> None:
        """Write records in order; they are safe after :meth:`flush`."""
        for record in records:
            while self._exact and self._next < record.offset:
                await self._send(Copied(self._next, record.timestamp, b"", None, tuple(FILLER)))
            await self._send(record)

    async def fill(self, end: int) -> None:
        """Make the next record's offset ``end``, where the original ended in markers."""
        while self._exact and self._next < end:
            await self._send(Copied(self._next, 0, b"", None, tuple(FILLER)))

    async def flush(self) -> None:
        """Wait until all in-sync replicas have all of it.

        Raises:
            TopicMismatch: a record has another offset than it had: somebody else writes, too.
        """
        for expected, sent in self._sent:
            found = (await sent).offset
            if self._exact and found != expected:
                raise TopicMismatch(
                    f"topic {self._topic}, partition {self._partition}: a record that was at"
                    f" offset {expected} is at {found}: stop whatever writes to the topic, delete"
                    " the topics and begin anew"
                )
        self._sent.clear()

    async def _send(self, record: Copied) -> None:
        sent = await self._producer.send(
            self._topic,
            record.value,
            record.key,
            self._partition,
            record.timestamp,
            list(record.headers),
        )
        self._sent.append((self._next, sent))
        self._next += 1
        if len(self._sent) >= AT_ONCE:
            await self.flush()


async def delete_before(settings: Settings, name: str, offsets: Mapping[int, int]) -> None:
    """Delete the records of a topic's partitions that are before these offsets.

    Raises:
        KafkaUnavailable: the brokers refuse it, or do not answer.
    """
    topic = settings.topic(name)
    wanted = {
        TopicPartition(topic, number): RecordsToDelete(before_offset=offset)
        for number, offset in offsets.items()
    }
    if wanted:
        async with admin_client(settings) as admin:
            await admin.delete_records(wanted)


async def keep_timestamps(settings: Settings, names: Sequence[str], *, keep: bool) -> None:
    """Have topics take the timestamps of who writes (``keep``), or those that they are to have:
    the broker's, of events.

    Raises:
        TopicMismatch: the broker refuses it.
    """
    async with admin_client(settings) as admin:
        brokers = len((await admin.describe_cluster())["brokers"])
        changed = []
        for spec in (spec for spec in SPECS if spec.name in names):
            config = new_topic(settings, spec, *replication_for(settings, brokers)).topic_configs
            if keep:
                config = {**config, **OWN_TIMES}
            topic = settings.topic(spec.name)
            changed.append(ConfigResource(ConfigResourceType.TOPIC, topic, configs=config))
        for answer in await admin.alter_configs(changed):
            for code, reason, _, topic in answer.resources:
                if code:
                    raise TopicMismatch(
                        f"topic {topic} cannot be configured: {reason or for_code(code).__name__}"
                    )
        for one in changed:  # a broker answers before it does so
            if (wanted := one.configs.get(TIMESTAMPS)) is not None:  # else the broker's default
                await _in_force(admin, one.name, wanted)


async def _in_force(admin: Any, topic: str, wanted: str) -> None:
    """Wait until a broker says that a topic's timestamps are the ``wanted`` ones."""
    deadline = asyncio.get_running_loop().time() + SHOW_UP
    while (await config_of(admin, topic)).get(TIMESTAMPS) != wanted:
        if asyncio.get_running_loop().time() > deadline:
            raise TopicMismatch(f"topic {topic} is not configured after {SHOW_UP:g} s: try again")
        await asyncio.sleep(0.05)


@asynccontextmanager
async def _member(settings: Settings, places: list[TopicPartition]) -> AsyncIterator[Any]:
    async with kafka_errors(settings, f"offsets of the group {settings.group}"):
        consumer = make_consumer(settings, group=settings.group)
        await start_client(consumer, settings)
        try:
            consumer.assign(places)
            yield consumer
        finally:
            await stop_client(consumer, settings)


async def committed(settings: Settings, topic: str, partitions: int) -> dict[int, int]:
    """What the projectors' group has committed of a topic: everything before was announced."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    async with _member(settings, places) as consumer:
        found = {tp.partition: await consumer.committed(tp) for tp in places}
    return {number: offset for number, offset in found.items() if offset is not None}


async def commit(settings: Settings, topic: str, offsets: Mapping[int, int]) -> None:
    """Commit these offsets for the projectors' group, which nobody is in."""
    done = {TopicPartition(topic, number): offset for number, offset in offsets.items()}
    if done:
        async with _member(settings, list(done)) as consumer:
            await consumer.commit(done)
