"""Feeds a store with a topic, from where the store is, and follows it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence

from projections.errors import (
    KafkaUnavailable,
    MemoryUnavailable,
    ThreadfoldError,
    WaitTimedOut,
)
from streams.log.clients import (
    AIOKafkaConsumer,
    TopicPartition,
    kafka_errors,
    make_consumer,
    reading_kafka,
    start_client,
    stop_client,
)
from streams.log.end_offsets import end_offsets
from streams.log.log import Row
from streams.log.topics import partition_count
from streams.runtime.tasks import end_tasks
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)
STARTING = "it is starting"
AGAIN = 1.0
"""Seconds until it is tried again while Kafka does not answer."""


class TopicFeed(ABC):
    """Keeps one store up with a topic. For one event loop; start it before use, stop it after."""

    at_once = 25
    """Records taken in at once: some 5 ms of work, in which the process answers more slowly."""
    filled_with = 500
    """The same, until the store has what there was: the more at once the sooner it has."""
    rest = 0.2
    """Seconds of rest for each second of work: what waited meanwhile is done in it."""

    def __init__(self, settings: Settings, topic: str, what: str) -> None:
        """Args: ``what`` names the store in errors and log lines."""
        self.reason = STARTING
        """Why the store is not fed; empty while it is."""
        self.fault: MemoryUnavailable | None = None
        """What keeps the store itself from being used; None where it can be, or Kafka is away."""
        self.emptied = 0
        """How often the store was emptied, to be fed anew."""
        self._settings = settings
        self._name, self._topic, self._what = topic, settings.topic(topic), what
        self._places: list[TopicPartition] = []
        self._next: dict[int, int] = {}
        self._begun: dict[int, int] = {}
        self._advanced = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._consumer: AIOKafkaConsumer | None = None

    def start(self) -> None:
        """Begin to feed, once; while Kafka does not answer, it is tried again and again."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"{self._name}-feed")

    async def stop(self) -> None:
        """Stop feeding."""
        await end_tasks([self._task])
        await self._close()

    async def ready(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Wait until the store has what was on the topic when the feed began.

        Raises:
            WaitTimedOut: it does not within ``timeout`` seconds (None: 10, and at most the append
                time-out).
            MemoryUnavailable: the store cannot be used; it does not wait then.
        """
        if not self.is_ready:
            await self._wait(lambda: self.is_ready, self._patience(timeout))

    async def caught_up(
        self,
        partitions: Iterable[int] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> None:
        """Wait until the store has everything that is now in these partitions (None: in all).

        Raises:
            WaitTimedOut: it does not within ``timeout`` seconds (None: as :meth:`ready`).
            MemoryUnavailable: the store cannot be used.
            KafkaUnavailable: the topic cannot be read now.
        """
        await self.ready(timeout)
        ends = await self.ends_now(partitions)
        await self._wait(lambda: self._reached(ends), self._patience(timeout))

    async def ends_now(self, partitions: Iterable[int] | None = None) -> dict[int, int]:
        """For each of these partitions (None: for all) the offset after its last record, as the
        brokers say now.

        Raises:
            MemoryUnavailable: the store cannot be used.
            KafkaUnavailable: the topic cannot be read now.
        """
        consumer = self._consumer
        if consumer is None:
            self._check()
            raise KafkaUnavailable(f"{self._what} cannot be read now: {self.reason}")
        places = self._places if partitions is None else [self._places[p] for p in partitions]
        async with reading_kafka(self._settings, f"reading topic {self._topic}"):
            ends = await end_offsets(consumer, places)
        return {place.partition: end for place, end in ends.items()}

    def _check(self) -> None:
        if self.fault is not None:
            raise MemoryUnavailable(self.fault.cause, self.fault.folder)

    def _patience(self, timeout: float | None) -> float:
        return min(10.0, self._settings.append_timeout) if timeout is None else timeout

    @property
    def is_ready(self) -> bool:
        """Whether the store has what was on the topic when the feed began."""
        return self.has(self._begun)

    @property
    def is_fed(self) -> bool:
        """Whether it is ready, and nothing keeps it from taking in more."""
        return self.is_ready and not self.reason

    @property
    def is_failing(self) -> bool:
        """Whether the last try to feed it failed, and none has succeeded since."""
        return self.reason not in ("", STARTING)

    @property
    def partitions(self) -> int:
        """How many partitions the topic has, once the feed is ready."""
        return len(self._places)

    @property
    def positions(self) -> Mapping[int, int]:
        """For each partition the offset after what the store has."""
        return self._next

    @property
    def ends(self) -> dict[int, int]:
        """For each partition the offset after its last record, by what the brokers said last; empty
        while nothing is read.
        """
        consumer = self._consumer
        if consumer is None:
            return {}
        return {place.partition: consumer.highwater(place) or 0 for place in self._places}

    @property
    def behind(self) -> int:
        """Records that the store does not have yet, by what the brokers said last."""
        return sum(max(0, end - self._next.get(p, 0)) for p, end in self.ends.items())

    def has(self, positions: Mapping[int, int]) -> bool:
        """Whether the store has everything before these offsets."""
        return bool(self._begun) and self._reached(positions)

    @abstractmethod
    def _checkpoints(self) -> dict[int, int]:
        """Of each partition the offset of the last record that the store has."""

    @abstractmethod
    def _drop(self) -> None:
        """Empty the store."""

    @abstractmethod
    async def _take(self, batches: Mapping[int, Sequence[Row]]) -> None:
        """Bring records of partitions into the store, with the checkpoints after them."""

    async def _idle(self) -> None:  # noqa: B027 (most have nothing to do)
        """Nothing has come for half a second: do what could wait."""

    def _reached(self, ends: Mapping[int, int]) -> bool:
        return all(self._next.get(p, 0) >= end for p, end in ends.items())

    async def _wait(self, reached: Callable[[], bool], timeout: float) -> None:  # noqa: ASYNC109
        try:
            async with asyncio.timeout(timeout), self._advanced:
                await self._advanced.wait_for(lambda: reached() or self.fault is not None)
        except TimeoutError:
            raise WaitTimedOut(
                f"{self._what} is not up to date after {timeout:g} s"
                f" ({self.reason or 'it is being fed'}): try again shortly; appended events are"
                " safe in the log"
            ) from None
        if not reached():
            self._check()

    async def _run(self) -> None:
        while True:
            try:
                await self._open()
                while True:
                    await self._step()
                    if self.fault is not None:  # it took in again what there was
                        logger.info("%s is fed again", self._what)
                        self.fault, self.reason = None, ""
            except MemoryUnavailable as error:
                await self._failed(error)
            except ThreadfoldError as error:
                if str(error) != self.reason:
                    logger.warning("%s is not fed: %s", self._what, error)
                self.reason, self.fault = str(error), None
            except Exception as error:  # noqa: BLE001 (whatever it is, the gateway has to go on)
                fault = MemoryUnavailable(f"an unexpected error ({type(error).__name__})")
                await self._failed(fault, error)
            await self._close()
            await asyncio.sleep(AGAIN)

    async def _failed(self, fault: MemoryUnavailable, error: Exception | None = None) -> None:
        """Note that the store takes nothing in, and tell who waits; log it where that is news, with
        the traceback of an unexpected error.
        """
        if fault.cause != self.reason:
            logger.warning("%s is not fed: %s", self._what, fault.with_folder, exc_info=error)
        async with self._advanced:
            self.fault, self.reason = fault, fault.cause
            self._advanced.notify_all()

    async def _open(self) -> None:
        """Connect, and go on where the store is."""
        async with kafka_errors(self._settings, f"reading topic {self._topic}"):
            count = await partition_count(self._settings, self._name)
            self._places = [TopicPartition(self._topic, p) for p in range(count)]
        self._consumer = await self._connected()
        await self._go_on(self._consumer)

    async def _connected(self) -> AIOKafkaConsumer:
        """A consumer of all partitions; :meth:`_disconnect` it after."""
        async with kafka_errors(self._settings, f"reading topic {self._topic}"):
            consumer = make_consumer(self._settings)
            await start_client(consumer, self._settings)
            consumer.assign(self._places)
        return consumer

    async def _disconnect(self, consumer: AIOKafkaConsumer | None) -> None:
        if consumer is not None:
            with contextlib.suppress(ThreadfoldError):
                await stop_client(consumer, self._settings)

    async def _go_on(self, consumer: AIOKafkaConsumer) -> None:
        """Go on where the store is; one that is ahead of the topic is of another and is dropped."""
        async with kafka_errors(self._settings, f"reading topic {self._topic}"):
            done = await asyncio.to_thread(self._checkpoints)
            ends = await consumer.end_offsets(self._places)
            if any(at >= ends.get(TopicPartition(self._topic, p), 0) for p, at in done.items()):
                logger.warning("%s is of another topic: it is filled again", self._what)
                await self._begin_anew()
                done = {}
            offsets = {tp.partition: done.get(tp.partition, -1) + 1 for tp in self._places}
            for tp in self._places:
                consumer.seek(tp, offsets[tp.partition])
            self._begun = {tp.partition: end for tp, end in ends.items()}
            if self.fault is None:  # else it is over once something was taken in
                self.reason = ""
        await self._advance(offsets)

    async def _begin_anew(self) -> None:
        """Empty the store. Readers wait from before that on, so none finds it empty."""
        async with self._advanced:
            self._begun, self._next = {}, {}
            self.emptied += 1
        await asyncio.to_thread(self._drop)

    async def _close(self) -> None:
        consumer, self._consumer = self._consumer, None
        await self._disconnect(consumer)

    async def _step(self) -> None:
        assert self._consumer is not None
        most = self.at_once if self.is_ready else self.filled_with
        batches, positions = await self._read(self._consumer, 500, most)
        began = time.perf_counter()
        if batches:
            await self._take(batches)
        else:
            await self._idle()
        if positions != self._next:
            await self._advance(positions)
        if batches and self.rest:
            await asyncio.sleep(self.rest * (time.perf_counter() - began))

    async def _read(
        self, consumer: AIOKafkaConsumer, wait_ms: int, most: int
    ) -> tuple[dict[int, list[Row]], dict[int, int]]:
        """Records of partitions that come within so many ms, and the offsets after them."""
        async with kafka_errors(self._settings, f"reading topic {self._topic}"):
            batches = await consumer.getmany(timeout_ms=wait_ms, max_records=most)
            # Marks of transactional producers move it where no record comes.
            positions = {tp.partition: await consumer.position(tp) for tp in self._places}
        return {tp.partition: found for tp, found in batches.items()}, positions

    async def _advance(self, positions: dict[int, int]) -> None:
        async with self._advanced:
            self._next = positions
            self._advanced.notify_all()
