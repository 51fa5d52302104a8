"""Runs a custom projection: any number of processes share the log's partitions, and keep its
results up with the log.

It runs on the partition runtime (``streams.partition.runtime``), one consumer group a generation.
What it adds: which generation is fed, when a new one becomes live, and where a partition goes on. A
partition whose checkpoint is missing, or of another log, is folded anew; until it has come to where
the log ended then, its readers get :class:`Healing`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from projections.errors import (
    InvalidProjection,
    KeyUnusable,
    LogTruncated,
    ProjectionFailed,
)
from projections.storage.records import Checkpoint
from streams.control.control_topic import Control
from streams.control.custom_projections import ProjectionRecord
from streams.custom.fold import ProjectionPartition
from streams.custom.persistence import ProjectionStore, place_of
from streams.custom.projection import Projection, check_projection
from streams.log.log import Log, Row
from streams.log.retention import check_beginning, lost_beginnings
from streams.partition.folder import Folder, Prepared
from streams.partition.log_identity import stored_place
from streams.partition.runtime import FETCH_ROWS, PartitionRuntime
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)


class ProjectionRunner(Folder[ProjectionPartition]):
    """Keeps one projection's results up with the log; any number of processes may run one each."""

    fatal = (KeyUnusable, ProjectionFailed, InvalidProjection)

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
        self.name = f"projection {projection.name}"
        self.generation = 0
        self.runtime = self._runtime()
        self.on_progress: Callable[[int, int], None] | None = None
        """Called now and then with how many records of a new generation are applied, and of how
        many.
        """
        self._anew = anew
        self._stopping = asyncio.Event()
        self.outdated = False
        """Whether a newer version is live, so that nobody reads what this process keeps up."""

    @property
    def partitions(self) -> dict[int, ProjectionPartition]:
        """The partitions that this process folds."""
        return self.runtime.partitions

    def stop(self) -> None:
        """Ask :meth:`run` to finish the batch at hand and return."""
        self._stopping.set()
        self.runtime.stop()

    async def run(self) -> None:
        """Project until :meth:`stop` (or, built anew, until the new generation is live); Kafka or
        Redis being away is waited out.

        Raises:
            ProjectionFailed, InvalidProjection: the projection raised an error, or put what is no
                value.
            LogTruncated: it has to be folded from the log's first event, which is missing; the
                results there are stay as they are.
            KeyUnusable: a master key is missing, or is another one.
            KafkaUnavailable: the brokers do not answer at the start.
        """
        self.generation = await self._choose()
        while not self._stopping.is_set():
            self.runtime = self._runtime()
            await self.runtime.run()

    def _runtime(self) -> PartitionRuntime[ProjectionPartition]:
        group = f"{self.settings.group}.view.{self.projection.name}.{self.generation}"
        batch_events = min(FETCH_ROWS, self.settings.batch_events)
        return PartitionRuntime(
            self.settings, self.log, self, group=group, batch_events=batch_events
        )

    # -- generations

    async def _choose(self) -> int:
        """The generation to feed: the latest of this version, or a new one."""
        ends, version = await self.log.last_records(), self.projection.version
        whole = lost_beginnings(
            self.runtime.topic,
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
                    f"projection {self.projection.name} cannot be folded again: {whole[0]}"
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
        return self.control.state.projections.get(self.projection.name, ProjectionRecord())

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
        if record.live > self.generation and not self.outdated:
            self.outdated = True
            logger.warning(
                "projection %s: another version is live, so this process' results are not read",
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
            self.runtime.fail(
                InvalidProjection(
                    f"projection {self.projection.name}: generation {number}, which this process"
                    " kept up, was dropped: start it again if its results are needed"
                )
            )
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

    # -- one partition

    def goes_on(self) -> bool:
        """Whether this generation is still the one to feed."""
        return not self._moved()

    async def tick(self) -> None:
        """Switch when a new generation is complete."""
        await self._switch_when_complete()

    async def process(self, partition: ProjectionPartition, rows: Sequence[Row]) -> None:
        async with partition.turn:
            await partition.process(rows)

    async def look_after(self, partition: ProjectionPartition) -> None:
        """Notice what Redis lost of a partition where nothing comes."""
        async with partition.turn:
            await partition.check()

    async def drop(self, partition: ProjectionPartition) -> None:
        await self.store.drop(partition.place)

    async def prepare(self, number: int, committed: int) -> Prepared[ProjectionPartition]:
        """Find where the partition goes on, and write until where it heals."""
        partition = ProjectionPartition(
            self.projection, self.generation, number, self.store, self.log
        )
        stored, begin, end, _ = await stored_place(
            self.log,
            number,
            partition.stored_checkpoint(),
            recreated=number in self.runtime.recreated,
            name=self.name,
        )
        check_beginning(
            self.runtime.topic,
            number,
            -1 if stored is None else stored.offset,
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
            served = self.runtime.served.get(number, -1)
            target = max(stored.target, served, committed - 1)
            await partition.begin(stored, min(target, end - 1))
        # A store that was set back is committed as it is.
        self.runtime.commits.known.pop(number, None)
        return Prepared(partition, begin)
