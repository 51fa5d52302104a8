"""One partition's windows of one generation: decode a batch, fold it, publish its effects, write
it with its checkpoint.

The same object serves the live projector and a rebuild; what differs is the sink of its effects. A
batch goes through these steps:

1. decode: a record that is nobody's event becomes a dead letter and touches no window;
2. load the windows the batch needs that are not cached;
3. fold, in log order; a rollback beyond its window reads the log, beside the flow where somebody
   asks for that (``streams.partition.restores``); what a window has already is passed over; what
   cannot be decoded or fails quarantines its conversation (``streams.partition.step``), and no
   other;
4. publish: summaries accepted and voided, dead letters and so on go out *before* the checkpoint
   moves: a crash repeats them. Whoever is not the owner any more is fenced before that;
5. apply: windows, checkpoint and due set in one atomic call, fenced by the revision.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from projections.events.types import AnyEvent, ErasedEvent
from projections.fold.apply import Outcome, Status, apply
from projections.fold.extraction_due import extraction_due
from projections.names import Key, Position
from projections.policy.policy import Rules
from projections.storage.protocol import WindowStore
from projections.storage.records import NOTHING, Checkpoint, DueChange, Verdict
from projections.storage.window_copies import LARGE_BYTES
from projections.window.window import Window
from streams.encryption.payload_cipher import MARK
from streams.log.log import Log, Row
from streams.log.rollback_history import Fetch, fetch_needed, takes_long
from streams.partition.effects import Counts, DeadLetter, Effects, EffectSink
from streams.partition.failure_share import Excess, Failing, FailureShare
from streams.partition.owned import Fenced
from streams.partition.restores import Restores
from streams.partition.step import (
    POISON,
    WAITING,
    FoldFailure,
    InvalidRecord,
    Read,
    StepResult,
    belongs,
    read_row,
    records_of,
    refold,
    spoiled_by,
    step_aside,
    why_nobodys,
    with_history,
)
from streams.partition.windows import ANNOUNCED, TAKEN_OUT, PartitionWindows, Slot, SlotCopies
from streams.runtime.log_fields import about
from streams.runtime.time_slices import Slice, TimeSlices
from streams.runtime.tracing import Traced, trace_of

logger = logging.getLogger(__name__)

LOOK_EVERY = 16
"""Records between two looks at whether it is others' turn."""
_APPLIED = Status.APPLIED


class Partition(PartitionWindows):
    """Folds batches into the windows of one partition under one generation."""

    def __init__(
        self,
        number: int,
        generation: int,
        store: WindowStore,
        log: Log,
        rules: Rules,
        *,
        learn: Callable[[str], Awaitable[None]],
        sink: EffectSink,
        cached_windows: int = 4096,
        share: FailureShare | None = None,
        fetch: Fetch = fetch_needed,
        restored: Callable[[], None] | None = None,
        slices: TimeSlices | None = None,
        counts: Counts | None = None,
    ) -> None:
        """Args:
        learn: awaited before a tenant's first event is folded, so that ``rules`` knows its policy.
        share: counts failing folds; None: nobody does.
        fetch: reads the log back for an event that needs it.
        restored: rollbacks beyond their windows are read beside the flow, and this is called when
        :meth:`process` can go on with one, be it without records; None: the flow waits for them.
        slices: shares the event loop with other partitions; None: with none.
        counts: goes on with these.
        """
        slices = TimeSlices() if slices is None else slices
        super().__init__(number, generation, store, log, rules, learn, cached_windows, slices)
        self.counts = Counts() if counts is None else counts
        self._sink = sink
        self._fetch = fetch
        self._share = share
        self.excess: Excess | None = None
        """Set once the fold failed too often: whoever runs the partition halts it."""
        self.erased: set[Key] = set()
        """Conversations erased since whoever takes their snapshots away emptied it."""
        self.traced: list[Traced] | None = None
        """What was folded of traces, for whoever sets it; None: nobody does."""
        self._batch: Sequence[Row] = ()
        self._top: Row | None = None
        """The last record that was taken, folded or not."""
        self._restores = Restores(log, number, restored)
        self._closed = False

    def adopt(self, checkpoint: Checkpoint) -> None:
        super().adopt(checkpoint)
        self._top = None
        self._restores.clear()
        self._closed = False

    def close(self) -> None:
        self._closed = self._closed or self.restoring
        self._restores.clear()

    @property
    def restoring(self) -> bool:
        """Whether conversations are being restored."""
        return bool(self._restores)

    async def process(self, rows: Sequence[Row]) -> list[Window]:
        """Fold a batch, in order, and write it; returns the windows that became due by it.

        Records at or before the checkpoint are passed over.

        Raises:
            Fenced: nothing was written.
            RedisUnavailable, KafkaUnavailable: unknown whether it was; adopt the stored checkpoint
                and go on from there.
        """
        await self.fold(rows)
        return await self.write()

    async def fold(self, rows: Sequence[Row]) -> None:
        """Fold a batch and publish its effects; the store gets it with the next :meth:`write`.
        Raises like :meth:`process`.
        """
        rows = await self._take(rows)
        if not rows:
            return
        effects = Effects()
        self._settled = False
        self._batch = rows
        with self._slices.begin() as slice_:
            await self._fold_rows(rows, effects, slice_)
        self._check_open()
        if self._share is not None:
            failing = {one.offset for one in effects.failing}
            aside = {letter.position.offset for letter in effects.dead} - failing
            offsets = [row.offset for row in rows if row.offset not in aside]
            last = rows[-1].offset  # which may be nobody's: it is folded all the same
            self.excess = self._share.count(self.number, offsets, effects.failing, last)
        if effects:
            self.check_loaded(await self.stored_checkpoint())
            await self._sink.publish(self.number, effects, self._restores.raws(rows))
        self._last, self._batch = self._top, ()

    def _check_open(self) -> None:
        """Raises :class:`Fenced` if it was closed while something waited: the rest lacks that."""
        if self._closed:
            raise Fenced(f"{self.label} is not folded here any more")

    async def _fold_rows(self, rows: Sequence[Row], effects: Effects, slice_: Slice) -> None:
        seals, slots, counts, touched = self.log.seals, self._slots, self.counts, self._touched
        traced, pending = self.traced, self._restores.pending
        prepared: dict[int, Read] | None = None
        for n, row in enumerate(rows):
            if not n % LOOK_EVERY and slice_.over:
                await slice_.rest()
            key, offset = row.key, row.offset
            slot = slots.get(key) if key is not None else None
            plain = slot is not None and row.value is not None and MARK not in row.value
            if not plain and prepared is None:
                slice_.give_up()
                prepared, left = await self._prepare(rows[n:], self._restores.room)
                self._restores.put_off(left)
                slot = slots.get(key) if key is not None else None
            if pending and key in pending:
                self._restores.wait(key, row)
                continue
            event = prepared.pop(offset, None) if prepared else None
            event = event or read_row(None if plain else seals, row, slot.source if slot else None)
            if (
                key is None
                or slot is None
                or (type(event) is InvalidRecord and not event.quarantines)
            ):
                counts.dead += 1
                cause = why_nobodys(event, row, self.number, self.log.partitions)
                effects.dead.append(DeadLetter(Position(self.number, offset), key, cause))
                continue
            window = slot.window
            if offset <= window.meta.position:
                counts.passed += 1
                continue
            touched[key] = slot
            if row.timestamp > slot.at_ms:
                slot.at_ms = row.timestamp
            slot.read += len(row.value or b"")
            if window.meta.quarantine is not None or isinstance(event, InvalidRecord):
                slice_.give_up()
                await self._aside(slot, offset, event, effects)
                continue
            try:
                outcome = apply(window, offset, event)
            except BaseException as error:  # noqa: BLE001 (whatever it is, it must not stop the partition; what must is raised again)
                slice_.give_up()
                await self._quarantine(slot, spoiled_by(error, offset), effects)
                continue
            if (
                outcome.status is _APPLIED
                and outcome.loop is None
                and not outcome.accepted
                and type(event) not in ANNOUNCED
                and traced is None
            ):
                counts.applied += 1
            else:
                slice_.give_up()
                await self._fold_on(slot, offset, event, outcome, effects)
                window = slot.window
            due = window.meta.count >= slot.next_copy or slot.read >= LARGE_BYTES
            if due or window.cut is not None:
                self._folded(slot, due)

    def _folded(self, slot: Slot, due: bool) -> None:
        """Report a cut, and take the copies that are due."""
        window = slot.window
        if due:
            slot.take_copy()
        if (cut := window.pop_cut()) is not None:
            self._sink.report(self.number, window.key, cut)

    async def _take(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The batch without what was taken before, behind what does not wait any more."""
        top = self._top
        done = self.checkpoint.offset if top is None else max(top.offset, self.checkpoint.offset)
        if rows and rows[0].offset <= done:
            rows = [row for row in rows if row.offset > done]
        if rows:
            self._top = rows[-1]
        return await self._restores.batch(rows, top)

    async def _aside(
        self, slot: Slot, offset: int, event: AnyEvent | InvalidRecord, effects: Effects
    ) -> None:
        """Take a record to a window that is quarantined, or is to be."""
        before, result = slot.window, StepResult()
        after = await step_aside(self.log, before, offset, event, result)
        if after is not before:
            slot.replace(after)
        for done, outcome in result.outcomes:
            effects.by[outcome.offset] = offset
            self._noted(slot.window, done, outcome, effects)
        if not result.outcomes and not result.letters:
            self.counts.passed += 1
        for letter in result.letters:
            effects.by[letter.offset] = offset
            self._dead(slot.window.key, letter.offset, letter.cause, letter.kind, effects)

    async def _fold_on(
        self, slot: Slot, offset: int, event: AnyEvent, outcome: Outcome, effects: Effects
    ) -> None:
        """What is not simply applied: a rollback that needs the log, a repeat, a rejected event; a
        summary, an erasure.
        """
        if outcome.status is Status.NEEDS_HISTORY:
            fetch, read = self._fetch, self._restores.read(offset)
            copies = SlotCopies(slot, partial(self.store.copies, self.generation, self.number))
            beyond, long = outcome.target is not None, takes_long(slot.window, outcome)
            history = partial(fetch, self.log, slot.window, outcome, copies)
            if long and read is None and self._restores.begin(offset, slot.window, history):
                return
            how = fetch if read is None else lambda *_: read
            try:
                outcome = await with_history(
                    self.log, slot.window, offset, event, outcome, how, copies
                )
            except FoldFailure as spoiled:
                await self._quarantine(slot, spoiled, effects)
                return
            if beyond:
                slot.take_copy(back=True)
        if type(event) in TAKEN_OUT:
            slot.end_copies()
        self._noted(slot.window, event, outcome, effects)

    async def _quarantine(self, slot: Slot, spoiled: FoldFailure, effects: Effects) -> None:
        """Bring a window back to what it was before the event on which the fold failed, and
        quarantine it there.
        """
        key, offset = slot.window.key, spoiled.offset
        checkpoint, (stored,) = await self.store.reader.read(self.generation, self.number, [key])
        self.check_loaded(checkpoint)
        base, mark = (
            (Window(key, self.number, self.rules), NOTHING)
            if stored is None
            else stored.open(key, self.number, self.rules)
        )
        if self._last is None:
            name, seals = str(key).encode(), self.log.seals
            known = [row for row in self._batch if row.key == name and row.offset < offset]
            rows = [
                (row.offset, found)
                for row in known
                if belongs(found := read_row(seals, row, key.source))
            ]
        else:
            # Batches before this one are not written either, and not kept.
            rows = await records_of(
                self.log, key, self.number, self.checkpoint.offset + 1, offset - 1
            )
        slot.mark = mark
        slot.replace(await refold(self.log, base, rows, {}))
        if slot.window.meta.quarantine is None:
            slot.window.quarantine(offset, spoiled.cause)
            self._dead(key, offset, spoiled.cause, POISON, effects)
            if spoiled.of_code:
                effects.failing.append(Failing(offset, spoiled.cause))
        else:
            # Code that fails now and then: the second time it was an earlier event.
            at = Position(self.number, slot.window.meta.quarantine.offset)
            logger.error("%s is parked at %s", key, at, extra=about(key, at))
            slot.window.add_waiting(offset)
            self._dead(key, offset, spoiled.cause, WAITING, effects)

    def _dead(self, key: Key, offset: int, cause: str, kind: str, effects: Effects) -> None:
        at = Position(self.number, offset)
        if kind == WAITING:
            self.counts.waiting += 1
        else:
            self.counts.dead += 1
            # Without the error's own text, which may quote the event (`dead-letters inspect`).
            logger.error("%s is parked at %s: %s", key, at, cause, extra=about(key, at))
        effects.dead.append(DeadLetter(at, str(key).encode(), cause, kind))

    def _noted(self, window: Window, event: AnyEvent, outcome: Outcome, effects: Effects) -> None:
        """Count what became of an event, and note what there is to say of it."""
        if self.traced is not None and (place := trace_of(event)) is not None:
            traced = Traced(window.key, outcome.offset, place, outcome.status.value)
            self.traced.append(traced)
        if outcome.status is Status.APPLIED:
            self.counts.applied += 1
            if type(event) is ErasedEvent:
                effects.erased.append((window.key, outcome.offset))
                if self.changed is not None:
                    self.erased.add(window.key)
        elif outcome.status is Status.DUPLICATE:
            self.counts.duplicate += 1
        else:
            self.counts.rejected += 1
        effects.add(window.key, event, outcome)
        effects.learn_from(window.key, extraction_due(window, event, outcome))

    @property
    def unwritten(self) -> int:
        """How many windows were folded on and are not written."""
        return len(self._touched)

    async def write(self) -> list[Window]:
        """Write what was folded since, with its checkpoint; returns the windows that became due.
        Raises like :meth:`process`.
        """
        before, last, touched = self.checkpoint, self._last, self._touched
        if last is None:
            return []
        self._check_open()
        checkpoint = self._restores.checkpoint(before, last)
        writes = []
        with self._slices.begin() as slice_:
            for slot in touched.values():
                writes.append(slot.write())
                if slice_.over:
                    await slice_.rest()
        verdict = await self._apply(checkpoint, writes)
        if verdict is Verdict.DUPLICATE and checkpoint.restoring:
            # Another's write, no further than the checkpoint: these windows are not in it.
            raise self.written_by_another()
        for slot, write in zip(touched.values(), writes, strict=True):
            slot.written(write)
        if self.changed is not None:
            self.changed.update(slot.window.key for slot in touched.values())
        for name in touched.keys() & self._slots.keys():
            self._slots.move_to_end(name)
        self._last, self._touched, self._settled = None, {}, True
        self._evict()
        return [
            slot.window
            for slot, write in zip(touched.values(), writes, strict=True)
            if write.due is DueChange.SET
        ]
