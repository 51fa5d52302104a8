"""One partition's way into the log: what comes while a record batch is under way goes out together
in the next one.

So batches adapt to load by themselves: a single event that finds nothing under way is sent at once,
and under load each request carries what came during the one before. At most one batch of a
partition is under way, which is all that an idempotent aiokafka producer allows anyway; it waits
for its place in the order of arrival (aiokafka's own ``send_batch`` lets many callers race for it,
and counts the time of those that lose several times over).

aiokafka has one request under way to a broker, with a batch of each partition the broker leads. A
batch that is closed while another partition's is under way would wait for that and miss what comes
meanwhile, so partitions of one broker fill theirs together, when it has nothing under way
(:class:`Brokers`): as many rows a request as there can be.

For the same reason a request of 16 MiB would hold up every caller for as long as it takes, so large
lists go out by a producer of their own (:mod:`streams.log.appenders`).
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import OutOfOrderSequenceNumber, ProducerClosed

from projections.errors import Overloaded
from projections.events.codec import CONTENT_TYPE
from streams.runtime.tasks import end_tasks

HEADERS = [("content-type", CONTENT_TYPE.encode())]
Pair = tuple[bytes, bytes]
"""A record's key and value."""
Place = tuple[str, int]
"""A tenant and a partition."""
MAX_UNDER_WAY = 128 << 20
MAX_OF_A_TENANT = 64 << 20
MAX_OF_A_PARTITION = 32 << 20
"""Bytes of events that may be on their way into the log at once, in all, of a tenant, and of a
tenant in one partition; one list of any size always may.
"""
LARGE = 2 << 20
"""Bytes of a batch from which on it takes over 20 ms of the event loop: it holds one record."""
REST = 0.02 / (1 << 20)
"""Seconds that others have after a large batch, for each of its bytes: twice what it took."""
LONGEST_TURN = 0.05
"""Seconds that a partition waits for the others of its broker at most: a batch that is tried again
and again must not hold them up.
"""


class Brokers:
    """What appenders that share a producer have under way, by broker."""

    def __init__(self) -> None:
        self._under_way: Counter[int] = Counter()
        self._idle: dict[int, asyncio.Event] = {}
        self._large = asyncio.Lock()

    @asynccontextmanager
    async def one_by_one(self, size: int) -> AsyncIterator[None]:
        """Send a batch that begins with a row of so many bytes within. aiokafka compresses and
        writes a large one in one step of the event loop, so these go one by one.
        """
        if size <= LARGE:
            yield
            return
        async with self._large:
            yield

    async def turn(self, broker: int | None) -> None:
        """Wait until nothing is under way to a broker, but not for long; None (nobody leads the
        partition just now) is not waited for.
        """
        idle = None if broker is None else self._idle.get(broker)
        if idle is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_TURN):
                    await idle.wait()

    def begin(self, broker: int | None) -> None:
        """A batch goes to the broker. Whoever finds it idle in this moment still goes along, as
        aiokafka sends a moment later.
        """
        if broker is not None:
            asyncio.get_running_loop().call_soon(self._depart, broker)

    def end(self, broker: int | None) -> None:
        """It is acknowledged, or failed."""
        if broker is not None:
            # Not at once: the batches of a request end one after the other, and the last one's
            # partition must not run ahead.
            asyncio.get_running_loop().call_soon(self._arrive, broker)

    def _depart(self, broker: int) -> None:
        self._under_way[broker] += 1
        self._idle.setdefault(broker, asyncio.Event())

    def _arrive(self, broker: int) -> None:
        self._under_way[broker] -= 1
        if not self._under_way[broker]:
            self._idle.pop(broker).set()


class Load:
    """How many bytes are on their way, so that what waits has a bound: beyond it a call fails at
    once and is not queued. No tenant takes all of it.
    """

    def __init__(
        self,
        most: int = MAX_UNDER_WAY,
        most_of_tenant: int = MAX_OF_A_TENANT,
        most_of_one: int = MAX_OF_A_PARTITION,
    ) -> None:
        """Args: ``most_of_one`` is a tenant's bound in one partition."""
        self._most = most
        self._most_of_tenant = most_of_tenant
        self._most_of_one = most_of_one
        self._under_way: Counter[str | Place] = Counter()
        """Bytes by tenant, by a tenant's partition, and in all (an empty name)."""

    @contextmanager
    def of(self, sizes: Mapping[Place, int]) -> Iterator[None]:
        """Count these bytes of each tenant and partition in while the context lasts.

        Raises:
            Overloaded: there are others on their way, and these would be too many beside them.
        """
        added: Counter[str | Place] = Counter(sizes)
        for (tenant, _), size in sizes.items():
            added[tenant] += size
        added[""] = sum(sizes.values())
        for place, size in added.items():
            before = self._under_way[place]
            if before and before + size > self._most_at(place):
                to = f"partition {place[1]}" if isinstance(place, tuple) else "the log"
                raise Overloaded(
                    f"{before >> 20} MiB of events are already being written to {to}: try again"
                    " shortly"
                )
        self._under_way.update(added)
        try:
            yield
        finally:
            self._under_way.subtract(added)
            for place in added:
                if not self._under_way[place]:
                    del self._under_way[place]

    def _most_at(self, place: str | Place) -> int:
        if isinstance(place, tuple):
            return self._most_of_one
        return self._most_of_tenant if place else self._most


class _Job:
    """Rows of one caller: how many are in batches already, the offsets of those that are
    acknowledged, and who waits for them.
    """

    __slots__ = ("done", "offsets", "rows", "taken")

    def __init__(self, rows: Sequence[Pair]) -> None:
        self.rows = rows
        self.taken = 0
        self.offsets: list[int] = []
        self.done: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()


class Appender:
    """Appends to one partition. One instance serves any number of callers in one event loop; their
    number and bytes are theirs to bound.
    """

    def __init__(self, topic: str, partition: int, brokers: Brokers | None = None) -> None:
        """Args: ``brokers`` is shared by the appenders that use one producer."""
        self._topic = topic
        self._partition = partition
        self._brokers = brokers or Brokers()
        self._jobs: deque[_Job] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._producer: Any = None

    async def append(self, producer: AIOKafkaProducer, rows: Sequence[Pair]) -> list[int]:
        """Append rows in order and return their offsets once all are acknowledged.

        Rows that fit into one batch (``max_batch_size``) go out in one, so that a retry cannot
        reorder them. A caller that is cancelled leaves unknown what is in: rows that were not sent
        yet never are.

        Raises:
            KafkaError: as the producer raises it; unknown which of the rows are in.
        """
        job = _Job(rows)
        self._jobs.append(job)
        # The latest one for all who wait: one that was replaced can append nothing more.
        self._producer = producer
        if self._sending is None:
            self._sending = asyncio.create_task(
                self._send_all(), name=f"append-{self._topic}-{self._partition}"
            )
        try:
            return await job.done
        except asyncio.CancelledError:
            # The batch before it may be under way for as long as Kafka is away: what nobody waits
            # for must not pile up meanwhile.
            job.rows = ()
            with suppress(ValueError):  # it is in a batch already
                self._jobs.remove(job)
            raise

    async def stop(self) -> None:
        """Send nothing more; who still waits gets the error that the producer is closed."""
        await end_tasks([self._sending])
        self._end([])  # a task that is cancelled before its first step ends without a word

    async def _send_all(self) -> None:
        aboard: list[tuple[_Job, int]] = []
        try:
            while self._jobs:
                producer = self._producer
                broker = self._leader(producer)
                await self._brokers.turn(broker)
                size = self._next_size()
                async with self._brokers.one_by_one(size):
                    # Filled no earlier: rows of a caller that gives up meanwhile never go out.
                    batch, aboard = self._fill(producer)
                    if not aboard:
                        break  # nobody waits any more
                    await self._send(producer, broker, batch, aboard)
                    if size > LARGE:
                        await asyncio.sleep(size * REST)
        finally:
            self._end(aboard)

    def _next_size(self) -> int:
        """The bytes of the next row."""
        job = self._jobs[0] if self._jobs else None
        return 0 if job is None or not job.rows else len(job.rows[job.taken][1])

    async def _send(
        self,
        producer: AIOKafkaProducer,
        broker: int | None,
        batch: Any,
        aboard: list[tuple[_Job, int]],
    ) -> None:
        self._brokers.begin(broker)
        try:
            acknowledged = await producer.send_batch(batch, self._topic, partition=self._partition)
            offset = (await acknowledged).offset
            if offset < 0:
                # In the log, but so long ago that the broker cannot tell where.
                raise OutOfOrderSequenceNumber()
        except Exception as error:  # noqa: BLE001 (those who wait get it, and the next batch is tried)
            self._fail([job for job, _ in aboard], error)
        else:
            self._acknowledge(aboard, offset)
        finally:
            self._brokers.end(broker)

    def _leader(self, producer: AIOKafkaProducer) -> int | None:
        """The broker that leads the partition, as far as is known."""
        leader: int | None = producer.client.cluster.leader_for_partition(
            TopicPartition(self._topic, self._partition)
        )
        return None if leader is None or leader < 0 else leader

    def _fill(self, producer: AIOKafkaProducer) -> tuple[Any, list[tuple[_Job, int]]]:
        """A batch of what waits, as much as it takes; and whose rows are in it, and how many of
        each.
        """
        batch = producer.create_batch()
        append = batch.append
        aboard: list[tuple[_Job, int]] = []
        while self._jobs:
            job = self._jobs[0]
            before = at = job.taken
            if not job.done.done():
                for key, value in job.rows[before:] if before else job.rows:
                    if append(timestamp=None, key=key, value=value, headers=HEADERS) is None:
                        break
                    at += 1
                job.taken = at
                if at > before:
                    aboard.append((job, at - before))
                if at < len(job.rows):
                    break
            self._jobs.popleft()
        # Nothing comes after: an open batch would be held back for the producer's linger.
        batch.close()
        return batch, aboard

    def _end(self, aboard: list[tuple[_Job, int]]) -> None:
        """Nothing is sent any more: who still waits learns it."""
        self._sending = None
        self._fail([*(job for job, _ in aboard), *self._jobs], ProducerClosed())
        self._jobs.clear()

    def _acknowledge(self, aboard: list[tuple[_Job, int]], offset: int) -> None:
        for job, count in aboard:
            job.offsets.extend(range(offset, offset + count))
            offset += count
            if len(job.offsets) == len(job.rows) and not job.done.done():
                job.done.set_result(job.offsets)

    def _fail(self, jobs: Sequence[_Job], error: Exception) -> None:
        for job in jobs:
            if not job.done.done():
                job.done.set_exception(error)
