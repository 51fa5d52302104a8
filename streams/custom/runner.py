"""Runs a projection: a consumer group of its own shares the log's partitions among all processes
that run it.

As with windows, the group is for the assignment only: where a partition goes on is told by the
checkpoint beside its values. A partition that is taken over is *prepared* first: its checkpoint's
record is read again from the log, and one that is missing, or of another incarnation of the topic,
has the partition folded anew; until it has come to where the log ended then, its readers are told
that it heals.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

from projections.errors import (
    CorruptWindow,
    InvalidProjection,
    KeyUnusable,
    LogTruncated,
    ProjectionFailed,
    RedisUnavailable,
    ThreadfoldError,
)
from projections.storage.protocol import Checkpoint
from streams.control.custom_projections import ProjectionRecord
from streams.control.follower import Control
from streams.custom.fold import ProjectionPartition
from streams.custom.persistence import ProjectionStore, place_of
from streams.custom.projection import Projection, check_projection
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
from streams.log.retention import check_reach, said_of_begins
from streams.partition.partition import Fenced
from streams.recovery.log_identity import why_other
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)
POLL = 0.2
TICK = 0.5
RETRY_PAUSE = 0.5
TRUNCATED_PAUSE = 30.0
FETCH_ROWS = 500
"""Records applied at once, in all: what the consumer holds beyond them stays compressed."""
_FATAL = (KeyUnusable, ProjectionFailed, InvalidProjection)


class ProjectionRunner:
    """Keeps one projection's results up with the log; any number of processes may run one each."""

    def __init__(
        self,
        settings: Settings,
        control: Control,
        log: Log,
        store: ProjectionStore,
        projection: Projection,
        *,
        anew: bool = False,
    ) -> None:
        """Args: ``anew``: build a new generation beside the live one, and :meth:`run` until it is
        live.

        Raises:
            InvalidProjection: its name or version cannot be.
        """
        self.settings = settings
        self.control = control
        self.log = log
        self.store = store
        self.projection = check_projection(projection)
        self.generation = 0
        self.partitions: dict[int, ProjectionPartition] = {}
        self.on_progress: Callable[[int, int], None] | None = None
        """Called now and then with how many records of a new generation are applied, and of how
        many.
        """
        self._anew = anew
        self._topic = settings.topic("events")
        self._unprepared: set[int] = set()
        self._rest: dict[int, float] = {}
        self._served: dict[int, int] = {}
        self._consumer: AIOKafkaConsumer | None = None
        self._commits = Commits(settings, self._topic)
        self._stopping = asyncio.Event()
        self._failure: ThreadfoldError | None = None
        self._outdated = False

    def stop(self) -> None:
        """Ask :meth:`run` to finish the batch at hand and return."""
        self._stopping.set()

    async def run(self) -> None:
        """Project until :meth:`stop` (or, built anew, until the new generation is live); Kafka or
        Redis being away is waited out.

        Raises:
            ProjectionFailed, InvalidProjection: the projection raised an error, or put what is no
            value. LogTruncated: it has to be folded from the log's first event, which is gone; the
            results there are stay as they are. KeyUnusable: a master key is missing, or is another
            one. KafkaUnavailable: the brokers do not answer at the start.
        """
        self.generation = await self._choose()
        while not self._stopping.is_set():
            await self._run_generation()
        if self._failure is not None:
            raise self._failure

    # -- generations
    # ------------------------------------------------------------------------------------------

    async def _choose(self) -> int:
        """The generation to feed: the latest of this version, or a new one."""
        ends, version = await self.log.last_records(), self.projection.version
        whole = said_of_begins(
            self._topic,
            {} if self.settings.accept_truncated_log else await self.log.beginning_offsets(),
        )
        number: int | None = None

        def begin(before: ProjectionRecord) -> ProjectionRecord | None:
            nonlocal number
            number = (
                before.candidate(version)
                if self._anew and before.live is not None
                else before.newest(version)
            )
            if number is not None and not (whole and self._anew):
                return None
            live = before.generations.get(before.live or 0)
            if live is not None and live.version > version and not self._anew:
                raise InvalidProjection(
                    f"projection {self.projection.name}: version {live.version} is live, and this"
                    f" code is version {version}: run the newer one, or go back to this one with"
                    " `threadfold projection rebuild`"
                )
            if whole:
                # What is right, and perhaps the only one that had those events, must not give way
                # to what is left of it.
                raise LogTruncated(
                    f"projection {self.projection.name} cannot be folded anew: {whole[0]}"
                )
            after = before.begun(version, ends)
            number = max(after.generations)
            return after

        record = await self.control.change_projection(self.projection.name, begin)
        if number is None or number not in record.generations:
            raise InvalidProjection(
                f"projection {self.projection.name}: its record was deleted while it started: start"
                " it again"
            )
        built_on = len(record.generations[number].ends)
        if built_on != len(ends):
            raise InvalidProjection(
                f"projection {self.projection.name}: its results were built on {built_on}"
                f" partitions, the log has {len(ends)}: drop them (`threadfold projection drop"
                f" {self.projection.name} --all`) and start it again"
            )
        return number

    @property
    def _record(self) -> ProjectionRecord:
        return self.control.state.views.get(self.projection.name, ProjectionRecord())

    def _moved(self) -> bool:
        """Whether another generation of this version has become live, which is the one to feed
        now.
        """
        record = self._record
        if (
            record.live is None
            or record.live == self.generation
            or (self._anew and record.live < self.generation)
        ):
            return False
        if (
            record.live > self.generation
            and record.generations[record.live].version == self.projection.version
        ):
            self.generation = record.live
            return True
        if record.live > self.generation and not self._outdated:
            self._outdated = True
            logger.warning(
                "projection %s: another version is live, what this process keeps up nobody reads",
                self.projection.name,
            )
        return False

    async def _switch_when_complete(self) -> None:
        """Make a younger generation live once every partition has come to where the log ended when
        it was begun.
        """
        record, number = self._record, self.generation
        own = record.generations.get(number)
        if own is None or record.live is None:
            self._failure = self._failure or InvalidProjection(
                f"projection {self.projection.name}: generation {number}, which this process kept"
                " up, was dropped: start it again if its results are wanted"
            )
            self.stop()
            return
        if number < record.live or (number == record.live and not self._anew):
            return
        done = 0
        complete = True
        begins = await self.log.beginning_offsets() if self.settings.accept_truncated_log else {}
        for partition, end in enumerate(own.ends):
            if begins.get(partition, 0) >= end:
                continue  # nothing of it is left
            checkpoint = await self.store.checkpoint(
                place_of(self.projection.name, number, partition)
            )
            offset = checkpoint.offset if checkpoint is not None else -1
            done += min(offset + 1, end)
            complete = (
                complete and checkpoint is not None and offset + 1 >= end and not checkpoint.healing
            )
        if self.on_progress is not None:
            self.on_progress(done, sum(own.ends))
        if complete and number == record.live:
            self.stop()
        elif complete:
            await self.control.change_projection(
                self.projection.name,
                lambda before: (
                    before.switched(number)
                    if number in before.generations and number > (before.live or 0)
                    else None
                ),
            )
            logger.warning(
                "projection %s: generation %d (version %d) is live",
                self.projection.name,
                number,
                own.version,
            )

    # -- the loop
    # ------------------------------------------------------------------------------------------

    async def _run_generation(self) -> None:
        """Feed one generation until the end, or until another one is to be fed."""
        group = f"{self.settings.group}.view.{self.projection.name}.{self.generation}"
        consumer = make_consumer(self.settings, group=group)
        consumer.subscribe([self._topic], listener=Rebalances(self))
        async with kafka_errors(self.settings, f"projection {self.projection.name}"):
            await start_client(consumer, self.settings, limit=60.0)
        self._consumer, self._commits = consumer, Commits(self.settings, self._topic)
        ticked = 0.0
        try:
            while not self._stopping.is_set() and not self._moved():
                await self._step(consumer)
                if time.monotonic() - ticked >= TICK:
                    await self._tick()
                    ticked = time.monotonic()
        finally:
            await self._commits.last(consumer, self._applied())
            self._consumer = None
            self.partitions.clear()
            self._unprepared.clear()
            self._served.clear()
            await stop_client(consumer, self.settings)

    async def _step(self, consumer: AIOKafkaConsumer) -> None:
        """Prepare what is new, fetch, and apply each partition's rows."""
        try:
            await self._prepare_all(consumer)
            batches = await consumer.getmany(
                timeout_ms=int(POLL * 1000), max_records=min(FETCH_ROWS, self.settings.batch_events)
            )
        except KafkaError as error:
            logger.warning("projection %s waits: %s", self.projection.name, error)
            await asyncio.sleep(RETRY_PAUSE)
            return
        work = [
            self._guarded(partition, self._process(partition, rows))
            for tp, rows in batches.items()
            if (partition := self.partitions.get(tp.partition)) is not None
            and tp.partition not in self._unprepared
        ]
        await asyncio.gather(*work)

    async def _process(self, partition: ProjectionPartition, rows: Sequence[Row]) -> None:
        if rows[0].offset <= partition.checkpoint.offset:
            # It was sought behind its checkpoint: the client was told of a log that ends before it,
            # and began anew.
            raise Fenced(
                f"partition {partition.number} delivers what projection {self.projection.name} has:"
                " its log may be another one"
            )
        await partition.process(rows)
        self._served[partition.number] = max(
            self._served.get(partition.number, -1), partition.checkpoint.offset
        )

    async def _check(self, partition: ProjectionPartition, end: int) -> None:
        if end <= partition.checkpoint.offset:
            raise Fenced(
                f"the log of partition {partition.number} ends before what projection"
                f" {self.projection.name} has of it"
            )
        await partition.check()

    async def _tick(self) -> None:
        """Notice what Redis or the log lost of partitions where nothing comes, commit, and switch
        when a new generation is complete.
        """
        try:
            ends = await self.log.end_offsets()
            for number, partition in list(self.partitions.items()):
                if number not in self._unprepared:
                    await self._guarded(partition, self._check(partition, ends[number]))
            await self.commit()
            await self._switch_when_complete()
        except ThreadfoldError as error:
            logger.warning("projection %s waits: %s", self.projection.name, error)

    async def _guarded(self, partition: ProjectionPartition, work: Awaitable[None]) -> None:
        """Await work on a partition; one that failed is prepared anew, from where the store is."""
        number = partition.number
        try:
            await work
        except Fenced as error:
            logger.info("%s; loading its checkpoint", error)
        except CorruptWindow as error:
            logger.error("%s; partition %d is folded anew", error, number)
            await self._discard(partition)
        except _FATAL as error:
            self._failure = self._failure or error
            self.stop()
        except ThreadfoldError as error:
            logger.warning(
                "partition %d of projection %s waits: %s", number, self.projection.name, error
            )
            self._rest[number] = time.monotonic() + RETRY_PAUSE
        else:
            return
        if self.partitions.get(number) is partition:
            self._unprepared.add(number)

    async def _discard(self, partition: ProjectionPartition) -> None:
        """A partition that cannot be read is dropped and folded anew, by whoever owns it."""
        try:
            await partition.check()
            await self.store.drop(partition.place)
        except (Fenced, CorruptWindow) as error:
            logger.info("partition %d is left as it is: %s", partition.number, error)
        except RedisUnavailable as error:
            logger.warning(
                "partition %d of projection %s waits: %s",
                partition.number,
                self.projection.name,
                error,
            )

    # -- assignment
    # ------------------------------------------------------------------------------------------

    def assigned(self, numbers: Iterable[int]) -> None:
        """Take partitions over; they are prepared before anything of them is applied."""
        self._unprepared.update(numbers)

    def revoked(self, numbers: Iterable[int]) -> None:
        """Give partitions up; a batch under way ends by itself, or fenced."""
        for number in numbers:
            self.partitions.pop(number, None)
            self._unprepared.discard(number)
            self._served.pop(number, None)

    async def _prepare_all(self, consumer: AIOKafkaConsumer) -> None:
        now = time.monotonic()
        for number in sorted(self._unprepared):
            if self._rest.get(number, 0.0) > now:
                continue
            try:
                await self._prepare(consumer, number)
            except Fenced:
                logger.info("partition %d was written while it was prepared: once more", number)
            except IllegalStateError:
                self.revoked([number])  # taken away while it was prepared
            except KeyUnusable as error:
                self._failure = self._failure or error
                self.stop()
            except LogTruncated as error:
                logger.error("projection %s: %s", self.projection.name, error)
                self._rest[number] = time.monotonic() + TRUNCATED_PAUSE
            except ThreadfoldError as error:
                logger.warning(
                    "partition %d of projection %s waits: %s", number, self.projection.name, error
                )
                self._rest[number] = time.monotonic() + RETRY_PAUSE

    async def _prepare(self, consumer: AIOKafkaConsumer, number: int) -> None:
        """Find where the partition goes on, and seek there."""
        partition = ProjectionPartition(
            self.projection, self.generation, number, self.store, self.log
        )
        tp = TopicPartition(self._topic, number)
        end = (await self.log.last_records())[number]
        try:
            stored = await self.store.checkpoint(partition.place)
        except CorruptWindow as error:
            logger.error("%s", error)
            stored = None
        begin = (await self.log.beginning_offsets())[number]
        if (why := await why_other(self.log, number, stored, begin, end)) is not None:
            logger.warning(
                "partition %d: the log is not the one projection %s was folded from: %s",
                number,
                self.projection.name,
                why,
            )
            stored = None
        reached = -1 if stored is None else stored.offset
        check_reach(
            self._topic,
            number,
            reached,
            begin,
            accept=self.settings.accept_truncated_log,
            what="results",
        )
        if stored is None:
            await self.store.drop(partition.place)
            # Where nothing is left, which was accepted then, nothing will come that ends the
            # healing.
            await partition.begin(Checkpoint(), end - 1 if begin < end else -1)
        else:
            # An older copy of Redis that was put back serves nobody before it is where readers have
            # been.
            reached = max(
                stored.target, self._served.get(number, -1), (await consumer.committed(tp) or 0) - 1
            )
            await partition.begin(stored, min(reached, end - 1))
        if number not in self._unprepared:
            return
        consumer.seek(tp, partition.checkpoint.offset + 1)
        self.partitions[number] = partition
        # A store that was set back is committed as it is.
        self._commits.known.pop(number, None)
        self._unprepared.discard(number)

    # -- commits
    # ------------------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Commit what is applied: for tools that show lag, and for whoever takes over and asks how
        far readers have been.
        """
        if self._consumer is not None:
            await self._commits.commit(self._consumer, self._applied())

    def _applied(self) -> dict[int, int]:
        return {
            number: partition.checkpoint.offset
            for number, partition in self.partitions.items()
            if number not in self._unprepared
        }
