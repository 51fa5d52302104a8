"""Building: some partitions of a generation, folded silently from their checkpoints to where the
live generation is. In one process.

The store is written now and then only, so windows that change often are written once. What is
folded and not written is lost with the process, and folded again: it is bounded in records, bytes
and seconds.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from projections.storage.protocol import WindowStore
from projections.storage.records import Checkpoint
from streams.control.control_topic import Control
from streams.control.generations import known_generation
from streams.control.state import Generation
from streams.log.log import Log, Row
from streams.log.rollback_cache import RollbackCache
from streams.partition.log_identity import stored_place
from streams.partition.owned import Fenced
from streams.partition.partition import Partition
from streams.projector.effect_sink import NullSink
from streams.runtime.process_pool import cores
from streams.settings.settings import Settings

ATTEMPTS = 20
"""How often partitions are taken up again without any progress in between: another rebuild would
fence them every time.
"""
ROUNDS = 8
LITTLE = 2_000
"""Rounds at most, and records in one round from which on another is worth it: each folds what came
while the one before ran.
"""
WORTH_A_PROCESS = 50_000
"""Records a process must fold to be worth its start."""
LESS, MORE = 8, 2
"""So many times less of a partition may be unwritten after others wrote in between, and so many
times more after each write of its own.
"""
LEAST_EVENTS, LEAST_SECONDS = 50, 0.01
""":data:`Bounds` are not made smaller than that."""


class Stopped(Exception):
    """The work was asked to end; what was done is written."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may be folded and not written, by one process: records, bytes of them (Redis takes
    no command of 1 GiB), seconds, windows.

    A window takes 12 KB of memory with one message in it, and Redis serves nobody else while it
    takes all of them: 0.1 s for 5,000.
    """

    events: int = 400_000
    size: int = 256 << 20
    seconds: float = 10.0
    windows: int = 20_000

    def of(self, n: int) -> Bounds:
        """What is left for each of ``n`` that share them."""
        return Bounds(
            max(1, self.events // n),
            max(1, self.size // n),
            self.seconds,
            max(1, self.windows // n),
        )


@dataclass(slots=True)
class Unwritten:
    """What was folded of a partition and is not written, and how much that may be. An erasure
    writes beside a build, whose unwritten work is lost then.
    """

    bounds: Bounds
    divided_by: int = 1
    events: int = 0
    size: int = 0
    since: float = field(default_factory=time.monotonic)

    @property
    def most_events(self) -> int:
        """Records that may be folded in one step."""
        most = self.bounds.events
        return max(min(LEAST_EVENTS, most), most // self.divided_by)

    @property
    def disputed(self) -> bool:
        """Whether others wrote in between, and nothing would be lost if they had again."""
        return self.divided_by > 1 and not self.events

    def begin(self) -> None:
        """Nothing is unwritten."""
        self.events, self.size, self.since = 0, 0, time.monotonic()

    def add(self, rows: Sequence[Row]) -> None:
        """These were folded."""
        self.events += len(rows)
        self.size += sum([len(row.value or b"") for row in rows])

    def over(self, windows: int) -> bool:
        """Whether it is too much; ``windows`` are those that are not written."""
        if windows >= self.bounds.windows:
            return True
        return (
            self.events >= self.most_events
            or self.size >= self.bounds.size
            or time.monotonic() - self.since
            >= max(LEAST_SECONDS, self.bounds.seconds / self.divided_by)
        )

    def written(self) -> None:
        """It was written."""
        self.divided_by = max(1, self.divided_by // MORE)
        self.begin()

    def lost(self) -> None:
        """Others wrote in between."""
        self.divided_by = min(self.divided_by * LESS, self.bounds.events)
        self.begin()


async def announced(store: WindowStore, live: int, ends: dict[int, int]) -> dict[int, int]:
    """Where to stop: what the live generation has not folded has not been announced, and a rebuild
    publishes nothing. The projector goes on.
    """
    stops: dict[int, int] = {}
    for partition, end in ends.items():
        checkpoint = await store.checkpoint(live, partition)
        stops[partition] = (
            0 if checkpoint is None else min(end, max(checkpoint.offset, checkpoint.target) + 1)
        )
    return stops


async def left_to_fold(
    control: Control, log: Log, store: WindowStore, generation: int
) -> dict[int, int]:
    """For each partition how many records a build has before it now."""
    stops = await announced(store, control.state.live_generation.number, await log.end_offsets())
    found: dict[int, int] = {}
    for partition, stop in stops.items():
        checkpoint = await store.checkpoint(generation, partition)
        found[partition] = max(0, stop - 1 - (-1 if checkpoint is None else checkpoint.offset))
    return found


async def worthwhile_jobs(control: Control, log: Log, store: WindowStore, generation: int) -> int:
    """How many processes are worth to build a generation: one a processor, if each has enough to
    fold.
    """
    left = sum((await left_to_fold(control, log, store, generation)).values())
    return max(1, min(cores(), log.partitions, left // WORTH_A_PROCESS))


class Builder:
    """Builds some partitions of a generation. ``progress`` is called with the records of each
    batch; it may raise to end the work.
    """

    def __init__(
        self,
        settings: Settings,
        control: Control,
        log: Log,
        store: WindowStore,
        generation: Generation,
        numbers: Iterable[int],
        *,
        bounds: Bounds | None = None,
        progress: Callable[[int], None] = lambda _: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self.events = 0
        self._control = control
        self._generation = generation
        self._log = RollbackCache(log)
        self._store = store
        self._progress = progress
        self._stopping = stopping
        rules = control.state.rules(generation)
        learn = control.learner(rules)
        self._partitions = {
            number: Partition(
                number,
                generation.number,
                store,
                self._log,
                rules,
                learn=learn,
                sink=NullSink(),
                cached_windows=settings.cached_windows,
                fetch=self._log.fetch,
            )
            for number in numbers
        }
        each = (bounds or Bounds()).of(max(1, len(self._partitions)))
        self._unwritten = {number: Unwritten(each) for number in self._partitions}

    async def run(self) -> None:
        """Fold in rounds, until a round has little to do.

        Raises:
            Stopped: it was asked to end.
            Fenced: another process writes these windows.
            UnknownGeneration: the generation was dropped meanwhile.
            KafkaUnavailable, RedisUnavailable: as named; another builder goes on from what is
                written.
        """
        for _ in range(ROUNDS):
            before = self.events
            await self.round()
            if self.events - before < LITTLE:
                return

    async def round(self) -> None:
        """Fold up to where the live generation is now; again where it was when an erasure wrote
        beside it; raises like :meth:`run`.
        """
        ends = await announced(
            self._store, self._control.state.live_generation.number, await self._log.end_offsets()
        )
        left, reached = ATTEMPTS, -1
        while True:
            try:
                await self._fold(ends)
            except Fenced as error:
                known_generation(await self._control.sync(), self._generation.number)
                at = sum([partition.checkpoint.offset for partition in self._partitions.values()])
                left, reached = (ATTEMPTS if at > reached else left - 1), max(at, reached)
                if left == 0:
                    raise Fenced(
                        f"{error}: conversations are erased all the time, or another process"
                        " builds it, too: run the command again, it continues"
                    ) from None
            else:
                return

    async def _fold(self, ends: dict[int, int]) -> None:
        partitions = self._partitions
        for number, partition in partitions.items():
            await self._adopt(partition)
            self._unwritten[number].begin()
        ranges = {
            number: (partition.checkpoint.offset + 1, ends[number] - 1)
            for number, partition in partitions.items()
        }
        fenced: dict[int, Fenced] = {}

        async def unless_fenced(number: int, work: Awaitable[None]) -> None:
            try:
                await work
            except Fenced as error:
                self._unwritten[number].lost()
                fenced[number] = error

        async with aclosing(self._log.stream(ranges)) as batches:
            async for number, rows in batches:
                await unless_fenced(number, self._fold_rows(number, rows))
                if fenced or self._stopping():
                    break
        for number in partitions.keys() - fenced.keys():
            await unless_fenced(number, self._write(number))
        if fenced:
            raise next(iter(fenced.values()))
        if self._stopping():
            raise Stopped

    async def _fold_rows(self, number: int, rows: Sequence[Row]) -> None:
        partition, unwritten, at = self._partitions[number], self._unwritten[number], 0
        while at < len(rows):
            if unwritten.disputed:
                # Others wrote while the log was opened, or another partition was folded.
                await self._adopt(partition)
            some = rows[at : at + unwritten.most_events]
            at += len(some)
            await partition.fold(some)
            self.events += len(some)
            self._progress(len(some))
            unwritten.add(some)
            if unwritten.over(partition.unwritten):
                await self._write(number)

    async def _write(self, number: int) -> None:
        await self._partitions[number].write()
        self._unwritten[number].written()

    async def _adopt(self, partition: Partition) -> None:
        """Begin at the stored checkpoint, if it is of this log; else at the first event, with
        nothing in the store.
        """
        number, generation = partition.number, partition.generation
        checkpoint = (
            await stored_place(
                self._log, number, self._store.checkpoint(generation, number), name="rebuild"
            )
        ).checkpoint
        if checkpoint is None or checkpoint.offset < 0:
            # A drop that was cut off may have left windows of an earlier generation of this number,
            # and a healing windows of nobody knows which log.
            await self._store.drop_partition(generation, number)
            checkpoint = Checkpoint()
        # Nobody has read it: whichever server holds it, its windows are those of its checkpoint.
        partition.adopt(replace(checkpoint, unverified=False))
