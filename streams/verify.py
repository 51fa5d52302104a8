"""Verify: fold conversations from the log and compare them, byte for byte, with the windows in the store, while traffic runs.

For each partition the log is folded up to its checkpoint; then windows are read in small groups, each group atomically with the checkpoint
of that moment, and the fold follows to just there before it compares. So a live projector is never mistaken for a wrong window.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

from projections.errors import CorruptWindow, Healing
from projections.fold import Status, apply
from projections.names import Key, parse_key
from projections.persistence import Checkpoint, Stored, WindowStore
from projections.policy import Rules
from projections.window import Window
from streams.control import Generation
from streams.history import event_of, fetch_needed
from streams.log import Log, Row

GROUP = 100
FAR = 2_000
"""Records from which on a range is worth a consumer of its own."""
Progress = Callable[[int, int], None]


@dataclass(slots=True)
class VerifyReport:
    """What a verify found: how many windows were compared, which of them differ, and how many events were folded for it."""

    verified: int = 0
    differing: list[str] = field(default_factory=list)
    events: int = 0


class _Fold:
    """One partition folded from zero in memory, for a set of conversations (None: all)."""

    def __init__(self, log: Log, partition: int, rules: Rules, wanted: set[Key] | None) -> None:
        self.log = log
        self.partition = partition
        self.rules = rules
        self.wanted = wanted
        self.windows: dict[Key, Window] = {}
        self.offset = -1
        self.events = 0

    async def advance(self, offset: int, progress: Callable[[int], None]) -> None:
        """Fold on to ``offset``, included."""
        if offset <= self.offset:
            return
        if offset - self.offset > FAR:
            async with aclosing(self.log.stream({self.partition: (self.offset + 1, offset)})) as batches:
                async for _, rows in batches:
                    for row in rows:
                        await self._fold(row)
                    progress(rows[-1].offset if rows else self.offset)
        else:
            async for raw in self.log.scan(self.partition, self.offset + 1, offset):
                await self._fold(raw)
        self.offset = offset

    async def _fold(self, raw: Row) -> None:
        key = parse_key(raw.key) if raw.key is not None else None
        if key is None or (self.wanted is not None and key not in self.wanted):
            return
        event = event_of(raw, key, self.log.seals)
        if event is None:
            return
        window = self.windows.get(key)
        if window is None:
            window = self.windows[key] = Window(key, self.partition, self.rules)
        outcome = apply(window, raw.offset, event)
        if outcome.status is Status.NEEDS_HISTORY:
            apply(window, raw.offset, event, await fetch_needed(self.log, window, outcome))
        self.events += 1


async def verify(
    log: Log, store: WindowStore, generation: Generation, rules: Rules, *, sample: int | None = None, progress: Progress | None = None
) -> VerifyReport:
    """Compare windows of a generation with folds of the log from its first event.

    Args:
        sample: how many conversations to compare, chosen at random; None for all.
        progress: called with offsets folded and offsets in the log.

    Raises:
        Healing: a partition has not been brought back yet; nothing can be said of it.
    """
    ends = await log.ends()
    total = sum(ends.values())
    wanted = None if sample is None else await _choose(log, ends, sample)
    report = VerifyReport()
    done = 0
    for partition in range(log.partitions):
        fold = _Fold(log, partition, rules, wanted)
        await _compare(fold, store, generation.number, ends[partition], report, partial(_tell_from, progress, done, total))
        done += ends[partition]
        _tell(progress, done, total)
    return report


def _tell_from(progress: Progress | None, start: int, total: int, at: int) -> None:
    _tell(progress, start + at, total)


def _tell(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None:
        progress(min(done, total), total)


async def _choose(log: Log, ends: dict[int, int], sample: int) -> set[Key]:
    keys: set[Key] = set()
    for partition, end in ends.items():
        async for raw in log.scan(partition, 0, end - 1):
            key = parse_key(raw.key) if raw.key is not None else None
            if key is not None and key not in keys and event_of(raw, key, log.seals) is not None:
                keys.add(key)
    return set(random.sample(sorted(keys), min(sample, len(keys))))


async def _compare(
    fold: _Fold, store: WindowStore, generation: int, end: int, report: VerifyReport, progress: Callable[[int], None]
) -> None:
    checkpoint = await store.checkpoint(generation, fold.partition)
    await fold.advance(_reached(checkpoint, fold, end), progress)
    keys = sorted(fold.windows)
    for i in range(0, len(keys), GROUP):
        group = keys[i : i + GROUP]
        checkpoint, stored = await store.read(generation, fold.partition, group)
        await fold.advance(_reached(checkpoint, fold, end), progress)
        for key, parts in zip(group, stored, strict=True):
            report.verified += 1
            if not _same(parts, fold.windows[key]):
                report.differing.append(str(key))
    report.events += fold.events


def _reached(checkpoint: Checkpoint | None, fold: _Fold, end: int) -> int:
    """The offset the store stands at; raises :class:`Healing` where that is no base for a comparison."""
    if checkpoint is None:
        if end == 0:
            return -1
        raise Healing(f"partition {fold.partition} has no windows yet: is a worker running?")
    if checkpoint.behind or checkpoint.offset < fold.offset:
        raise Healing(f"partition {fold.partition} is being brought back from the log: try again shortly")
    return checkpoint.offset


def _same(parts: Stored | None, folded: Window) -> bool:
    if parts is None:
        return False
    try:
        return parts.load(folded.key, folded.partition, folded.rules).image() == folded.image()
    except CorruptWindow:
        return False
