"""The projector: folds the events topic into the live generation's windows.

It runs on the partition runtime (``streams.partition.runtime``). What it adds: where a partition
goes on and up to where it heals, snapshots, compaction requests and timers. The offsets that its
group commits serve lag tools, and tell up to where summaries have been announced. A checkpoint that
is missing, older than what was served before, or of another log makes the partition heal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from weakref import WeakValueDictionary

from projections.errors import KafkaUnavailable, KeyUnusable
from projections.fold.outcomes import History, Outcome
from projections.names import Key
from projections.policy.policy import Rules
from projections.storage.protocol import WindowStore
from projections.storage.records import Checkpoint
from projections.window.window import Window
from streams.control.control_topic import Control
from streams.control.generations import HEARD, withhold
from streams.log.log import Log, Row
from streams.log.retention import check_beginning
from streams.log.rollback_history import Copies, fetch_needed, takes_long
from streams.metrics.declared import SNAPSHOTS
from streams.metrics.metrics import Metrics
from streams.partition.failure_share import FailureShare
from streams.partition.folder import Folder, Prepared
from streams.partition.log_identity import Start, find_start, stored_place
from streams.partition.partition import Partition
from streams.partition.runtime import PartitionRuntime
from streams.projector.compaction_scheduler import Answered, CompactionScheduler
from streams.projector.effect_sink import Publisher
from streams.projector.halts import Halts
from streams.projector.projector_counts import ProjectorCounts
from streams.projector.request_turns import most_of_each
from streams.projector.timers import fire_timers
from streams.recovery.healing import heal_from_snapshots
from streams.recovery.hydrating_reader import HydratingReader
from streams.recovery.revival import Revival, rules_of
from streams.recovery.snapshot_topic import KafkaSnapshots
from streams.recovery.snapshot_writer import SnapshotWriter
from streams.runtime.time_slices import TimeSlices
from streams.runtime.tracing import is_tracing
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)

MOST_WINDOWS = 400
"""So many windows are written at once: Redis answers nobody else for about 25 µs of each."""
RESTORING = 2
"""Conversations that one worker restores at once."""
LAST_SNAPSHOTS = 3.0
"""Seconds that snapshots which are due may hold up the end."""


class Projector(Folder[Partition]):
    """Projects the partitions its group assigns to it; run one a process."""

    name = "projector"
    fatal = (KeyUnusable,)

    def __init__(
        self,
        settings: Settings,
        control: Control,
        log: Log,
        store: WindowStore,
        metrics: Metrics | None = None,
        answered: Answered | None = None,
    ) -> None:
        """Args:
        metrics: where all is counted; None: nobody looks.
        answered: how far compactors are with the requests; None: that is not looked at.
        """
        metrics = metrics or Metrics()
        self.settings = settings
        self.control = control
        self.log = log
        self.runtime = PartitionRuntime(settings, log, self, group=settings.group)
        self.partitions = self.runtime.partitions
        self.publisher = Publisher(settings, log, metrics, control.state.was_copied)
        self.share = FailureShare(settings.max_poison_share)
        self.halts = Halts(control)
        self.snapshots = KafkaSnapshots(settings, log.partitions)
        self.revival = Revival(self.snapshots, log, rules_of(control))
        self.store = store
        store.reader = HydratingReader(store, self.revival)
        self.snapshot_writer = SnapshotWriter(
            log, self.snapshots, settings.snapshot_events, settings.hibernate_after
        )
        self.rules = Rules()
        self.generation = 0
        self._scheduler = CompactionScheduler(
            self.publisher, self.store, settings.summary_time_cap, answered, self._most_requests
        )
        self._one_heals = asyncio.Lock()
        self._restoring = asyncio.Semaphore(RESTORING)
        self._tenants: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._slices = TimeSlices()
        self._heals_from_snapshots = False
        self._switched = -math.inf
        self._counts = ProjectorCounts(metrics, self.runtime, store)
        metrics.read(SNAPSHOTS, lambda: {(): self.snapshots.written})

    async def run(self) -> None:
        """Project until :meth:`stop`; Kafka or Redis being away is waited out, never an end.

        Raises:
            KafkaUnavailable: the brokers do not answer at the start.
            KeyUnusable: a master key is missing, or is another one: windows folded without it would
                be wrong.
        """
        try:
            await self._check_snapshots()
            await self.runtime.run()
        finally:
            await self.snapshot_writer.stop()
            await self.revival.stop()
            await self.snapshots.stop()
            await self.publisher.stop()

    def stop(self) -> None:
        """Ask :meth:`run` to finish the batch at hand and return."""
        self.runtime.stop()

    async def finish(self) -> None:
        """Record what halted, and write the snapshots that are due."""
        with contextlib.suppress(KafkaUnavailable):
            await self.halts.record()
        await self.snapshot_writer.finish(LAST_SNAPSHOTS)

    async def _check_snapshots(self) -> None:
        """Snapshots are an index: a topic that cannot hold them is reported, and done without."""
        why = await self.snapshots.usable()
        self._heals_from_snapshots = why is None
        if why is not None:
            logger.warning("no snapshots, a lost Redis costs reading the whole log: %s", why)
            self.snapshot_writer = SnapshotWriter(self.log, self.snapshots, 0)

    # -- one partition

    async def process(self, partition: Partition, rows: Sequence[Row]) -> None:
        async with partition.turn:
            begun, begun_ns = time.perf_counter(), time.time_ns()
            partition.traced = [] if is_tracing() else None
            due, writing = list[Window](), 0.0
            for part in windows_at_most(rows, MOST_WINDOWS):
                await partition.fold(part)
                folded = time.perf_counter()
                due += await partition.write()
                writing += time.perf_counter() - folded
                if partition.excess is not None:
                    break  # what comes after is folded once somebody accepts that
            self._counts.batch(len(rows), time.perf_counter() - begun - writing, writing)
            places: Mapping[Key, str] = {}
            if partition.traced:
                places = self.publisher.report_folded(partition.number, partition.traced, begun_ns)
            await self._scheduler.ask(partition, due, places)
        if partition.excess is not None:
            self.halts.begin(partition.number, partition.generation, partition.excess)
            partition.excess = None
        self._consider_snapshots(partition)

    def _most_requests(self) -> int:
        """How many requests of a tenant may wait on each partition of their topic."""
        calls = (one.max_concurrent for one in self.settings.summarizers.values())
        return most_of_each(len(self.partitions), max(calls, default=0))

    def _consider_snapshots(self, partition: Partition) -> None:
        behind = self.runtime.lag(partition) > self.settings.snapshot_events
        self.snapshot_writer.consider(partition.number, behind=behind)

    async def drop(self, partition: Partition) -> None:
        await self.store.drop_partition(partition.generation, partition.number)

    async def look_after(self, partition: Partition) -> None:
        """An idle partition, too, has to notice that Redis lost it, what is due in it has to be
        requested again, and its timers fire.
        """
        if partition.checkpoint.healing:
            return
        async with partition.turn:
            await partition.check()
            self.snapshot_writer.check(partition.number)
            if self.halts.after(partition.number) is None:
                # In a halted partition no summary would be accepted, and each request costs one.
                await self._scheduler.ask_again(partition, _now_ms())
        # While there is more to fold, or how much is not known yet, time stands where the log has
        # been folded to.
        left = await self.runtime.left(partition)
        await fire_timers(partition, partition.checkpoint.latest_ms if left else _now_ms())
        self._consider_snapshots(partition)

    def taken_over(self, partition: Partition) -> None:
        self.snapshot_writer.take_over(partition)

    def let_go(self, number: int) -> None:
        self.snapshot_writer.forget([number])

    def halted_after(self, number: int) -> int | None:
        return self.halts.after(number)

    async def tick(self) -> None:
        if strays := self.publisher.take_set_aside():
            await self.store.count_set_aside(strays)
        await self.halts.record()

    def goes_on(self) -> bool:
        """Follow the control topic: where another generation is live, all partitions begin anew;
        halted ones that an operator accepted go on.
        """
        for number in self.halts.lifted() & self.partitions.keys():
            self.share.accept(number)
            self.runtime.prepare_again(number, 0.0)
        live = self.control.state.live_generation
        if live.number != self.generation:
            if self.generation:
                self._switched = time.monotonic()
            self.generation = live.number
            self.rules = self.control.state.rules(live)
            self.runtime.unprepared |= set(self.partitions)
            for number in list(self.partitions):
                self.runtime.let_go(number)
        return True

    async def prepare(self, number: int, committed: int) -> Prepared[Partition] | None:
        """Find where the partition goes on, and write until where it heals."""
        generation, rules = self.generation, self.rules
        former = self.control.state.former
        if former is not None and time.monotonic() < self._switched + HEARD:
            await withhold(self.store, former, number)
        start = await self._start_of(number, generation, committed)
        partition = Partition(
            number,
            generation,
            self.store,
            self.log,
            rules,
            learn=self.control.learner(rules),
            sink=self.publisher,
            cached_windows=self.settings.cached_windows,
            share=self.share,
            fetch=self._fetch,
            restored=partial(self.runtime.poke, number),
            slices=self._slices,
            counts=self._counts.of(number),
        )
        partition.adopt(start.checkpoint)
        # Always written: it makes the state exist for readers, and fences a former owner at once.
        await partition.set_target(start.target)
        if self._heals_from_snapshots and (
            partition.checkpoint.healing or partition.checkpoint.offset < 0 < start.end
        ):
            # One at a time: each holds windows and their text in memory.
            with self._counts.heals(number):
                async with self._one_heals:
                    await heal_from_snapshots(partition, self.log, self.snapshots, start.target)
        now = partition.checkpoint
        check_beginning(
            self.runtime.topic,
            number,
            now.offset,
            start.begin,
            accept=self.settings.accept_truncated_log,
        )
        if now.healing:
            logger.warning(
                "partition %d heals from offset %d to %d", number, now.offset + 1, now.target
            )
        return Prepared(partition, start.begin) if generation == self.generation else None

    async def _fetch(self, log: Log, window: Window, needs: Outcome, copies: Copies) -> History:
        """Read the log back for an event that needs it. Those that take long take turns, each
        tenant's among themselves first: one tenant may ask for many.
        """
        if not takes_long(window, needs):
            return await fetch_needed(log, window, needs, copies)
        tenant = self._tenants.setdefault(window.key.tenant, asyncio.Lock())
        async with tenant, self._restoring:
            return await fetch_needed(log, window, needs, copies)

    async def _start_of(self, number: int, generation: int, committed: int) -> Start:
        """Where the partition goes on; what is not of this log is dropped, and all of it is
        published once more.
        """
        runtime = self.runtime
        place = await stored_place(
            self.log,
            number,
            self.store.checkpoint(generation, number),
            committed=committed,
            recreated=number in runtime.recreated,
            name=self.name,
        )
        start = find_start(
            number,
            place,
            committed=committed,
            served=runtime.served.get(number, -1),
            accept=self.settings.accept_truncated_log,
        )
        if start.other:
            self._counts.log_replaced()
            committed, runtime.served[number] = 0, start.end - 1
            self.share.forget(number)
            await self.halts.forget(number)
        elif (limit := self.halts.after(number)) is not None:
            # Readers have seen no more of a halted partition, and nothing more is folded.
            start = start._replace(target=min(start.target, limit))
        runtime.commits.known[number] = committed
        self.publisher.announced_before[number] = committed
        known = self.control.state.halts.get(number)
        self.share.begin(number, max(committed, 0 if known is None else known.offset + 1))
        if start.checkpoint == Checkpoint():
            await self.store.drop_partition(generation, number)
        return start


def _now_ms() -> int:
    return int(time.time() * 1000)


def windows_at_most(rows: Sequence[Row], most: int) -> Iterator[Sequence[Row]]:
    """The rows in parts, each of at most so many conversations; one part of none where there are
    none.
    """
    begin, seen = 0, set[bytes | None]()
    for n, row in enumerate(rows):
        seen.add(row.key)
        if len(seen) > most:
            yield rows[begin:n]
            begin, seen = n, {row.key}
    yield rows[begin:] if begin else rows
