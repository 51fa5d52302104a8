"""A tenant's summaries topic as a stream: accepted summaries, voidings and erasures of all its
conversations, at least once.

Events of one conversation come in order; there is no order among conversations. An event's id is
the position of the whole topic after it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from projections.names import parse_key
from streams.encryption.payload_cipher import PayloadCipher
from streams.log.kafka_log import KafkaLog
from streams.log.log import Row
from streams.settings.settings import Settings
from threadfold.streaming.cursor import not_as_now, read_cursor, write_cursor
from threadfold.streaming.decoding import decode_summary
from threadfold.streaming.reader import CHUNK, Reader, batches_of
from threadfold.streaming.sse_event import HEARTBEAT, SseEvent
from threadfold.streaming.tail import Tail


class Tenant:
    """The subscribers of one tenant's summaries in this process."""

    def __init__(
        self, topic: str, name: str, next_of: Callable[[], list[int]], seals: PayloadCipher
    ) -> None:
        self.name = name
        self._seals = seals
        self.readers: set[Reader] = set()
        self._topic = topic
        self._next_of = next_of

    def deliver(self, row: Row, partition: int) -> None:
        """Take a record of the tenant from the tail."""
        event = _event_of(self._topic, self.name, row, partition, self._next_of, self._seals)
        if event is not None:
            for reader in self.readers:
                reader.put(event)

    def broken(self, reason: str) -> None:
        """End all readers, because records cannot be delivered in order any more."""
        for reader in list(self.readers):
            reader.end(reason)


class Summaries:
    """The summaries topic for all subscribers of a process. Stop it after."""

    def __init__(self, settings: Settings, partitions: int, seals: PayloadCipher) -> None:
        self.seals = seals
        self.topic = settings.topic("summaries")
        self.partitions = partitions
        self._log = KafkaLog(settings, partitions, "summaries", seals=seals)
        self._tail = Tail(settings, self.topic, partitions, self._log.end_offsets, seals, tenant_of)
        self._tenants: dict[str, Tenant] = {}

    async def stop(self) -> None:
        """Close the connections."""
        await self._tail.stop()
        await self._log.stop()

    async def open(
        self, tenant: str, reader: Reader, cursor: str | None, beginning: bool
    ) -> SummariesSubscription:
        """Subscribe after a cursor, from the beginning, or from now on.

        Raises:
            InvalidPosition: it is not a cursor of this tenant's stream, or the log ends before it.
            KafkaUnavailable: Kafka does not answer.
        """
        every = range(self.partitions)
        since = None if cursor is None else read_cursor(self.topic, tenant, self.partitions, cursor)
        if since is None and beginning:
            since = [0] * self.partitions
        ends = await self._log.end_offsets()
        if since is None:
            since = [ends[p] for p in every]
        elif any(since[p] > ends[p] for p in every):
            # It was given out by another log: what was there before it is not what is here.
            raise not_as_now()
        found = self._tenants.get(tenant)
        if found is None:
            found = self._tenants[tenant] = Tenant(
                self.topic, tenant, lambda: [self._tail.next(p) for p in every], self.seals
            )
        found.readers.add(reader)
        try:
            await self._tail.join(tenant.encode(), found, every)
        except BaseException:
            self.leave(tenant, reader)
            raise
        return SummariesSubscription(self, tenant, reader, since)

    def leave(self, tenant: str, reader: Reader) -> None:
        """Remove a reader."""
        found = self._tenants.get(tenant)
        if found is None:
            return
        found.readers.discard(reader)
        if not found.readers:
            del self._tenants[tenant]
            self._tail.leave(tenant.encode(), found, range(self.partitions))

    def join(self, reader: Reader) -> list[int]:
        """Send a reader everything from the offsets that are returned on."""
        reader.join(-1)
        return [self._tail.next(p) for p in range(self.partitions)]

    async def between(
        self, tenant: str, since: list[int], upto: Sequence[int]
    ) -> AsyncIterator[SseEvent]:
        """The tenant's events from ``since`` to ``upto``, in bounded memory; ``since`` moves along.

        Raises:
            KafkaUnavailable: the topic cannot be read now.
        """
        ranges = {p: (since[p], upto[p] - 1) for p in range(self.partitions) if since[p] < upto[p]}
        name = tenant.encode()
        async for partition, rows in self._log.stream(ranges):
            for row in rows:
                since[partition] = row.offset + 1
                if row.key is not None and tenant_of(row.key) == name:
                    event = _event_of(self.topic, tenant, row, partition, lambda: since, self.seals)
                    if event is not None:
                        yield event
            yield HEARTBEAT  # however little of it is this tenant's, the stream is not silent
        since[:] = [max(*pair) for pair in zip(since, upto, strict=True)]


class SummariesSubscription:
    """A subscription of :meth:`Summaries.open`. Iterate :meth:`batches` once."""

    def __init__(self, summaries: Summaries, tenant: str, reader: Reader, since: list[int]) -> None:
        self._summaries = summaries
        self._tenant = tenant
        self._reader = reader
        self._since = since
        self._upto = summaries.join(reader)

    def on_cut(self, callback: Callable[[], None]) -> None:
        """As that of a conversation's subscription."""
        self._reader.on_cut = callback

    def batches(self) -> AsyncIterator[list[SseEvent]]:
        """The events in order, with comments: heart-beats, and the reason at the end."""
        return batches_of(self._reader, self._past())

    async def _past(self) -> AsyncIterator[list[SseEvent]]:
        reader = self._reader
        while reader.ended is None:
            batch: list[SseEvent] = []
            size = 0
            async for event in self._summaries.between(self._tenant, self._since, self._upto):
                batch.append(event)
                size += len(event.data)
                if size >= CHUNK:
                    yield batch
                    batch, size = [], 0
            if batch:
                yield batch
            if not reader.overflowed:
                break
            self._upto = self._summaries.join(reader)
        reader.joining = False


def tenant_of(key: bytes) -> bytes:
    """The tenant's part of a record's key."""
    return key.partition(b"/")[0]


def _event_of(
    topic: str,
    tenant: str,
    row: Row,
    partition: int,
    next_of: Callable[[], list[int]],
    seals: PayloadCipher,
) -> SseEvent | None:
    key = parse_key(row.key or b"")
    found = None if key is None else decode_summary(row, partition, key, seals)
    if found is None:
        return None
    return SseEvent(found[0], write_cursor(topic, tenant, next_of()), found[1])
