"""One partition folded in memory, for some or all of its conversations: what verify compares with,
and what mending writes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from contextlib import aclosing

from projections.events.types import AnyEvent
from projections.fold.apply import Status, apply
from projections.fold.outcomes import Outcome
from projections.names import Key, parse_key
from projections.policy.policy import Rules
from projections.window.window import Window
from streams.log.log import Log, Row
from streams.log.rollback_cache import KEPT_BYTES, RollbackCache
from streams.partition.partition import Partition
from streams.partition.step import (
    FoldFailure,
    InvalidRecord,
    StepResult,
    astray,
    belongs,
    read_row,
    spoiled_by,
    step,
)
from streams.recovery.healing import restored_at_marker
from streams.recovery.snapshot_topic import SnapshotTopic

FAR = 2_000
"""Records from which on a range is worth a consumer of its own."""


class ShadowFold:
    """Windows as of :attr:`offset`; all of them are in memory. ``events`` counts what was
    folded.
    """

    def __init__(
        self,
        log: Log,
        partition: int,
        rules: Rules,
        wanted: Set[Key] | None,
        *,
        ends: Mapping[Key, int] | None = None,
        heard: Callable[[Key, AnyEvent, Outcome], None] | None = None,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        """Args: ``wanted``: the conversations that matter, None for all; ``ends``: the offset up to
        which each of them does; ``heard`` is called with what became of each event, with those of a
        conversation in which the fold fails more than once; ``kept_bytes`` of the log are kept for
        rollbacks.
        """
        self.log = RollbackCache(log, kept_bytes)
        self.partition = partition
        self.rules = rules
        self.wanted = wanted
        self._ends = ends or {}
        self._heard = heard
        self.windows: dict[Key, Window] = {}
        self.offset = -1
        self.least = -1
        """Some windows may be as of here: at an offset before it nothing can be compared."""
        self.events = 0
        self._spoiled: set[Key] = set()
        self._known: dict[Key, dict[int, str]] = {}

    async def from_snapshots(self, partition: Partition, topic: SnapshotTopic) -> bool:
        """Begin at the latest marker, where there is one; raises like
        :func:`streams.recovery.healing.heal_from_snapshots`.
        """
        found = await restored_at_marker(partition, self.log, topic, self.wanted)
        if found is not None:
            self.offset, reach, self.windows = found
            self.least = max(self.offset, reach)
        return found is not None

    async def advance(self, offset: int, progress: Callable[[int], None] | None = None) -> None:
        """Fold on to ``offset``, included; raises ``KafkaUnavailable``, ``KeyUnusable``."""
        if offset <= self.offset:
            return
        async for rows in self._rows(self.offset + 1, offset, progress):
            for row in rows:
                if not self._at_once(row):
                    key = self._key(row)
                    if key is not None and not await self._take(self.windows, key, row):
                        self._spoiled.add(key)
        self.offset = offset
        while self._spoiled:
            await self._again()

    async def _again(self) -> None:
        """Fold anew, in one pass, the conversations in which the fold failed: now it is known where
        it does.
        """
        again, windows, failed = self._spoiled, dict[Key, Window](), set[Key]()
        async for rows in self._rows(0, self.offset, None):
            for row in rows:
                key = self._key(row)
                if (
                    key in again
                    and key is not None
                    and key not in failed
                    and not await self._take(windows, key, row)
                ):
                    failed.add(key)
        self.windows.update({key: window for key, window in windows.items() if key not in failed})
        self._spoiled = failed

    def _at_once(self, row: Row) -> bool:
        """Take a record as nearly all are, with nothing to wait for; False where :meth:`_take` has
        to.
        """
        key = self._key(row)
        if key is None or key in self._spoiled:
            return True
        found = read_row(self.log.seals, row, key.source)
        if isinstance(found, InvalidRecord):
            return not found.quarantines
        window = self.windows.get(key)
        if window is None:
            window = self.windows[key] = Window(key, self.partition, self.rules)
        if (
            window.meta.quarantine is not None
            or row.offset <= window.meta.position
            or key in self._known
        ):
            return False
        try:
            outcome = apply(window, row.offset, found)
        except BaseException as error:  # noqa: BLE001 (what is no event's doing is raised again)
            spoiled = spoiled_by(error, row.offset)
            self._known.setdefault(key, {})[spoiled.offset] = spoiled.cause
            self._spoiled.add(key)
            return True
        if outcome.status is Status.NEEDS_HISTORY:
            return False
        if self._heard is not None:
            self._heard(key, found, outcome)
        self.events += 1
        return True

    async def _take(self, windows: dict[Key, Window], key: Key, row: Row) -> bool:
        """Take a record into its window; False when the window is spoiled by it."""
        found = read_row(self.log.seals, row, key.source)
        if not belongs(found):
            return True
        window = windows.get(key)
        if window is None:
            window = windows[key] = Window(key, self.partition, self.rules)
        cause = self._known.get(key, {}).get(row.offset)
        if (
            cause is not None
            and window.meta.quarantine is None
            and row.offset > window.meta.position
        ):
            window.quarantine(row.offset, cause)
            return True
        result = StepResult()
        try:
            windows[key] = await step(self.log, window, row.offset, found, result, self.log.fetch)
        except FoldFailure as spoiled:
            self._known.setdefault(key, {})[spoiled.offset] = spoiled.cause
            return False
        if self._heard is not None:
            for event, outcome in result.outcomes:
                self._heard(key, event, outcome)
        self.events += 1
        return True

    def _key(self, row: Row) -> Key | None:
        key = parse_key(row.key) if row.key is not None else None
        if key is None or (self.wanted is not None and key not in self.wanted):
            return None
        if key not in self.windows and astray(key, self.partition, self.log.partitions):
            return None
        return key if row.offset <= self._ends.get(key, row.offset) else None

    async def _rows(
        self, first: int, last: int, progress: Callable[[int], None] | None
    ) -> AsyncIterator[Sequence[Row]]:
        if last - first < FAR:
            async for raw in self.log.scan(self.partition, first, last):
                yield (raw,)
            return
        async with aclosing(self.log.stream({self.partition: (first, last)})) as batches:
            async for _, rows in batches:
                yield rows
                if progress is not None and rows:
                    progress(rows[-1].offset)
