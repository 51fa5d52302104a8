"""Feeds a memory store with its topic, from where the store is, and follows it.

Whoever has a store reads the whole topic. Records that are no news are passed over and counted:
the log is what counts, and ``threadfold verify`` looks after that one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence

from projections.errors import KafkaUnavailable, ThreadfoldError, WaitTimedOut
from projections.events.codec import Undecodable
from projections.memory.news import News, log_of, read_news
from projections.names import partition_of, users_log
from streams.encryption.payload_cipher import NotAuthentic, PayloadCipher, kid_in, open_value
from streams.log.clients import (
    AIOKafkaConsumer,
    TopicPartition,
    end_offset,
    kafka_errors,
    make_consumer,
    reading_kafka,
    start_client,
    stop_client,
)
from streams.log.log import Row
from streams.log.topics import partition_count
from streams.memory.store import MemoryStore
from streams.runtime.tasks import end_tasks
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)
BATCH = 2_000
"""Records taken in at once."""
AGAIN = 1.0
"""Seconds until it is tried again while Kafka does not answer."""


class MemoryFeed:
    """Keeps one store up with the topic. For one event loop; start it before use, stop it after."""

    def __init__(self, settings: Settings, seals: PayloadCipher, store: MemoryStore) -> None:
        self.store = store
        self.passed_over = 0
        """Records that were no news."""
        self.reason = "it is starting"
        """Why the store is not fed; empty while it is."""
        self._settings = settings
        self._topic = settings.topic("memories")
        self._places: list[TopicPartition] = []
        self._seals = seals
        self._next: dict[int, int] = {}
        self._begun: dict[int, int] = {}
        self._advanced = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._consumer: AIOKafkaConsumer | None = None

    def start(self) -> None:
        """Begin to feed, once; while Kafka does not answer, it is tried again and again."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="memory-feed")

    async def stop(self) -> None:
        """Stop feeding."""
        await end_tasks([self._task])
        await self._close()

    async def ready(self, timeout: float = 10.0) -> None:  # noqa: ASYNC109
        """Wait until the store has what was on the topic when the feed began.

        Raises:
            WaitTimedOut: it does not within ``timeout`` seconds.
        """
        if not self._begun or not self._reached(self._begun):
            await self._wait(lambda: bool(self._begun) and self._reached(self._begun), timeout)

    async def caught_up(
        self,
        tenant: str,
        user: str | None,
        timeout: float = 10.0,  # noqa: ASYNC109
    ) -> None:
        """Wait until the store has everything of a user that is on the topic now.

        Raises:
            WaitTimedOut: it does not within ``timeout`` seconds.
            KafkaUnavailable: the topic cannot be read now.
        """
        await self.ready(timeout)
        consumer = self._consumer
        if consumer is None:
            raise KafkaUnavailable(f"the long-term memory cannot be read now: {self.reason}")
        place = self._places[partition_of(users_log(tenant, user), len(self._places))]
        async with reading_kafka(self._settings, f"reading topic {self._topic}"):
            end = await end_offset(consumer, place)
        await self._wait(lambda: self._reached({place.partition: end}), timeout)

    def _reached(self, ends: Mapping[int, int]) -> bool:
        return all(self._next.get(p, 0) >= end for p, end in ends.items())

    async def _wait(self, reached: Callable[[], bool], timeout: float) -> None:  # noqa: ASYNC109
        try:
            async with asyncio.timeout(timeout), self._advanced:
                await self._advanced.wait_for(reached)
        except TimeoutError:
            raise WaitTimedOut(
                f"the long-term memory is not up to date after {timeout:g} s"
                f" ({self.reason or 'it is being fed'}): try again shortly; what was appended is"
                " safe in the log"
            ) from None

    async def _run(self) -> None:
        while True:
            try:
                await self._open()
                while True:
                    await self._step()
            except ThreadfoldError as error:
                if str(error) != self.reason:
                    logger.warning("the memory store is not fed: %s", error)
                self.reason = str(error)
            except Exception as error:  # whatever it is, the gateway has to go on
                logger.exception("the memory store is not fed")
                self.reason = f"an error that was not foreseen ({type(error).__name__})"
            await self._close()
            await asyncio.sleep(AGAIN)

    async def _open(self) -> None:
        """Go on where the store is; one that is ahead of the topic is of another and is dropped."""
        async with kafka_errors(self._settings, f"reading topic {self._topic}"):
            count = await partition_count(self._settings, "memories")
            self._places = [TopicPartition(self._topic, p) for p in range(count)]
            consumer = make_consumer(self._settings)
            await start_client(consumer, self._settings)
            self._consumer = consumer
            consumer.assign(self._places)
            done = await asyncio.to_thread(self.store.checkpoints)
            ends = await consumer.end_offsets(self._places)
            if any(at >= ends.get(TopicPartition(self._topic, p), 0) for p, at in done.items()):
                logger.warning("the memory store is of another topic: it is fed anew")
                await asyncio.to_thread(self.store.drop)
                done = {}
            self._next = {tp.partition: done.get(tp.partition, -1) + 1 for tp in self._places}
            for tp in self._places:
                consumer.seek(tp, self._next[tp.partition])
            self._begun = {tp.partition: end for tp, end in ends.items()}
            self.reason = ""
        await self._advance(self._next)

    async def _close(self) -> None:
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            with contextlib.suppress(ThreadfoldError):
                await stop_client(consumer, self._settings)

    async def _step(self) -> None:
        assert self._consumer is not None
        async with kafka_errors(self._settings, f"reading topic {self._topic}"):
            batches = await self._consumer.getmany(timeout_ms=500, max_records=BATCH)
            # Marks of transactional producers move it where no record comes.
            positions = {tp.partition: await self._consumer.position(tp) for tp in self._places}
        rows = [row for found in batches.values() for row in found]
        if rows:
            news = await self._news(rows)
            checkpoints = {tp.partition: found[-1].offset for tp, found in batches.items()}
            await asyncio.to_thread(self.store.apply, news, checkpoints)
        if positions != self._next:
            await self._advance(positions)

    async def _advance(self, positions: dict[int, int]) -> None:
        async with self._advanced:
            self._next = positions
            self._advanced.notify_all()

    async def _news(self, rows: Sequence[Row]) -> list[News]:
        logs = [None if row.value is None else log_of(row.value) for row in rows]
        await self._seals.find(
            (str(log).encode(), kid)
            for row, log in zip(rows, logs, strict=True)
            if log is not None and (kid := kid_in(row.value)) is not None
        )
        found: list[News] = []
        for row, log in zip(rows, logs, strict=True):
            try:
                if log is None or row.value is None:
                    raise Undecodable("its source names no log")
                value = open_value(self._seals, str(log).encode(), row.value)
                news = None if value is None else read_news(log, value)
            except (Undecodable, NotAuthentic) as error:
                self.passed_over += 1
                logger.warning("topic %s at %d: %s", self._topic, row.offset, error)
                continue
            if news is not None:
                found.append(news)
        return found
