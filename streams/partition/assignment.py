"""The partitions that a consumer group has given to this process: each is prepared, and then has a
queue of its own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Generic

from projections.errors import LogTruncated, ThreadfoldError
from streams.log.clients import AIOKafkaConsumer, IllegalStateError, KafkaError, TopicPartition
from streams.log.log import Log, Row
from streams.partition.folder import Folder, P
from streams.partition.log_identity import Watch
from streams.partition.owned import Fenced
from streams.partition.queue import PartitionQueue
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)

RETRY_PAUSE = 0.5
TRUNCATED_PAUSE = 60.0
"""Seconds until a partition that cannot be folded, as the log lost its beginning, is looked at
again.
"""


class Assignment(ABC, Generic[P]):
    """The assigned partitions, and what is queued of each."""

    def __init__(
        self, settings: Settings, log: Log, folder: Folder[P], batch_events: int | None
    ) -> None:
        self.settings = settings
        self.log = log
        self.topic = settings.topic("events")
        self.consumer: AIOKafkaConsumer | None = None
        self.partitions: dict[int, P] = {}
        self.unprepared: set[int] = set()
        """Assigned partitions whose results are not read and written just now."""
        self.recreated: set[int] = set()
        """Partitions of a topic that was made anew: no checkpoint is of it."""
        self.served: dict[int, int] = {}
        """For each partition the offset up to which readers were served."""
        self.waits: Counter[int] = Counter()
        """How often each partition waited for a cause that the log names."""
        self.fenced = 0
        """How often another process was found to own a partition."""
        self._folder = folder
        self._batch_events = batch_events or settings.batch_events
        self._queues: dict[int, PartitionQueue] = {}
        self._resume_at: dict[int, float] = {}
        self._preparing: dict[int, asyncio.Task[None]] = {}
        self.watch: Watch | None = None
        """Looks whether what comes is of the log that was folded; None: nobody does."""

    @abstractmethod
    async def process(self, partition: P, rows: Sequence[Row]) -> None:
        """Fold a batch that was queued."""

    @abstractmethod
    def fail(self, error: ThreadfoldError) -> None:
        """End the run with an error."""

    def assigned(self, numbers: Iterable[int]) -> None:
        """Take partitions over; they are prepared before anything of them is folded."""
        self.unprepared.update(numbers)

    def revoked(self, numbers: Iterable[int]) -> None:
        """Give partitions up: nothing of them is kept."""
        for number in numbers:
            self.let_go(number)
            self.unprepared.discard(number)
            self.served.pop(number, None)

    def let_go(self, number: int) -> None:
        """Drop a partition and what is queued for it; a batch under way ends by itself, or
        fenced.
        """
        partition = self.partitions.pop(number, None)
        if partition is not None:
            partition.close()
        self._folder.let_go(number)
        if self.watch is not None:
            self.watch.end(number)
        queue = self._queues.pop(number, None)
        if queue is not None:
            queue.close()

    def assignment(self) -> dict[int, P | None]:
        """The partitions that the group has given to this process; None: it is being prepared."""
        if self.consumer is None:
            return {}
        numbers = sorted(tp.partition for tp in self.consumer.assignment())
        return {
            number: None if number in self.unprepared else self.partitions.get(number)
            for number in numbers
        }

    def prepare_again(self, number: int, pause: float = RETRY_PAUSE) -> None:
        """Have a partition begin again at its stored checkpoint, after a pause in seconds."""
        self._resume_at[number] = time.monotonic() + pause
        self.unprepared.add(number)

    def prepare_all(self) -> list[asyncio.Task[None]]:
        """Begin to prepare what is assigned and not prepared, each beside the others: healing one
        must hold no other. Returns what is under way.
        """
        if self.consumer is not None:
            # What is not assigned any more is let go; nobody else prepares what a rebalance brought
            # meanwhile.
            self.unprepared &= {tp.partition for tp in self.consumer.assignment()}
            now = time.monotonic()
            for number in sorted(self.unprepared - self._preparing.keys()):
                if self._resume_at.get(number, 0.0) <= now:
                    self._preparing[number] = asyncio.create_task(
                        self._prepare_guarded(self.consumer, number), name=f"prepare-{number}"
                    )
        return list(self._preparing.values())

    async def _prepare_guarded(self, consumer: AIOKafkaConsumer, number: int) -> None:
        try:
            if await self.prepare(consumer, number):
                self.unprepared.discard(number)
        except Fenced:
            # The former owner wrote once more in this moment: load again in the next round.
            self.fenced += 1
            logger.info(
                "partition %d was written while it was prepared: preparing it again", number
            )
        except IllegalStateError:
            # The partition was taken away while it was prepared.
            self.revoked([number])
        except self._folder.fatal as error:
            self.fail(error)
        except LogTruncated as error:
            logger.error("%s: %s", self._folder.name, error)
            self.waits[number] += 1
            self.prepare_again(number, TRUNCATED_PAUSE)
        except (KafkaError, ThreadfoldError) as error:
            self.waiting(number, error)
            self.prepare_again(number)
        except Exception:
            logger.exception("preparing partition %d failed; trying again", number)
            self.prepare_again(number)
        finally:
            del self._preparing[number]

    async def prepare(self, consumer: AIOKafkaConsumer, number: int) -> bool:
        """Have the folder find where a partition goes on, and read it from there; False when it has
        to be done again.
        """
        self.let_go(number)
        tp = TopicPartition(self.topic, number)
        # Before anything is read: a connection that is made later may be to another log.
        way = self.watch.way(number) if self.watch is not None else None
        prepared = await self._folder.prepare(number, await consumer.committed(tp) or 0)
        if prepared is None or number not in self.unprepared:
            return False
        partition, begin = prepared
        consumer.seek(tp, max(partition.checkpoint.offset + 1, begin))
        self.take_over(partition)
        self.recreated.discard(number)
        if self.watch is not None:
            self.watch.begin(number, partition.checkpoint, begin, way)
        return True

    def take_over(self, partition: P) -> PartitionQueue:
        """Feed a prepared partition: only rows from where it was sought come to its queue."""
        number = partition.number
        self.let_go(number)
        queue = PartitionQueue(
            partial(self.process, partition),
            batch_rows=self._batch_events,
            batch_bytes=self.settings.batch_bytes,
        )
        self.partitions[number], self._queues[number] = partition, queue
        self._folder.taken_over(partition)
        queue.start(f"partition-{number}")
        return queue

    def _made_anew(self) -> None:
        """The topic is another one: whatever stands in checkpoints is not of it."""
        self.recreated |= set(range(self.log.partitions))
        self.unprepared |= set(self.partitions)

    def owns(self, partition: P) -> bool:
        """Whether it is the one that is folded now."""
        return self.partitions.get(partition.number) is partition

    def waiting(self, number: int, error: Exception) -> None:
        """Count and log that a partition waits."""
        logger.warning("%s: partition %d waits: %s", self._folder.name, number, error)
        self.waits[number] += 1

    def queues(self) -> Iterable[PartitionQueue]:
        """What waits to be folded."""
        return self._queues.values()

    def lag(self, partition: P) -> int:
        """How many records the log has beyond the checkpoint, as far as the consumer knows."""
        tp = TopicPartition(self.topic, partition.number)
        known = (
            self.consumer.highwater(tp)
            if self.consumer is not None and tp in self.consumer.assignment()
            else None
        )
        return (known or 0) - 1 - partition.checkpoint.offset

    async def left(self, partition: P) -> int:
        """How much a partition has still to fold, but for conversations that are being restored;
        not 0 where that is not known yet. Raises KafkaUnavailable.
        """
        ahead = partition.checkpoint.latest - partition.checkpoint.offset
        lag, queue = self.lag(partition) - ahead, self._queues.get(partition.number)
        if lag <= 0 or queue is None or queue.held:
            return lag
        # Nothing of it is queued: it may be marks of transactional producers, for which no record
        # comes.
        return (await self.log.last_records())[partition.number] - 1 - partition.checkpoint.latest

    def folded(self) -> dict[int, int]:
        """The offset up to which each partition is folded."""
        return {
            number: partition.checkpoint.offset
            for number, partition in self.partitions.items()
            if number not in self.unprepared
        }
