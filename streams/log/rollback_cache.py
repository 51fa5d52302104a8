"""What whoever folds a log from its beginning keeps in memory for rollbacks beyond the window: the
records that went by last, and the folds of conversations that were rolled back. One bound holds
both.

Such a rollback needs all of its conversation's events before it, and their fold as it stood at its
target. Live that is rare. A rebuild meets every rollback there ever was: without a memory it would
read and fold the longest conversations again for each, at a round trip to Kafka for every scattered
read.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from projections.events.validation import Record
from projections.fold.outcomes import History, Outcome
from projections.fold.replay import COPIES_BYTES, Logged, ReplayCheckpoints
from projections.names import Key, Position
from projections.window.window import Window
from streams.encryption.payload_cipher import PayloadCipher
from streams.log.event_reads import KEPT_BYTES as KEPT_EVENTS
from streams.log.event_reads import EventReads
from streams.log.history import ROW_BYTES, events_of, offsets_backwards
from streams.log.log import Log, Raw, Row
from streams.log.parted_fold import PartedFold
from streams.log.rollback_history import NO_COPIES, Copies, NoCopies, fetch_needed

KEPT_BYTES = 128 << 20
"""Bytes kept at most: records and folds together, folds half of it."""
TEXTS, TEXT_BYTES = 4, 8 << 20
"""Conversations of which texts are kept that were made whole again, and bytes of each."""
_offset = attrgetter("offset")


@dataclass(slots=True)
class _Known:
    """A conversation's fold over its events from the first up to the offset ``upto``."""

    fold: ReplayCheckpoints
    reads: EventReads
    upto: int = -1

    @property
    def size(self) -> int:
        return self.fold.texts.size + self.fold.size

    def extend(self, events: Sequence[Logged]) -> None:
        """Fold on these events, but for those that were folded before one needed others."""
        self.fold.extend([one for one in events if one[0] > self.fold.reached])

    def forget_events(self) -> int:
        """Forget events, which are read again when they are needed; returns how many bytes."""
        before = self.size
        self.fold.texts.forget(0)
        return before - self.size


class _LastTexts(NoCopies):
    """Keeps what one conversation's last summary made whole again."""

    def __init__(
        self, folds: OrderedDict[tuple[Key, int], PartedFold], place: tuple[Key, int]
    ) -> None:
        self._folds, self._place = folds, place

    def take_fold(self) -> PartedFold | None:
        return self._folds.pop(self._place, None)

    def keep_fold(self, fold: PartedFold) -> None:
        fold.shrink(TEXT_BYTES)
        self._folds[self._place] = fold
        if len(self._folds) > TEXTS:
            self._folds.popitem(last=False)


class RollbackCache:
    """A :class:`streams.log.log.Log` in front of another one, and :meth:`fetch`, which answers what
    rollbacks need. For one reader, in one event loop; records never change.
    """

    def __init__(self, log: Log, kept_bytes: int = KEPT_BYTES) -> None:
        self._log = log
        self._most = kept_bytes
        self._streams: dict[int, deque[tuple[Sequence[Row], int]]] = {}
        """Of each partition, the batches that went by, without a gap between them, and their sizes.
        """
        self._order: deque[int] = deque()
        """Whose batch came when."""
        self._streamed = 0
        self._folds: OrderedDict[tuple[Key, int], _Known] = OrderedDict()
        """By conversation and rules, the ones used last at the end."""
        self._folded = 0
        self._texts: OrderedDict[tuple[Key, int], PartedFold] = OrderedDict()
        """What was made whole again last, by conversation and rules: late summaries follow one
        another.
        """

    # -- the log

    @property
    def partitions(self) -> int:
        return self._log.partitions

    @property
    def seals(self) -> PayloadCipher:
        return self._log.seals

    @property
    def accepts_lost_beginning(self) -> bool:
        return self._log.accepts_lost_beginning

    async def append(self, records: Sequence[Record]) -> list[Position]:
        return await self._log.append(records)

    async def beginning_offsets(self) -> dict[int, int]:
        return await self._log.beginning_offsets()

    async def end_offsets(self) -> dict[int, int]:
        return await self._log.end_offsets()

    async def last_records(self) -> dict[int, int]:
        return await self._log.last_records()

    async def stream(
        self, ranges: Mapping[int, tuple[int, int]]
    ) -> AsyncGenerator[tuple[int, Sequence[Row]], None]:
        """The records of several partitions, as the log behind streams them; what went by lately is
        kept.
        """
        for partition in ranges:
            # Where the stream begins anew there may be a gap.
            self._streamed -= sum(size for _, size in self._streams.pop(partition, ()))
        async with aclosing(self._log.stream(ranges)) as batches:
            async for number, rows in batches:
                if rows:
                    self._went_by(number, rows)
                yield number, rows

    async def read(self, positions: Iterable[Position]) -> dict[Position, Raw]:
        return (await self.read_within(list(dict.fromkeys(positions)), sys.maxsize))[0]

    async def read_within(
        self, positions: Sequence[Position], most_bytes: int
    ) -> tuple[dict[Position, Raw], int]:
        found: dict[Position, Raw] = {}
        missing: list[Position] = []
        size, places = 0, {position: i for i, position in enumerate(positions)}
        count = len(positions)
        for position, i in places.items():
            raw = self._known(position)
            if raw is None:
                missing.append(position)
                continue
            size += len(raw.value or b"")
            if size > most_bytes and i:
                count = i
                break
            found[position] = raw
        if missing:
            rows, read = await self._log.read_within(missing, max(1, most_bytes - size))
            found.update(rows)
            if read < len(missing):
                count = places[missing[read]]
        found = {position: raw for position, raw in found.items() if places[position] < count}
        if found:
            await self._log.seals.ready(found.values())
        return found, count

    async def scan(self, partition: int, first: int, last: int) -> AsyncIterator[Raw]:
        batches = self._streams.get(partition)
        if not batches or not (
            batches[0][0][0].offset <= first and last <= batches[-1][0][-1].offset
        ):
            async for raw in self._log.scan(partition, first, last):
                yield raw
            return
        for rows, _ in list(batches):
            if rows[-1].offset < first or rows[0].offset > last:
                continue
            part = rows[
                bisect_left(rows, first, key=_offset) : bisect_left(rows, last + 1, key=_offset)
            ]
            await self._log.seals.ready(part)
            for row in part:
                yield _raw(partition, row)

    def _known(self, position: Position) -> Raw | None:
        batches = self._streams.get(position.partition)
        if not batches or position.offset < batches[0][0][0].offset:
            return None
        i = bisect_left(batches, position.offset, key=_last)
        rows = batches[i][0] if i < len(batches) else ()
        at = bisect_left(rows, position.offset, key=_offset)
        return (
            _raw(position.partition, rows[at])
            if at < len(rows) and rows[at].offset == position.offset
            else None
        )

    def _went_by(self, number: int, rows: Sequence[Row]) -> None:
        size = sum([len(row.value or b"") for row in rows]) + ROW_BYTES * len(rows)
        self._streams.setdefault(number, deque()).append((rows, size))
        self._order.append(number)
        self._streamed += size
        self._shrink()

    # -- rollbacks

    async def fetch(
        self, log: Log, window: Window, outcome: Outcome, copies: Copies = NO_COPIES
    ) -> History:
        """What an event needs of the log that the fold answered ``NEEDS_HISTORY`` to, as
        :func:`streams.log.rollback_history.fetch_needed` answers it; raises ``KafkaUnavailable``.

        Args: ``copies`` of the window are of no use here: what came is known.
        """
        place = (window.key, id(window.rules))
        if outcome.target is None:
            return await fetch_needed(log, window, outcome, _LastTexts(self._texts, place))
        known = self._folds.pop(place, None)
        self._folded -= 0 if known is None else known.size
        if known is None or known.upto > window.meta.position:
            # Where the fold went back to its checkpoint, what came later is not before this event.
            known = self._begun(log, window)
        await self._read_on(log, window, known)
        history = await known.reads.done(
            partial(known.fold.history, window, outcome.target), in_thread=False
        )
        self._folds[place] = known
        self._folded += known.size
        self._shrink()
        return history

    def _begun(self, log: Log, window: Window) -> _Known:
        key, partition = window.key, window.partition
        reads = EventReads(log, key, partition, min(KEPT_EVENTS, self._most // 4))
        size = min(COPIES_BYTES, self._most // 8)
        return _Known(
            ReplayCheckpoints(key, partition, window.rules, size, texts=reads.texts), reads
        )

    async def _read_on(self, log: Log, window: Window, known: _Known) -> None:
        """Fold on the events after ``known.upto`` and before the one at hand."""
        found: set[int] = set()
        async for some in offsets_backwards(log, window, above=known.upto):
            found.update(some)
        offsets = sorted(found)
        while offsets:
            piece = await known.reads.rows(offsets)
            offsets = offsets[len(piece.asked) :]
            events = events_of(piece.rows, window.key, log.seals)
            await known.reads.done(partial(known.extend, events), in_thread=False)
            known.fold.texts.weigh(piece.asked, piece.size)
        known.upto = window.meta.position

    def _shrink(self) -> None:
        """Forget the events, and then the folds, that were used longest ago while they take more
        than half, then the records that went by first; the batch at hand stays.
        """
        for known in self._folds.values():
            if self._folded <= self._most // 2:
                break
            self._folded -= known.forget_events()
        while self._folded > self._most // 2:
            self._folded -= self._folds.popitem(last=False)[1].size
        while self._streamed + self._folded > self._most and len(self._order) > 1:
            batches = self._streams.get(self._order.popleft())
            if batches:
                self._streamed -= batches.popleft()[1]


def _last(batch: tuple[Sequence[Row], int]) -> int:
    return batch[0][-1].offset


def _raw(partition: int, row: Row) -> Raw:
    return Raw(Position(partition, row.offset), row.key, row.value, row.timestamp)
