"""The projector: takes the events topic in batches and keeps the live generation's windows in the
store.

It has its own consumer group, for the assignment only: where a partition goes on is told by the
checkpoint beside its windows, and Kafka's committed offset serves lag tools and tells up to where
summaries have been announced. A partition that is assigned is *prepared* before it is read: its
checkpoint's record is read again from the log, and a checkpoint that is missing, older than what
was served before, or of another incarnation of the topic makes the partition heal.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

from projections.errors import (
    CorruptWindow,
    KeyUnusable,
    LogTruncated,
    RedisUnavailable,
    ThreadfoldError,
    TooMuchPoison,
)
from projections.policy.policy import Rules
from projections.storage.protocol import Checkpoint, WindowStore
from streams.control.follower import Control
from streams.log.clients import (
    AIOKafkaConsumer,
    IllegalStateError,
    KafkaError,
    TopicPartition,
    kafka_errors,
    make_consumer,
    start_client,
    stop_client,
)
from streams.log.commits import Commits
from streams.log.log import Log, Row
from streams.log.rebalances import Rebalances
from streams.log.retention import check_reach
from streams.partition.failure_share import FailureShare
from streams.partition.partition import Fenced, Partition
from streams.partition.queue import PartitionQueue, left_of
from streams.projector.compaction_scheduler import CompactionScheduler
from streams.projector.effect_sink import Publisher
from streams.projector.timers import fire_timers
from streams.recovery.healing import heal_from_snapshots
from streams.recovery.hydrating_store import HydratingStore
from streams.recovery.log_identity import Start, Watch, find_start
from streams.recovery.revival import Revival, rules_of
from streams.recovery.snapshot_topic import KafkaSnapshots
from streams.recovery.snapshot_writer import SnapshotWriter
from streams.runtime.tasks import end_tasks
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)

POLL = 0.2
POLL_FULL = 0.01
"""Seconds to wait for records: with room in every feed, and where one that is full may have room
the next moment.
"""
FETCH_ROWS = 500
"""Records taken from the consumer at once: what it holds stays compressed, and one fetch of 4 MiB
can be hundreds of MiB when it is not.
"""
DUE_EVERY = 0.5
RETRY_PAUSE = 0.5
TRUNCATED_PAUSE = 60.0
"""Seconds until a partition that cannot be folded, as the log lost its beginning, is looked at
again.
"""
LAST_ROUNDS = 3.0
"""Seconds that snapshots which are due may hold up the end."""


class Projector:
    """Projects the partitions its group assigns to it; run one a process."""

    def __init__(self, settings: Settings, control: Control, log: Log, store: WindowStore) -> None:
        self.settings = settings
        self.control = control
        self.log = log
        self.publisher = Publisher(settings, log)
        self.share = FailureShare(settings.max_poison_share, self.publisher.silent_before)
        self.snapshots = KafkaSnapshots(settings, log.partitions)
        self.revival = Revival(self.snapshots, log, rules_of(control))
        self.store: WindowStore = HydratingStore(store, self.revival)
        self.rounds = SnapshotWriter(
            log, self.snapshots, settings.snapshot_events, settings.hibernate_after
        )
        self.topic = settings.topic("events")
        self.partitions: dict[int, Partition] = {}
        self.rules = Rules()
        self.generation = 0
        self._unprepared: set[int] = set()
        self._commits = Commits(settings, self.topic)
        self._served: dict[int, int] = {}
        self._anew: set[int] = set()
        self._watch: Watch | None = None
        self._feeds: dict[int, PartitionQueue] = {}
        self._rest: dict[int, float] = {}
        self.said: Counter[int] = Counter()
        """How often each partition waited for a cause that the log names."""
        self._preparing: dict[int, asyncio.Task[None]] = {}
        self._asker = CompactionScheduler(self.publisher, self.store, settings.summary_time_cap)
        self._one_heals = asyncio.Lock()
        self._heals_from_snapshots = True
        self._consumer: AIOKafkaConsumer | None = None
        self._stopping = asyncio.Event()
        self.failure: KeyUnusable | TooMuchPoison | None = None

    async def run(self) -> None:
        """Project until :meth:`stop`; Kafka or Redis being away is waited out, never an end.

        Raises:
            KafkaUnavailable: the brokers do not answer at the start. KeyUnusable: a master key is
            missing, or is another one: windows folded without it would be wrong. TooMuchPoison:
            more of what comes in cannot be applied than the setting ``max_poison_share`` allows.
        """
        consumer = make_consumer(self.settings, group=self.settings.group)
        self._watch = Watch(self.log, self.topic, consumer)
        consumer.subscribe([self.topic], listener=Rebalances(self))
        async with kafka_errors(self.settings, "projector"):
            await start_client(consumer, self.settings, limit=60.0)
            # Before anything is prepared: a topic that is made anew from here on is another one.
            await self._watch.changed()
        self._consumer = consumer
        await self._check_snapshots()
        tick = asyncio.create_task(self._tick(), name="projector-tick")
        look = asyncio.create_task(
            self._watch.look(self._folded, self._made_anew, self._unprepared.add),
            name="projector-look",
        )
        try:
            while not self._stopping.is_set():
                await self._step(consumer)
        finally:
            self._stopping.set()
            background = [tick, look, *self._preparing.values()]
            await end_tasks(background)
            await asyncio.gather(
                *(feed.closed() for feed in self._feeds.values()), return_exceptions=True
            )
            await self._commits.last(consumer, self._folded())
            await self.rounds.finish(LAST_ROUNDS)
            await self.rounds.stop()
            await stop_client(consumer, self.settings)
            await self.revival.stop()
            await self.snapshots.stop()
            await self.publisher.stop()
        if self.failure is not None:
            raise self.failure.with_traceback(None)

    def _fail(self, error: KeyUnusable | TooMuchPoison) -> None:
        """End the projector: what it would write with these settings, or of these records, would
        not be right.
        """
        if self.failure is None:
            logger.critical("%s", error)
            self.failure = error
        self._stopping.set()

    async def _check_snapshots(self) -> None:
        """Snapshots are an index: a topic that cannot hold them is said, and done without."""
        why = await self.snapshots.usable()
        if why is not None:
            logger.warning("no snapshots, a lost Redis costs reading the whole log: %s", why)
            self._heals_from_snapshots = False
            self.rounds = SnapshotWriter(self.log, self.snapshots, 0)

    def stop(self) -> None:
        """Ask :meth:`run` to finish the batch at hand and return."""
        self._stopping.set()

    async def _step(self, consumer: AIOKafkaConsumer) -> None:
        """One round: prepare what is new, fetch, and hand each partition's rows to its feed."""
        try:
            self._follow_generation()
            self._prepare_all(consumer)
            batches = await self._fetch(consumer)
        except KafkaError as error:
            logger.warning("waiting: %s", error)
            await asyncio.sleep(RETRY_PAUSE)
            return
        for tp, rows in batches.items():
            feed = self._feeds.get(tp.partition)
            if (
                feed is not None
                and tp.partition not in self._unprepared
                and await self._follows(tp.partition, rows)
            ):
                feed.put(rows)

    async def _follows(self, number: int, rows: Sequence[Row]) -> bool:
        """Whether rows are the next ones of the log that was read before; a partition of which they
        are not is prepared anew.
        """
        try:
            if self._watch is not None and await self._watch.follows(number, rows):
                return True
        except ThreadfoldError as error:
            logger.warning("partition %d waits: %s", number, error)
            self.said[number] += 1
        self._wait(number)
        return False

    async def _fetch(self, consumer: AIOKafkaConsumer) -> dict[TopicPartition, list[Row]]:
        """What has come for partitions whose feeds have room; of the others nothing is taken, so
        nothing is queued without a bound.

        They are not paused: aiokafka would not look again at what it holds of a partition that was
        paused in between.
        """
        room = [
            TopicPartition(self.topic, number)
            for number, feed in self._feeds.items()
            if not feed.full
        ]
        wait = POLL if len(room) == len(self._feeds) else POLL_FULL
        if self._feeds and not room:
            await asyncio.sleep(wait)
            return {}
        batches: dict[TopicPartition, list[Row]] = await consumer.getmany(
            *room, timeout_ms=int(wait * 1000), max_records=FETCH_ROWS
        )
        return batches

    async def _process(self, partition: Partition, rows: Sequence[Row]) -> None:
        """Fold one batch of a partition; what comes after a failure is fetched again once it is
        prepared anew.
        """
        number = partition.number
        if self.partitions.get(number) is not partition or number in self._unprepared:
            return
        try:
            async with partition.turn:
                due = await partition.process(rows)
                self._served[number] = max(
                    self._served.get(number, -1), partition.checkpoint.offset
                )
                await self._asker.ask(partition, due)
            self.rounds.consider(
                number, behind=self._lag(partition) > self.settings.snapshot_events
            )
        except Fenced as error:
            if self.partitions.get(number) is partition:
                logger.warning("%s; loading its checkpoint", error)
                self._unprepared.add(number)
        except CorruptWindow as error:
            await self._discard(number, error)
        except (KeyUnusable, TooMuchPoison) as error:
            self._unprepared.add(number)
            self._fail(error)
        except ThreadfoldError as error:
            logger.warning("partition %d waits: %s", number, error)
            self.said[number] += 1
            self._wait(number)
        except Exception:
            # Left alone it would end the feed's task, and with it the partition, without a word.
            logger.exception("folding partition %d failed; it is tried again", number)
            self._wait(number)

    def _wait(self, number: int) -> None:
        """Have a partition prepared anew, after a pause."""
        self._rest[number] = time.monotonic() + RETRY_PAUSE
        self._unprepared.add(number)

    def feeds(self) -> Iterable[PartitionQueue]:
        """What waits to be folded, by partition."""
        return self._feeds.values()

    def assignment(self) -> dict[int, Partition | None]:
        """The partitions that the group has given to this process; None: it is being prepared."""
        if self._consumer is None:
            return {}
        numbers = sorted(tp.partition for tp in self._consumer.assignment())
        return {
            number: None if number in self._unprepared else self.partitions.get(number)
            for number in numbers
        }

    def _lag(self, partition: Partition) -> int:
        """How many records the log has beyond the checkpoint, as far as the consumer was told."""
        tp = TopicPartition(self.topic, partition.number)
        known = (
            self._consumer.highwater(tp)
            if self._consumer is not None and tp in self._consumer.assignment()
            else None
        )
        return (known or 0) - 1 - partition.checkpoint.offset

    async def _discard(self, number: int, error: CorruptWindow) -> None:
        """A partition with an unreadable window is dropped and folded anew: the log knows
        better.
        """
        self._unprepared.add(number)
        partition = self.partitions.get(number)
        try:
            if partition is not None:
                await partition.check()
            logger.error("%s; partition %d is folded anew", error, number)
            await self.store.drop_partition(self.generation, number)
        except Fenced:
            logger.warning(
                "partition %d is another process' now; what was read of it is passed over", number
            )
        except RedisUnavailable as away:
            logger.warning("partition %d waits: %s", number, away)

    def assigned(self, numbers: Iterable[int]) -> None:
        """Take partitions over; they are prepared before anything of them is folded."""
        for number in numbers:
            self._unprepared.add(number)

    def revoked(self, numbers: Iterable[int]) -> None:
        """Give partitions up: nothing of them is kept."""
        for number in numbers:
            self._let_go(number)
            self._unprepared.discard(number)
            self._served.pop(number, None)

    def _let_go(self, number: int) -> None:
        """Drop a partition and what is queued for it; a batch under way ends by itself, or
        fenced.
        """
        self.partitions.pop(number, None)
        self.rounds.forget([number])
        if self._watch is not None:
            self._watch.end(number)
        feed = self._feeds.pop(number, None)
        if feed is not None:
            feed.close()

    def _follow_generation(self) -> None:
        live = self.control.state.live_generation
        if live.number != self.generation:
            self.generation = live.number
            self.rules = self.control.state.rules(live)
            self._unprepared |= set(self.partitions)
            for number in list(self.partitions):
                self._let_go(number)

    def _prepare_all(self, consumer: AIOKafkaConsumer) -> None:
        """Begin to prepare what is assigned and not prepared yet, each beside the others: healing
        one must hold no other.
        """
        assigned = {tp.partition for tp in consumer.assignment()}
        # What is not assigned any more is let go; nobody else prepares what a rebalance brought
        # meanwhile.
        self._unprepared &= assigned
        now = time.monotonic()
        for number in sorted(self._unprepared - self._preparing.keys()):
            if self._rest.get(number, 0.0) <= now:
                self._preparing[number] = asyncio.create_task(
                    self._prepare_one(consumer, number), name=f"prepare-{number}"
                )

    async def _prepare_one(self, consumer: AIOKafkaConsumer, number: int) -> None:
        try:
            if await self._prepare(consumer, number):
                self._unprepared.discard(number)
        except Fenced:
            # The former owner wrote once more in this moment: load again in the next round.
            logger.info("partition %d was written while it was prepared: once more", number)
        except IllegalStateError:
            # The partition was taken away while it was prepared.
            self.revoked([number])
        except KeyUnusable as error:
            self._fail(error)
        except LogTruncated as error:
            logger.error("%s", error)
            self.said[number] += 1
            self._rest[number] = time.monotonic() + TRUNCATED_PAUSE
        except (KafkaError, ThreadfoldError) as error:
            logger.warning("waiting: %s", error)
            self.said[number] += 1
            self._rest[number] = time.monotonic() + RETRY_PAUSE
        except Exception:
            logger.exception("preparing partition %d failed; it is tried again", number)
            self._rest[number] = time.monotonic() + RETRY_PAUSE
        finally:
            del self._preparing[number]

    async def _prepare(self, consumer: AIOKafkaConsumer, number: int) -> bool:
        """Find where the partition goes on, say until where it heals, and seek there; False when it
        has to be done again.
        """
        generation, rules = self.generation, self.rules
        self._let_go(number)
        tp = TopicPartition(self.topic, number)
        # Before anything is read: a connection that is made later may be to another log.
        way = self._watch.way(number) if self._watch is not None else None
        start = await self._start_of(number, generation, await consumer.committed(tp) or 0)
        partition = Partition(
            number,
            generation,
            self.store,
            self.log,
            rules,
            learn=self.control.learner(rules),
            voice=self.publisher,
            cached_windows=self.settings.cached_windows,
            share=self.share,
        )
        partition.adopt(start.checkpoint)
        # Always written: it makes the state exist for readers, and fences a former owner at once.
        await partition.set_target(start.target)
        if self._heals_from_snapshots and (
            partition.checkpoint.healing or partition.checkpoint.offset < 0 < start.end
        ):
            # One at a time: each holds windows and their text in memory.
            async with self._one_heals:
                await heal_from_snapshots(partition, self.log, self.snapshots, start.target)
        now = partition.checkpoint
        check_reach(
            self.topic, number, now.offset, start.begin, accept=self.settings.accept_truncated_log
        )
        if now.healing:
            logger.warning(
                "partition %d heals from offset %d to %d", number, now.offset + 1, now.target
            )
        if number not in self._unprepared or generation != self.generation:
            return False
        consumer.seek(tp, max(now.offset + 1, start.begin))
        self._take_over(partition)
        self._anew.discard(number)
        if self._watch is not None:
            self._watch.begin(number, now, start.begin, way)
        return True

    async def _start_of(self, number: int, generation: int, committed: int) -> Start:
        """Where the partition goes on; what is not of this log is dropped, and all of it is told to
        subscribers once more.
        """
        start = await find_start(
            self.log,
            number,
            await self._stored_checkpoint(generation, number),
            committed=committed,
            served=self._served.get(number, -1),
            anew=number in self._anew,
            accept=self.settings.accept_truncated_log,
        )
        if start.other:
            committed, self._served[number] = 0, start.end - 1
            self.share.forget(number)
        self._commits.known[number] = committed
        self.publisher.silent_before[number] = committed
        if start.checkpoint == Checkpoint():
            await self.store.drop_partition(generation, number)
        return start

    async def _stored_checkpoint(self, generation: int, number: int) -> Checkpoint | None:
        try:
            return await self.store.checkpoint(generation, number)
        except CorruptWindow as error:
            logger.error("partition %d: %s", number, error)
            return None

    def _take_over(self, partition: Partition) -> None:
        """Feed a prepared partition: only rows from where it was sought come to it."""
        number = partition.number
        self._let_go(number)
        feed = PartitionQueue(
            partial(self._process, partition),
            batch_rows=self.settings.batch_events,
            batch_bytes=self.settings.batch_bytes,
        )
        self.partitions[number], self._feeds[number] = partition, feed
        self.rounds.take_over(partition)
        feed.start(f"partition-{number}")

    def _made_anew(self) -> None:
        """The topic is another one: whatever stands in checkpoints is not of it."""
        self._anew |= set(range(self.log.partitions))
        self._unprepared |= set(self.partitions)

    def _folded(self) -> dict[int, int]:
        return {
            number: partition.checkpoint.offset
            for number, partition in self.partitions.items()
            if number not in self._unprepared
        }

    async def _tick(self) -> None:
        """Twice a second: commit offsets, and send again what has been due for too long."""
        # Python 3.11's wait_for, which aiokafka uses, can swallow a cancellation: the flag ends it
        # then.
        while not self._stopping.is_set():
            await asyncio.sleep(DUE_EVERY)
            try:
                await self.commit()
                for number, partition in list(self.partitions.items()):
                    if number not in self._unprepared and not partition.checkpoint.healing:
                        await self._look_after(number, partition)
                        self.rounds.consider(
                            number, behind=self._lag(partition) > self.settings.snapshot_events
                        )
            except Exception:
                logger.exception("looking after the partitions failed; it is tried again")

    async def _look_after(self, number: int, partition: Partition) -> None:
        """An idle partition, too, has to notice that Redis lost it, what is due in it has to be
        asked for again, and its timers ring.
        """
        try:
            async with partition.turn:
                await partition.check()
                self.rounds.check(number)
                await self._asker.ask(partition, await partition.due_windows(_now_ms()), again=True)
            # While there is more to fold, or how much is not known yet, time stands where the log
            # has been folded to.
            left = await left_of(self.log, partition, self._lag(partition), self._feeds.get(number))
            await fire_timers(partition, partition.checkpoint.timestamp if left else _now_ms())
        except Fenced as error:
            if self.partitions.get(number) is partition:
                logger.warning("%s; loading its checkpoint", error)
                self._unprepared.add(number)
        except CorruptWindow as error:
            await self._discard(number, error)
        except ThreadfoldError as error:
            logger.warning("requests and timers of partition %d wait: %s", number, error)

    async def commit(self) -> None:
        """Commit what is folded and spoken of."""
        if self._consumer is not None:
            await self._commits.commit(self._consumer, self._folded())


def _now_ms() -> int:
    return int(time.time() * 1000)
