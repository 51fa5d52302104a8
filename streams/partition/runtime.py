"""The partition runtime: owns the partitions of the events topic that a consumer group assigns to
this process, and has each of them folded in order.

The group is for the assignment only: where a partition goes on is the checkpoint beside its
results. A partition that is assigned is *prepared* before it is read (its checkpoint's record is
read again from the log); then its records go through a queue of its own, batch by batch, to the
:class:`Folder`. A partition that fails is prepared anew, after a pause. What is folded and where it
is written is the folder's; the live projector and custom projections are such folders.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from projections.errors import (
    CorruptWindow,
    RedisUnavailable,
    ThreadfoldError,
)
from streams.log.clients import (
    KafkaError,
    TopicPartition,
    kafka_errors,
    make_consumer,
    start_client,
    stop_client,
)
from streams.log.consumer_group import Commits, Rebalances
from streams.log.log import Log, Row
from streams.partition.assignment import RETRY_PAUSE, Assignment
from streams.partition.folder import Folder, P
from streams.partition.log_identity import Watch
from streams.partition.owned import Fenced
from streams.runtime.tasks import end_tasks
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)

POLL = 0.2
POLL_FULL = 0.01
"""Seconds to wait for records: with room in every queue, and where one that is full may have room
the next moment.
"""
FETCH_ROWS = 500
"""Records taken from the consumer at once: what it holds stays compressed, and one fetch of 4 MiB
can be hundreds of MiB when it is not.
"""
TICK = 0.5
START = 60.0
"""Seconds that the brokers have to answer at the start."""


class PartitionRuntime(Assignment[P]):
    """Runs a folder's partitions; one run at a time."""

    def __init__(
        self,
        settings: Settings,
        log: Log,
        folder: Folder[P],
        *,
        group: str,
        batch_events: int | None = None,
    ) -> None:
        """Args:
        group: the consumer group that shares the partitions among processes.
        batch_events: records of a batch at most; None: as the settings have it.
        """
        super().__init__(settings, log, folder, batch_events)
        self.group = group
        self.commits = Commits(settings, self.topic)
        self.failure: ThreadfoldError | None = None
        self._stopping = asyncio.Event()

    # -- the run

    async def run(self) -> None:
        """Run until :meth:`stop`; Kafka or Redis being away is waited out, never an end.

        Raises:
            KafkaUnavailable: the brokers do not answer at the start.
            ThreadfoldError: one of the folder's fatal errors.
        """
        consumer = make_consumer(self.settings, group=self.group)
        self.watch = watch = Watch(self.log, self.topic, consumer)
        consumer.subscribe([self.topic], listener=Rebalances(self))
        async with kafka_errors(self.settings, self._folder.name):
            await start_client(consumer, self.settings, limit=START)
            # Before anything is prepared: a topic that is made anew from here on is another one.
            await watch.changed()
        self.consumer = consumer
        background = [
            asyncio.create_task(self._tick(), name="partitions-tick"),
            asyncio.create_task(
                watch.look(self.folded, self._made_anew, self.unprepared.add),
                name="partitions-look",
            ),
        ]
        try:
            while not self._stopping.is_set() and self._folder.goes_on():
                await self.step()
        finally:
            self._stopping.set()
            await end_tasks([*background, *self._preparing.values()])
            queues = [queue.closed() for queue in self._queues.values()]
            await asyncio.gather(*queues, return_exceptions=True)
            for partition in self.partitions.values():
                partition.close()
            await self.commits.last(consumer, self.folded())
            await self._folder.finish()
            await stop_client(consumer, self.settings)
        if self.failure is not None:
            raise self.failure.with_traceback(None)

    def stop(self) -> None:
        """Ask :meth:`run` to finish the batches at hand and return."""
        self._stopping.set()

    def fail(self, error: ThreadfoldError) -> None:
        """End the run with an error."""
        if self.failure is None:
            logger.critical("%s", error)
            self.failure = error
        self.stop()

    async def step(self) -> None:
        """Prepare what is new, fetch, and queue each partition's records."""
        try:
            self.prepare_all()
            batches = await self.fetch()
        except KafkaError as error:
            logger.warning("waiting: %s", error)
            await asyncio.sleep(RETRY_PAUSE)
            return
        # The queues of now: a partition that is prepared anew while another's rows are looked at is
        # read again from its checkpoint, and these rows stand behind those that are to come.
        queues = {tp: self._queues.get(tp.partition) for tp in batches}
        for tp, rows in batches.items():
            number, queue = tp.partition, queues[tp]
            if (
                queue is not None
                and queue is self._queues.get(number)
                and number not in self.unprepared
                and await self._follows(number, rows)
            ):
                queue.put(rows)

    async def _follows(self, number: int, rows: Sequence[Row]) -> bool:
        """Whether rows are the next ones of the log that was read before; a partition of which they
        are not is prepared anew.
        """
        try:
            if self.watch is not None and await self.watch.follows(number, rows):
                return True
        except ThreadfoldError as error:
            self.waiting(number, error)
        self.prepare_again(number)
        return False

    async def fetch(self) -> dict[TopicPartition, list[Row]]:
        """What has come for partitions whose queues have room; of the others nothing is taken, so
        nothing is queued without a bound.

        They are not paused: aiokafka would not look again at what it holds of a partition that was
        paused in between.
        """
        running = {n: queue for n, queue in self._queues.items() if not self._halted(n)}
        room = [
            TopicPartition(self.topic, number)
            for number, queue in running.items()
            if not queue.full
        ]
        wait = POLL if len(room) == len(running) else POLL_FULL
        if self.consumer is None or (self._queues and not room):
            await asyncio.sleep(wait)
            return {}
        # The consumer hands out a backlog of one partition before what comes after it, so those of
        # which nothing waits are asked for first.
        idle = [tp for tp in room if not running[tp.partition].rows]
        batches: dict[TopicPartition, list[Row]] = {}
        if 0 < len(idle) < len(room):
            batches = await self.consumer.getmany(*idle, max_records=FETCH_ROWS)
        return batches or await self.consumer.getmany(
            *room, timeout_ms=int(wait * 1000), max_records=FETCH_ROWS
        )

    def _halted(self, number: int) -> bool:
        """Whether a partition is folded as far as it is to be."""
        limit = self._folder.halted_after(number)
        return limit is not None and self.partitions[number].checkpoint.offset >= limit

    # -- the partitions

    def poke(self, number: int) -> None:
        """Have a partition processed soon, though no record may come."""
        queue = self._queues.get(number)
        if queue is not None:
            queue.poke()

    async def process(self, partition: P, rows: Sequence[Row]) -> None:
        """Fold one batch of a partition; what comes after a failure is fetched again once it is
        prepared anew.
        """
        number = partition.number
        if not self.owns(partition) or number in self.unprepared:
            return
        limit = self._folder.halted_after(number)
        if limit is not None:
            rows = [row for row in rows if row.offset <= limit]
        try:
            await self._folder.process(partition, rows)
        except (Fenced, CorruptWindow) as error:
            await self._moved_on(partition, error)
        except self._folder.fatal as error:
            self.unprepared.add(number)
            self.fail(error)
        except ThreadfoldError as error:
            self.waiting(number, error)
            self.prepare_again(number)
        except Exception:
            # Left alone it would end the queue's task, and with it the partition, without a word.
            logger.exception("folding partition %d failed; trying again", number)
            self.prepare_again(number)
        finally:
            if self.owns(partition):
                self.served[number] = max(self.served.get(number, -1), partition.checkpoint.latest)

    async def _moved_on(self, partition: P, error: Fenced | CorruptWindow) -> None:
        """A partition whose results are not as this process left them begins at what is stored; one
        that cannot be read is dropped and folded anew: the log knows better.
        """
        number = partition.number
        if not self.owns(partition):
            return
        self.unprepared.add(number)
        if isinstance(error, Fenced):
            self.fenced += 1
            logger.warning("%s; loading its checkpoint", error)
            return
        try:
            await partition.check()
            logger.error("%s; partition %d is folded anew", error, number)
            await self._folder.drop(partition)
        except (Fenced, CorruptWindow):
            logger.warning(
                "partition %d belongs to another process now; its fetched records are skipped",
                number,
            )
        except RedisUnavailable as away:
            self.waiting(number, away)

    async def commit(self) -> None:
        """Commit what is folded: for tools that show lag, and for whoever takes over and asks how
        far readers have been.
        """
        if self.consumer is not None:
            await self.commits.commit(self.consumer, self.folded())

    async def _tick(self) -> None:
        # Python 3.11's wait_for, which aiokafka uses, can swallow a cancellation: the flag ends it
        # then.
        while not self._stopping.is_set():
            await asyncio.sleep(TICK)
            try:
                await self.commit()
                for number, partition in list(self.partitions.items()):
                    if number not in self.unprepared:
                        await self._look_after(partition)
                await self._folder.tick()
            except ThreadfoldError as error:
                logger.warning("%s waits: %s", self._folder.name, error)
            except Exception:
                logger.exception("checking the partitions failed; trying again")

    async def _look_after(self, partition: P) -> None:
        try:
            await self._folder.look_after(partition)
        except (Fenced, CorruptWindow) as error:
            await self._moved_on(partition, error)
        except ThreadfoldError as error:
            logger.warning(
                "%s: partition %d is checked later: %s",
                self._folder.name,
                partition.number,
                error,
            )
