"""Reads the end of a topic once for all subscribers of a process.

One consumer without a group has all partitions; those without listeners are paused. A record goes
to the listener of its key, which is compared as bytes; nothing else of a record is decoded here.
The tail waits for no listener.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from projections.errors import KafkaUnavailable
from streams.encryption.payload_cipher import PayloadCipher
from streams.log.clients import (
    AIOKafkaConsumer,
    KafkaError,
    TopicPartition,
    make_consumer,
    reading_kafka,
    start_client,
    stop_client,
)
from streams.log.log import Row
from streams.runtime.tasks import end_tasks
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)
AT_ONCE = 250
"""Records of one fetch, so that other tasks run in between."""
STEP_SECONDS = 0.0005
"""Seconds of the event loop in which records are handed over before others have their turn."""
LONGEST_WAIT = 100
"""Milliseconds that the broker delays an empty fetch: so long a new listener's partition waits."""


class Listener(Protocol):
    """Who gets records of one name. Neither method may wait."""

    def deliver(self, row: Row, partition: int) -> None:
        """The next record, in order within a partition."""

    def broken(self, reason: str) -> None:
        """Records cannot be delivered any more in order and without gap."""


class Tail:
    """Reads a topic from where listeners join it. Used within one event loop; stop it after.

    Args:
        topic: the topic's full name.
        partitions: how many it has.
        ends: returns the offset of each partition's next record; raises :class:`KafkaUnavailable`.
        seals: made ready with the keys of what is delivered.
        name_of: the part of a record's key that names its listener.
        linger: seconds for which partitions are read on after their last listener has left: who
            joins meanwhile need not ask where they end.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str,
        partitions: int,
        ends: Callable[[], Awaitable[dict[int, int]]],
        seals: PayloadCipher,
        name_of: Callable[[bytes], bytes] = bytes,
        linger: float = 0.0,
    ) -> None:
        self._settings = settings
        self._seals = seals
        self._topic = topic
        self._partitions = partitions
        self._ends = ends
        self._name_of = name_of
        self._linger = linger
        self._resting: asyncio.TimerHandle | None = None
        self._listeners: dict[int, dict[bytes, Listener]] = {}
        self._next: dict[int, int] = {}
        self._read: dict[int, int] = {}
        """What the consumer is to give next of a partition."""
        self._starting = asyncio.Lock()
        self._wake = asyncio.Event()
        self._consumer: AIOKafkaConsumer | None = None
        self._task: asyncio.Task[None] | None = None

    async def join(self, name: bytes, listener: Listener, partitions: Iterable[int]) -> None:
        """Deliver records of that name from now on: all from :meth:`next` on, of each of these
        partitions.

        Raises:
            KafkaUnavailable: Kafka does not answer.
        """
        partitions = list(partitions)
        consumer = await self._started()
        if any(p not in self._next for p in partitions):
            # Not of this consumer, whose long poll it would wait for.
            ends = await self._ends()
            for p in partitions:
                if p not in self._next:
                    tp, self._next[p] = TopicPartition(self._topic, p), ends[p]
                    consumer.seek(tp, ends[p])
                    consumer.resume(tp)
                    self._read[p] = ends[p]
                    self._listeners[p] = {}
            self._wake.set()
        for partition in partitions:
            self._listeners[partition][name] = listener

    def leave(self, name: bytes, listener: Listener, partitions: Iterable[int]) -> None:
        """Deliver no more records of that name. Partitions without listeners are not read for
        longer than they linger.
        """
        for partition in partitions:
            listeners = self._listeners.get(partition)
            if listeners is None or listeners.get(name) is not listener:
                continue
            del listeners[name]
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        if self._linger:
            loop = asyncio.get_running_loop()
            self._resting = loop.call_later(self._linger, self._drop_unheard)
        else:
            self._drop_unheard()

    def _drop_unheard(self) -> None:
        """Read partitions without listeners no more."""
        for partition in [p for p, listeners in self._listeners.items() if not listeners]:
            del self._listeners[partition], self._next[partition]
            if self._consumer is not None:
                self._consumer.pause(TopicPartition(self._topic, partition))

    @property
    def idle(self) -> bool:
        """Whether no partition is read."""
        return not self._next

    def next(self, partition: int) -> int:
        """The offset of the next record to be delivered, which is never beyond the partition's end;
        the partition must have a listener.
        """
        return self._next[partition]

    async def stop(self) -> None:
        """Stop reading, and close the consumer."""
        if self._resting is not None:
            self._resting.cancel()
        await end_tasks([self._task])
        if self._consumer is not None:
            await stop_client(self._consumer, self._settings)
        self._task = self._consumer = None

    async def _started(self) -> AIOKafkaConsumer:
        async with reading_kafka(self._settings, f"reading {self._topic}"), self._starting:
            if self._consumer is None:
                consumer = make_consumer(
                    self._settings,
                    max_partition_fetch_bytes=1 << 20,
                    fetch_max_wait_ms=LONGEST_WAIT,
                )
                await start_client(consumer, self._settings)
                partitions = [TopicPartition(self._topic, p) for p in range(self._partitions)]
                consumer.assign(partitions)
                consumer.pause(*partitions)
                self._consumer = consumer
                self._task = asyncio.create_task(self._run(consumer), name=f"tail-{self._topic}")
        return self._consumer

    async def _run(self, consumer: AIOKafkaConsumer) -> None:
        while True:
            if not self._next:
                self._wake.clear()
                await self._wake.wait()
            try:
                batches = await consumer.getmany(timeout_ms=500, max_records=AT_ONCE)
            except KafkaError as error:
                # The brokers are away: aiokafka reconnects by itself, and goes on where it was.
                logger.warning("reading %s: %s", self._topic, error)
                await asyncio.sleep(0.5)
                continue
            # Whose partition is left and joined again meanwhile gets them from where it joined.
            begun = {tp: self._listeners.get(tp.partition) for tp in batches}
            # aiokafka goes back to the first record where its position is out of range: this is
            # another log than the one that was read.
            back = {
                tp
                for tp, rows in batches.items()
                if rows[0].offset < self._read.get(tp.partition, 0)
            }
            self._read |= {tp.partition: rows[-1].offset + 1 for tp, rows in batches.items()}
            for tp, rows in batches.items():
                if tp in back and tp.partition in self._next:
                    self._break(tp.partition, rows[0].offset)
                    continue
                await self._keys_of(rows)
                if self._listeners.get(tp.partition) is begun[tp]:
                    await self._dispatch(tp.partition, rows)
            if batches:
                await asyncio.sleep(0)

    async def _keys_of(self, rows: Sequence[Row]) -> None:
        """Get the keys that these records need, however long that takes: without them they would
        pass for erased ones.
        """
        while True:
            try:
                await self._seals.ready(rows)
            except KafkaUnavailable as error:
                logger.warning("reading %s: %s", self._topic, error)
                await asyncio.sleep(0.5)
            else:
                return

    async def _dispatch(self, partition: int, rows: Sequence[Row]) -> None:
        """Hand records over, little in each step of the event loop: one may be for a thousand
        streams.
        """
        at = self._next.get(partition)
        if at is None:
            return  # nobody listens any more
        listeners, name_of = self._listeners[partition], self._name_of
        since = time.perf_counter()
        for row in rows:
            if row.offset < at:
                continue
            if time.perf_counter() - since > STEP_SECONDS:
                await asyncio.sleep(0)
                since = time.perf_counter()
                if self._listeners.get(partition) is not listeners:
                    return  # it was left; whoever joined it again gets them from there on
            # Before it is handed over: whoever joins meanwhile gets what comes after it.
            self._next[partition] = row.offset + 1
            listener = listeners.get(name_of(row.key)) if row.key is not None else None
            if listener is not None:
                try:
                    listener.deliver(row, partition)
                except Exception:
                    logger.exception(
                        "record %d of %s %d could not be delivered",
                        row.offset,
                        self._topic,
                        partition,
                    )
                    listener.broken("an unexpected error: connect again")
            if partition not in self._next:
                return

    def _break(self, partition: int, at: int) -> None:
        logger.warning(
            "%s %d: records come from offset %d again, this is another log; its streams end",
            self._topic,
            partition,
            at,
        )
        self._next[partition] = self._read[partition]
        for listener in list(self._listeners[partition].values()):
            listener.broken("the log is not the one it was: read the conversation anew")
