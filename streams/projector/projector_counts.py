"""What a projector shows of itself in metrics. Nearly all of it is known elsewhere, and read when
somebody asks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from projections.errors import RedisUnavailable
from projections.storage.protocol import WaitingWork
from streams.metrics.declared import (
    BATCH_EVENTS,
    BATCH_SECONDS,
    DUE,
    FENCED,
    FOLDED,
    HEALING,
    HEALINGS,
    LAG,
    LOGS_REPLACED,
    SECONDS_BEHIND,
)
from streams.metrics.metrics import Metrics
from streams.partition.effects import Counts
from streams.partition.partition import Partition
from streams.partition.runtime import PartitionRuntime

_Values = dict[tuple[str, ...], float]


class ProjectorCounts:
    """The counts of one projector."""

    def __init__(
        self, metrics: Metrics, runtime: PartitionRuntime[Partition], store: WaitingWork
    ) -> None:
        self._metrics = metrics
        self._runtime = runtime
        self._store = store
        self._counts: dict[int, Counts] = {}
        self._healing: set[int] = set()
        self._whole: dict[int, tuple[int, float]] = {}
        """Of each partition: when all of it was folded last, as far as was looked, and up to which
        offset.
        """
        metrics.read(FOLDED, self._folded)
        metrics.read(LAG, self._lag)
        metrics.read(SECONDS_BEHIND, self._seconds_behind)
        metrics.read(HEALING, self._heal)
        metrics.read(FENCED, lambda: {(): runtime.fenced})
        metrics.before(self._count_due)

    def of(self, number: int) -> Counts:
        """The counts of a partition's records, which go on however often it is prepared."""
        return self._counts.setdefault(number, Counts())

    def batch(self, rows: int, fold: float, write: float) -> None:
        """Count a batch; ``fold`` and ``write`` are seconds."""
        if rows:
            self._metrics.observe(BATCH_EVENTS, rows)
            self._metrics.observe(BATCH_SECONDS, fold, "fold")
            self._metrics.observe(BATCH_SECONDS, write, "write")

    def log_replaced(self) -> None:
        """A partition is folded anew: its log is another one."""
        self._metrics.add(LOGS_REPLACED)

    @contextmanager
    def heals(self, number: int) -> Iterator[None]:
        """A partition is brought back from snapshots."""
        self._metrics.add(HEALINGS)
        self._healing.add(number)
        try:
            yield
        finally:
            self._healing.discard(number)

    # -- parts
    # ------------------------------------------------------------------------------------------

    def _folded(self) -> _Values:
        return {
            (str(number), outcome): getattr(counts, outcome)
            for number, counts in self._counts.items()
            for outcome in Counts.__slots__
        }

    def _lag(self) -> _Values:
        runtime = self._runtime
        return {
            (str(number),): max(0, runtime.lag(partition))
            for number, partition in runtime.partitions.items()
        }

    def _seconds_behind(self) -> _Values:
        """What is not folded is younger than the last folded record, and than the moment when all
        was folded: that record may be of yesterday where the next one has just come.
        """
        runtime, now = self._runtime, time.time()
        found: _Values = {}
        for number, partition in runtime.partitions.items():
            checkpoint = partition.checkpoint
            if runtime.lag(partition) <= 0:
                self._whole[number] = (checkpoint.offset, now)
                found[str(number),] = 0.0
                continue
            since = [checkpoint.timestamp / 1000] if checkpoint.timestamp > 0 else []
            offset, whole = self._whole.get(number, (0, None))
            # A checkpoint that went back is behind from where it is now.
            if whole is not None and offset <= checkpoint.offset and not checkpoint.healing:
                since.append(whole)
            if since:
                found[str(number),] = max(0.0, now - max(since))
        return found

    def _heal(self) -> _Values:
        found: _Values = {
            (str(number),): partition.checkpoint.healing
            for number, partition in self._runtime.partitions.items()
        }
        return found | {(str(number),): 1 for number in self._healing}

    async def _count_due(self) -> None:
        """How many wait is known to Redis alone; while it is away, nobody knows."""
        due: _Values = {}
        try:
            for number, partition in list(self._runtime.partitions.items()):
                due[str(number),] = await self._store.due_count(partition.generation, number)
        except RedisUnavailable:
            due = {}
        self._metrics.set(DUE, due)
