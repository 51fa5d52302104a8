"""A tenant's summaries topic as a stream: accepted summaries, voidings and erasures of all its
conversations, at least once.

Events of one conversation come in order; there is no order among conversations. An event's id is
the position of the whole topic after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from functools import partial

import msgspec

from projections.names import parse_key
from streams.encryption.payload_cipher import PayloadCipher
from streams.log.kafka_log import KafkaLog
from streams.log.log import Row
from streams.runtime.keyed_limit import KeyedLimit
from streams.settings.settings import Settings
from threadfold.streaming.cursor import not_as_now, read_cursor, write_cursor
from threadfold.streaming.decoding import decode_summary
from threadfold.streaming.missed_summaries import MissedSummaries, Missing, tenant_of
from threadfold.streaming.past_pages import PastPages
from threadfold.streaming.reader import CHUNK, Reader, batches_of
from threadfold.streaming.sse_event import SseEvent
from threadfold.streaming.tail import Tail
from threadfold.streaming.unsent import TenantStreams

LINGER = 10.0
"""Seconds for which the topic is read on after the last stream has ended. Streams that are opened
and left again and again ask Kafka nothing then.
"""


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
        self._tail = Tail(
            settings, self.topic, partitions, self._log.end_offsets, seals, tenant_of, LINGER
        )
        self._tenants: dict[str, Tenant] = {}
        self._turns = KeyedLimit(1)

    async def stop(self) -> None:
        """Close the connections."""
        await self._tail.stop()
        await self._log.stop()

    async def open(
        self, tenant: str, reader: Reader, cursor: str | None, beginning: bool
    ) -> list[int]:
        """Subscribe after a cursor, from the beginning, or from now on; returns the offset of each
        partition from which that is. :meth:`leave` ends it.

        Raises:
            InvalidPosition: it is not a cursor of this tenant's stream, or the log ends before it.
            KafkaUnavailable: Kafka does not answer.
        """
        every = range(self.partitions)
        since = None if cursor is None else read_cursor(self.topic, tenant, self.partitions, cursor)
        found = self._tenants.get(tenant)
        if found is None:
            found = self._tenants[tenant] = Tenant(
                self.topic, tenant, lambda: [self._tail.next(p) for p in every], self.seals
            )
        found.readers.add(reader)
        try:
            await self._tail.join(tenant.encode(), found, every)
            now = [self._tail.next(p) for p in every]
            if since is None:
                return [0] * self.partitions if beginning else now
            await self._check(since, now)
        except BaseException:
            self.leave(tenant, reader)
            raise
        return since

    async def _check(self, since: Sequence[int], now: Sequence[int]) -> None:
        """Raise :class:`InvalidPosition` if the log ends before ``since``; up to ``now`` it is
        known that it does not.
        """
        if all(at <= known for at, known in zip(since, now, strict=True)):
            return
        # The tail of another gateway may be ahead of this one's.
        ends = await self._log.end_offsets()
        if any(at > ends[p] for p, at in enumerate(since)):
            # It was given out by another log: what was there before it is not what is here.
            raise not_as_now()

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

    def missed(self, tenant: str, since: Sequence[int], upto: Sequence[int]) -> MissedSummaries:
        """What came from the one offset of each partition up to the other."""
        return MissedSummaries(self._log, self._turns, tenant, since, upto)


class SummariesSubscription:
    """A subscription to a tenant's summaries. Iterate :meth:`batches` once, and :meth:`close` it in
    any case.

    Args:
        since: where it begins, by partition.
        close: called at its end.
    """

    def __init__(
        self,
        summaries: Summaries,
        tenant: TenantStreams,
        reader: Reader,
        since: list[int],
        heartbeat: float,
        close: Callable[[], None],
    ) -> None:
        self._summaries = summaries
        self._tenant = tenant.name
        self._reader = reader
        self._since = since
        self._upto = summaries.join(reader)
        self._pages = PastPages(reader, tenant.past_summaries, heartbeat)
        self._close = close

    def close(self) -> None:
        """Leave; may be called more than once."""
        self._pages.close()
        self._close()

    def on_cut(self, callback: Callable[[], None]) -> None:
        """As that of a conversation's subscription."""
        self._reader.on_cut = callback

    def batches(self) -> AsyncIterator[list[SseEvent]]:
        """The events in order, with comments: heart-beats, and the reason at the end."""
        return batches_of(self._reader, self._past())

    async def _past(self) -> AsyncIterator[list[SseEvent]]:
        reader = self._reader
        while reader.ended is None:
            missed = self._summaries.missed(self._tenant, self._since, self._upto)
            batches_of_page = partial(self._batches_of, missed)
            async for batch in self._pages.batches(missed.next_page, batches_of_page):
                yield batch
            if not reader.overflowed or not reader.sends:
                break
            self._upto = self._summaries.join(reader)
        reader.joining = False

    async def _batches_of(
        self, missed: MissedSummaries, rows: Sequence[Row]
    ) -> AsyncGenerator[list[SseEvent], None]:
        """A page's events; what was sent is not sent again if it joins again."""
        since, seals = self._since, self._summaries.seals
        batch: list[SseEvent] = []
        size, lost = 0, deque(missed.missing)
        for at, (partition, row) in enumerate(zip(missed.partitions, rows, strict=True)):
            while lost and lost[0].row <= at:
                batch.append(self._missing(lost.popleft()))
            since[partition] = row.offset + 1
            event = _event_of(
                self._summaries.topic, self._tenant, row, partition, lambda: since, seals
            )
            if event is not None:
                batch.append(event)
                size += len(event.data)
            if size >= CHUNK:
                yield batch
                batch, size = [], 0
        batch += map(self._missing, lost)
        since[:] = missed.next
        if batch:
            yield batch

    def _missing(self, lost: Missing) -> SseEvent:
        """Says which records of the topic the stream cannot give; it goes on after them."""
        self._since[lost.partition] = lost.last + 1
        data = {"partition": lost.partition, "first": lost.first, "last": lost.last}
        cursor = write_cursor(self._summaries.topic, self._tenant, self._since)
        return SseEvent("missing", cursor, msgspec.json.encode(data))


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
    kind, data = found
    of = str(key).encode() if kind == "summary" else b""
    return SseEvent(kind, write_cursor(topic, tenant, next_of()), data, of)
