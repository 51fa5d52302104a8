"""Verify: do the windows in the store say what the log says, byte for byte, while traffic runs?

A partition is folded in memory up to its checkpoint: from its latest snapshots and the log behind
them, or, deep, from the log's first event, trusting no snapshot. Then windows are read in small
groups, each atomically with the checkpoint of that moment, and the fold follows to just there
before it compares; so a live projector is never mistaken for a wrong window. What is kept beside
the windows (due set, timers, lists) is compared as a whole, and windows of conversations that the
log does not have are looked for.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from projections.errors import CorruptWindow, Healing
from projections.names import Key, Position, parse_key
from projections.policy.policy import Failures, Rules
from projections.storage.protocol import WindowStore
from projections.storage.records import Checkpoint, Index, Stored
from projections.storage.snapshots import stamp_of
from streams.control.state import Generation
from streams.log.log import Log
from streams.maintenance.compare import TOO_MANY, UNREADABLE, difference, misplaced, named
from streams.maintenance.repair import repair_windows
from streams.partition.partition import Partition
from streams.partition.step import astray, belongs, read_row
from streams.projector.effect_sink import NullSink
from streams.recovery.shadow_fold import ShadowFold
from streams.recovery.snapshot_topic import SnapshotTopic, find_marker

GROUP = 100
PATIENCE = 20.0
"""Seconds that a partition may be on its way to another worker, or behind what was seen of it,
before the verify gives up.
"""
SHOWN = 3
"""Conversations that an error names."""
Progress = Callable[[int, int], None]


class Difference(NamedTuple):
    """A conversation in which the store and the log disagree: at which position of it (None: the
    log does not have it), and in what.
    """

    key: Key
    position: Position | None
    what: str


@dataclass(slots=True)
class VerifyReport:
    """What a verify found: how many windows were compared, which of them differ (each name once),
    and how many events were folded for it.

    ``repaired`` are those that were repaired and found right afterwards. ``failures`` says, by
    conversation and callable of its policy, what the callable could not do here: the default
    template was used, and the window was not repaired. ``kept`` are those that were left as they
    are because the log has lost events of them.
    """

    verified: int = 0
    differing: list[str] = field(default_factory=list)
    events: int = 0
    differences: list[Difference] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    failures: Failures = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Verify:
    """One run over all partitions of the generation ``number``."""

    log: Log
    store: WindowStore
    number: int
    rules: Rules
    topic: SnapshotTopic | None
    deep: bool
    report: VerifyReport = field(default_factory=VerifyReport)

    async def partition(
        self, number: int, wanted: set[Key] | None, end: int, progress: Callable[[int], None]
    ) -> dict[Key, list[Difference]]:
        """What differs in a partition."""
        fold = ShadowFold(self.log, number, self.rules, wanted)
        if not self.deep and self.topic is not None:
            await fold.from_snapshots(self.carrier(number), self.topic)
        checkpoint = await self._patiently(
            fold, end, partial(self.store.checkpoint, self.number, number)
        )
        await fold.advance(_offset(checkpoint), progress)
        found: dict[Key, list[Difference]] = {}
        keys = sorted(fold.windows)
        for i in range(0, len(keys), GROUP):
            await self._group(fold, end, keys[i : i + GROUP], found)
        if checkpoint is not None:
            await self._beside(fold, end, found)
            await self._too_many(fold, end, found)
        self.report.events += fold.events
        return found

    def carrier(self, number: int) -> Partition:
        """What names the partition to those who restore its windows."""

        async def learn(tenant: str) -> None:
            del tenant  # whoever opened the control topic knows the tenants

        return Partition(
            number, self.number, self.store, self.log, self.rules, learn=learn, sink=NullSink()
        )

    async def _group(
        self, fold: ShadowFold, end: int, keys: Sequence[Key], found: dict[Key, list[Difference]]
    ) -> None:
        try:
            checkpoint, stored = await self._read(fold, end, keys)
        except CorruptWindow:
            if len(keys) > 1:
                for key in keys:
                    await self._group(fold, end, [key], found)
                return
            checkpoint, stored = None, [None]
            self._note(found, fold, keys[0], f"{UNREADABLE} (something else is under its key)")
        if checkpoint is not None:
            await fold.advance(checkpoint.offset)
            for key, parts in zip(keys, stored, strict=True):
                what = difference(parts, fold.windows[key])
                if what is not None:
                    self._note(found, fold, key, what)
        self.report.verified += len(keys)

    async def _beside(self, fold: ShadowFold, end: int, found: dict[Key, list[Difference]]) -> None:
        """Compare the due set, the timers and the lists. What differs is looked at again: a store
        first finds its lists and then reads them, and one that begins in between is not read.
        """
        wrong = await self._misplaced(fold, end)
        if wrong:
            again = await self._misplaced(fold, end)
            wrong = {key: again[key] for key in wrong if key in again}
        for key, places in wrong.items():
            for what in places:
                self._note(found, fold, key, what)

    async def _misplaced(self, fold: ShadowFold, end: int) -> dict[Key, list[str]]:
        """Where conversations are wrongly, or are missing, beside their windows."""
        checkpoint, index = await self._index(fold, end)
        await fold.advance(_offset(checkpoint))
        wrong = {key: misplaced(index, window) for key, window in fold.windows.items()}
        for key in set(named(index)) - fold.windows.keys():
            if fold.wanted is None or key in fold.wanted:
                wrong[key] = [
                    "a list, the due set or the timers name it, and the log has no such"
                    " conversation"
                ]
        return {key: places for key, places in wrong.items() if places}

    async def _too_many(
        self, fold: ShadowFold, end: int, found: dict[Key, list[Difference]]
    ) -> None:
        there = await self.store.conversations(self.number, fold.partition)
        extra = sorted(
            (there if fold.wanted is None else there & fold.wanted) - fold.windows.keys()
        )
        for i in range(0, len(extra), GROUP):
            group = extra[i : i + GROUP]
            checkpoint = await self._patiently(
                fold, end, partial(self.store.checkpoint, self.number, fold.partition)
            )
            await fold.advance(_offset(checkpoint))
            for key in group:
                if key not in fold.windows:
                    self._note(found, fold, key, TOO_MANY)
                    self.report.verified += 1

    def _note(
        self, found: dict[Key, list[Difference]], fold: ShadowFold, key: Key, what: str
    ) -> None:
        window = fold.windows.get(key)
        offset = -1 if window is None else window.meta.position
        at = Position(fold.partition, offset) if offset >= 0 else None
        found.setdefault(key, []).append(Difference(key, at, what))

    async def _read(
        self, fold: ShadowFold, end: int, keys: Sequence[Key]
    ) -> tuple[Checkpoint | None, list[Stored | None]]:
        stored: list[Stored | None] = []

        async def read() -> Checkpoint | None:
            nonlocal stored
            checkpoint, stored = await self.store.reader.read(
                self.number, fold.partition, list(keys)
            )
            return checkpoint

        return await self._patiently(fold, end, read), stored

    async def _index(self, fold: ShadowFold, end: int) -> tuple[Checkpoint | None, Index]:
        index = Index({}, {}, {})

        async def read() -> Checkpoint | None:
            nonlocal index
            checkpoint, index = await self.store.index(self.number, fold.partition)
            return checkpoint

        return await self._patiently(fold, end, read), index

    async def _patiently(
        self, fold: ShadowFold, end: int, read: Callable[[], Awaitable[Checkpoint | None]]
    ) -> Checkpoint | None:
        """What ``read`` answers, as soon as it is a base for a comparison; raises :class:`Healing`
        when it does not become one.

        While a worker dies and another one takes over, a partition may heal for a moment.
        """
        deadline = time.monotonic() + PATIENCE
        while True:
            checkpoint = await read()
            if checkpoint is None and end == 0:
                return None
            if (
                checkpoint is not None
                and not checkpoint.behind
                and not checkpoint.restoring
                and checkpoint.offset >= max(fold.offset, fold.least)
            ):
                return checkpoint
            if time.monotonic() > deadline:
                raise Healing(_why_no_base(fold.partition, checkpoint))
            await asyncio.sleep(0.1)

    async def repair(
        self, found: dict[int, dict[Key, list[Difference]]], ends: dict[int, int]
    ) -> None:
        """Repair what differs, and look again at just that."""
        for number, keys in found.items():
            if keys:
                kept = await repair_windows(
                    self.log,
                    self.store,
                    self.number,
                    self.rules,
                    number,
                    keys.keys(),
                    self.topic,
                    self.report.failures,
                )
                self.report.kept += map(str, sorted(kept))
                verified, events = self.report.verified, self.report.events
                self.deep = True
                still = await self.partition(number, set(keys), ends[number], lambda _: None)
                self.report.repaired += [str(key) for key in sorted(keys) if key not in still]
                self.report.verified, self.report.events = verified, events


async def verify(
    log: Log,
    store: WindowStore,
    generation: Generation,
    rules: Rules,
    *,
    sample: int | None = None,
    progress: Progress | None = None,
    snapshots: SnapshotTopic | None = None,
    deep: bool = False,
    repair: bool = False,
) -> VerifyReport:
    """Compare windows of a generation, and all that is kept beside them, with folds of the log.

    Args:
        sample: how many conversations to compare, chosen at random; None for all. Windows too many
            are looked for with all only.
        progress: called with offsets gone through and offsets in the log.
        snapshots: the topic to begin from; None: every partition is folded from its first event.
        deep: trust no snapshot, wherever there are some.
        repair: write what differs by folds from the log's first event, then compare it again.

    Raises:
        Healing: a partition was not brought back within 20 seconds; it could not be compared.
        Fenced: what differs could not be repaired, as others wrote all the time.
    """
    report = VerifyReport()
    rules = rules.watched(report.failures)
    run = _Verify(log, store, generation.number, rules, snapshots, deep, report)
    ends = await log.end_offsets()
    total = sum(ends.values())
    wanted = None if sample is None else await _choose(run, ends, sample)
    done = 0
    found: dict[int, dict[Key, list[Difference]]] = {}
    for number in range(log.partitions):
        found[number] = await run.partition(
            number, wanted, ends[number], partial(_tell_from, progress, done, total)
        )
        done += ends[number]
        _tell_from(progress, done, total, 0)
    for keys in found.values():
        for key in sorted(keys):
            run.report.differences += keys[key]
            run.report.differing.append(str(key))
    if repair:
        await run.repair(found, ends)
    return run.report


def _tell_from(progress: Progress | None, start: int, total: int, at: int) -> None:
    if progress is not None:
        progress(min(start + at, total), total)


async def _choose(run: _Verify, ends: dict[int, int], sample: int) -> set[Key]:
    """Conversations to compare, from all that the log has; where there are snapshots, their keys
    say which there are up to the marker.
    """
    keys: set[Key] = set()
    for number, end in ends.items():
        first = 0
        marker = None
        if run.topic is not None and not run.deep:
            marker = await find_marker(run.topic, run.log, number, stamp_of(run.number, run.rules))
        if marker is not None and run.topic is not None:
            begin, stop = await run.topic.bounds(number)
            async for row in run.topic.scan(number, begin, stop - 1):
                key = parse_key(row.key) if row.key is not None and row.value is not None else None
                if key is not None:
                    keys.add(key)
            first = marker[0].offset + 1
        async for raw in run.log.scan(number, first, end - 1):
            key = parse_key(raw.key) if raw.key is not None else None
            if (
                key is not None
                and key not in keys
                and astray(key, number, run.log.partitions) is None
                and belongs(read_row(run.log.seals, raw, key.source))
            ):
                keys.add(key)
    return set(random.sample(sorted(keys), min(sample, len(keys))))


def _why_no_base(partition: int, checkpoint: Checkpoint | None) -> str:
    """Why nothing can be compared with what stands in the store."""
    if checkpoint is None:
        return f"partition {partition} has no windows yet: is a worker running?"
    waiting = sorted({name for name, _ in checkpoint.rollbacks})
    if not checkpoint.restoring or not waiting:
        return f"partition {partition} is healing from the log: try again shortly"
    # A rollback, or a late summary. While it heals, perhaps one of long ago that is folded again.
    shown = ", ".join(waiting[:SHOWN]) + (" and others" if len(waiting) > SHOWN else "")
    how = "is healing from the log" if checkpoint.behind else "is not folded to one point"
    return (
        f"partition {partition} {how}: older events are still read for conversations of it"
        f" ({len(waiting)}: {shown}): try again shortly"
    )


def _offset(checkpoint: Checkpoint | None) -> int:
    return -1 if checkpoint is None else checkpoint.offset
