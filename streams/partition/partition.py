"""One partition's windows of one generation: decode a batch, fold it, speak of it, write it with
its checkpoint.

The same object serves the live projector and a rebuild; what differs is whether it speaks. A batch
goes through these steps:

1. decode: a record that is nobody's event becomes a dead letter and touches no window;
2. load the windows the batch needs that are not cached;
3. fold, in log order; a rollback beyond its window reads the log here, and what a window restored
   from a snapshot has already is passed over; what cannot be decoded or fails parks its
   conversation (``streams.partition.step``), and no other;
4. speak: accepted and voided summaries and dead letters go out *before* the checkpoint moves, so a
   crash repeats them and never loses them (whether a summary is accepted is a fact of the log, so
   even a fenced writer never tells subscribers anything untrue);
5. apply: windows, checkpoint and due set in one atomic call, fenced by the revision.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from projections.events.types import AnyEvent, ErasedEvent
from projections.fold.apply import Outcome, Status, apply
from projections.fold.quarantine import park, wait
from projections.names import Key, Position, parse_key
from projections.policy.policy import Rules
from projections.storage.layout import Mark
from projections.storage.protocol import (
    NOTHING,
    Checkpoint,
    DueChange,
    Stored,
    StoreMark,
    Verdict,
    WindowStore,
    Write,
    write_of,
)
from projections.window.window import Window
from streams.log.history import fetch_needed
from streams.log.log import Log, Raw, Row
from streams.partition.effects import DeadLetter, Effects, EffectSink
from streams.partition.failure_share import FailureShare
from streams.partition.log_identity import identity
from streams.partition.owned import Fenced, OwnedPartition
from streams.partition.step import (
    POISON,
    WAITING,
    Fetch,
    FoldFailure,
    InvalidRecord,
    StepResult,
    belongs,
    read_row,
    records_of,
    refold,
    spoiled_by,
    step_aside,
    with_history,
)

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Slot:
    """A cached window, what the store already has of it, and the source its events must name."""

    window: Window
    mark: StoreMark
    source: str


@dataclass(slots=True)
class Counts:
    """What became of the records folded so far."""

    applied: int = 0
    duplicate: int = 0
    rejected: int = 0
    dead: int = 0
    passed: int = 0
    """Events that a window restored from a snapshot had already."""
    waiting: int = 0
    """Events that came to a parked conversation."""


def _is_there(window: Window) -> bool:
    """Whether anything was ever folded into a window, or it is parked: a slot is there before its
    conversation has a window.
    """
    return window.meta.position >= 0 or window.meta.parked is not None


class Partition(OwnedPartition):
    """The windows of one partition under one generation, owned by one process (others are
    fenced).
    """

    def __init__(
        self,
        number: int,
        generation: int,
        store: WindowStore,
        log: Log,
        rules: Rules,
        *,
        learn: Callable[[str], Awaitable[None]],
        voice: EffectSink,
        cached_windows: int = 4096,
        share: FailureShare | None = None,
        fetch: Fetch = fetch_needed,
    ) -> None:
        """Args:
        learn: awaited before a tenant's first event is folded, so that ``rules`` knows its policy.
        share: counts poison, and ends all where there is too much; None: nobody does.
        fetch: reads the log back for an event that needs it.
        """
        super().__init__(number, f"partition {number} of generation {generation}")
        self.generation = generation
        self.store = store
        self.log = log
        self.rules = rules
        self.counts = Counts()
        self._learn = learn
        self._voice = voice
        self._fetch = fetch
        self._slots: OrderedDict[bytes, Slot] = OrderedDict()
        """By the records' key as it is: a batch looks up each of its records here."""
        self._cached = cached_windows
        self._share = share
        self._tenants: set[str] = set()
        self.changed: set[Key] | None = None
        """Conversations written since whoever takes snapshots emptied it; None: nobody does."""
        self.erased: set[Key] = set()
        """Conversations erased since whoever takes snapshots emptied it: their snapshots have to go
        soon.
        """
        self._settled = True
        self._last: Row | None = None
        self._batch: Sequence[Row] = ()
        self._touched: dict[bytes, Slot] = {}

    def adopt(self, checkpoint: Checkpoint) -> None:
        """Begin (again) at a checkpoint; nothing cached is kept."""
        self.checkpoint = checkpoint
        self._slots.clear()
        self._last, self._touched, self._settled = None, {}, True

    async def process(self, rows: Sequence[Row]) -> list[Window]:
        """Fold a batch, in order, and write it; returns the windows that became due by it.

        Records at or before the checkpoint are passed over.

        Raises:
            Fenced: nothing was written. RedisUnavailable, KafkaUnavailable: unknown whether it was;
            adopt the stored checkpoint and go on from there. TooMuchPoison: nothing was spoken of
            or written.
        """
        await self.fold(rows)
        return await self.write()

    async def fold(self, rows: Sequence[Row]) -> None:
        """Fold a batch and speak of it; the store gets it with the next :meth:`write`. Raises like
        :meth:`process`.
        """
        done = self.checkpoint.offset if self._last is None else self._last.offset
        if rows and rows[0].offset <= done:
            rows = [row for row in rows if row.offset > done]
        if not rows:
            return
        spoken = Effects()
        seals = self.log.seals
        await seals.ready(rows)
        await self._load(self._missing(rows))
        self._settled = False
        self._batch = rows
        slots, counts, touched = self._slots, self.counts, self._touched
        for row in rows:
            key, offset = row.key, row.offset
            slot = slots.get(key) if key is not None else None
            event = read_row(seals, row, slot.source if slot is not None else None)
            if key is None or slot is None or (type(event) is InvalidRecord and not event.parks):
                counts.dead += 1
                spoken.dead.append(
                    DeadLetter(
                        Position(self.number, offset),
                        key,
                        event.cause if isinstance(event, InvalidRecord) else "",
                    )
                )
                continue
            window = slot.window
            if offset <= window.meta.position:
                counts.passed += 1
                continue
            touched[key] = slot
            if window.meta.parked is not None or isinstance(event, InvalidRecord):
                await self._aside(slot, offset, event, spoken)
                continue
            try:
                outcome = apply(window, offset, event)
            except BaseException as error:  # noqa: BLE001 (whatever it is, it must not stop the partition; what must is raised again)
                await self._park(slot, spoiled_by(error, offset), spoken)
                continue
            if (
                outcome.status is Status.APPLIED
                and outcome.loop is None
                and not outcome.accepted
                and type(event) is not ErasedEvent
            ):
                counts.applied += 1
            else:
                await self._fold_on(slot, offset, event, outcome, spoken)
                window = slot.window
            if window.cut is not None:
                self._voice.report(self.number, window.key, window.cut)
                window.cut = None
        if self._share is not None:
            self._share.count(self.number, [row.offset for row in rows], spoken.dead)
        if spoken:
            batch = [
                Raw(Position(self.number, row.offset), row.key, row.value, row.timestamp)
                for row in rows
            ]
            await self._voice.speak(self.number, spoken, batch)
        self._last, self._batch = rows[-1], ()

    def _missing(self, rows: Sequence[Row]) -> set[bytes]:
        """The keys without a slot under which there is an event: what cannot be applied loads
        nothing and makes no tenant known.
        """
        missing: set[bytes] = set()
        for row in rows:
            if (
                row.key is not None
                and row.key not in self._slots
                and row.key not in missing
                and belongs(read_row(self.log.seals, row))
            ):
                missing.add(row.key)
        return missing

    async def _load(self, names: set[bytes]) -> None:
        """Have a slot for each of these records' keys that is one."""
        keys = {
            name: key
            for name in sorted(names - self._slots.keys())
            if (key := parse_key(name)) is not None
        }
        if not keys:
            return
        await self.known({key.tenant for key in keys.values()})
        stored = await self.store.load(self.generation, self.number, list(keys.values()))
        for (name, key), parts in zip(keys.items(), stored, strict=True):
            opened = (
                (Window(key, self.number, self.rules), NOTHING)
                if parts is None
                else parts.open(key, self.number, self.rules)
            )
            self._slots[name] = Slot(*opened, key.source)

    async def _aside(
        self, slot: Slot, offset: int, event: AnyEvent | InvalidRecord, spoken: Effects
    ) -> None:
        """Take a record to a window that is parked, or is to be."""
        before, told = slot.window, StepResult()
        slot.window = await step_aside(self.log, before, offset, event, told)
        if slot.window is not before:
            slot.mark = slot.mark._replace(layout=Mark())
        for done, outcome in told.outcomes:
            spoken.by[outcome.offset] = offset
            self._noted(slot.window, done, outcome, spoken)
        if not told.outcomes and not told.letters:
            self.counts.passed += 1
        for letter in told.letters:
            spoken.by[letter.offset] = offset
            self._dead(slot.window.key, letter.offset, letter.cause, letter.kind, spoken)

    async def _fold_on(
        self, slot: Slot, offset: int, event: AnyEvent, outcome: Outcome, spoken: Effects
    ) -> None:
        """What is not simply applied: a rollback that needs the log, a repeat, a rejected event; a
        summary, an erasure.
        """
        if outcome.status is Status.NEEDS_HISTORY:
            try:
                outcome = await with_history(
                    self.log, slot.window, offset, event, outcome, self._fetch
                )
            except FoldFailure as spoiled:
                await self._park(slot, spoiled, spoken)
                return
        self._noted(slot.window, event, outcome, spoken)

    async def _park(self, slot: Slot, spoiled: FoldFailure, spoken: Effects) -> None:
        """Bring a window back to what it was before the event on which the fold failed, and park it
        there.
        """
        key, offset = slot.window.key, spoiled.offset
        # Without the error's own text, which may quote the event: `dead-letters inspect` shows it.
        logger.error("%s is parked at %s: %s", key, Position(self.number, offset), spoiled.cause)
        (stored,) = await self.store.load(self.generation, self.number, [key])
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
        slot.window, slot.mark = (
            await refold(self.log, base, rows, {}),
            mark._replace(layout=Mark()),
        )
        if slot.window.meta.parked is None:
            park(slot.window, offset, spoiled.cause)
            self._dead(key, offset, spoiled.cause, POISON, spoken)
        else:
            # Code that fails now and then: the second time it was an earlier event.
            wait(slot.window, offset)
            self._dead(key, offset, spoiled.cause, WAITING, spoken)

    def _dead(self, key: Key, offset: int, cause: str, kind: str, spoken: Effects) -> None:
        if kind == WAITING:
            self.counts.waiting += 1
        else:
            self.counts.dead += 1
        spoken.dead.append(
            DeadLetter(Position(self.number, offset), str(key).encode(), cause, kind)
        )

    def _noted(self, window: Window, event: AnyEvent, outcome: Outcome, spoken: Effects) -> None:
        """Count what became of an event, and note what there is to say of it."""
        if outcome.status is Status.APPLIED:
            self.counts.applied += 1
            if type(event) is ErasedEvent:
                spoken.erased.append((window.key, outcome.offset))
                if self.changed is not None:
                    self.erased.add(window.key)
        elif outcome.status is Status.DUPLICATE:
            self.counts.duplicate += 1
        else:
            self.counts.rejected += 1
        self._note(window, outcome, spoken)

    def _note(self, window: Window, outcome: Outcome, spoken: Effects) -> None:
        spoken.voided += [(window.key, outcome.offset, summary_id) for summary_id in outcome.voided]
        for summary in outcome.accepted:
            if summary.offset == outcome.offset:
                spoken.accepted.append((window.key, summary.offset, summary.summary_id))
            else:
                spoken.again.append((window.key, outcome.offset, summary.offset))
        if outcome.loop is not None:
            spoken.loops.append((window.key, outcome.offset, outcome.loop))

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
        checkpoint = Checkpoint(
            before.revision, last.offset, last.timestamp, identity(last), before.target
        )
        writes = [write_of(slot.window, slot.mark, last.timestamp) for slot in touched.values()]
        await self._apply(checkpoint, writes)
        for slot, write in zip(touched.values(), writes, strict=True):
            slot.mark = write.after
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

    async def set_target(self, target: int) -> None:
        """Record up to where this partition heals (the windows stay as they are); raises
        :class:`Fenced` like :meth:`process`.
        """
        await self.put_back(replace(self.checkpoint, target=target), [])

    async def put_back(self, checkpoint: Checkpoint, windows: Sequence[Window]) -> None:
        """Write windows that the store does not have, as they are, with a checkpoint; raises
        :class:`Fenced` like :meth:`process`.

        As many as the cache has room for stay in it. Their sessions close no earlier than if their
        last messages had come now: when those came is not kept in a window.
        """
        checkpoint = replace(checkpoint, revision=self.checkpoint.revision)
        at_ms = max(checkpoint.timestamp, int(time.time() * 1000))
        writes = [write_of(window, NOTHING, at_ms) for window in windows]
        verdict = await self._apply(checkpoint, writes)
        if verdict is Verdict.DUPLICATE:
            # The same record, but another's write: neither its target nor its windows are these.
            raise self.written_by_another()
        for window, write in zip(windows, writes, strict=True):
            if len(self._slots) >= self._cached:
                break
            self._slots[str(window.key).encode()] = Slot(window, write.after, window.key.source)

    async def known(self, tenants: set[str]) -> None:
        """Make the rules know these tenants' policies."""
        for tenant in tenants - self._tenants:
            await self._learn(tenant)
            self._tenants.add(tenant)

    async def windows(self, keys: Sequence[Key]) -> list[Window | None]:
        """The windows as of the checkpoint (None: the conversation has none), in the order of
        ``keys``; nothing is cached for it.

        They are the fold's own: whoever calls holds ``turn``, and does not keep them beyond it.

        Raises:
            Fenced: the windows, in the store or here, are not those of the checkpoint.
            CorruptWindow: one of them cannot be read.
        """
        self._check_settled()
        found = {
            key: slot.window
            for key in keys
            if (slot := self._slots.get(str(key).encode())) is not None
        }
        missing = [key for key in keys if key not in found]
        if missing:
            stored = await self.stored(missing)
            there = {
                key: parts for key, parts in zip(missing, stored, strict=True) if parts is not None
            }
            await self.known({key.tenant for key in there})
            found.update(
                {key: parts.load(key, self.number, self.rules) for key, parts in there.items()}
            )
        return [
            window if window is not None and _is_there(window) else None
            for window in map(found.get, keys)
        ]

    async def stored(self, keys: Sequence[Key]) -> list[Stored | None]:
        """The windows as they are stored at the checkpoint, in the order of ``keys``; raises like
        :meth:`windows`.
        """
        self._check_settled()
        checkpoint, stored = await self.store.read(self.generation, self.number, list(keys))
        self.check_revision(checkpoint)
        return stored

    async def rest(self, writes: Sequence[Write]) -> None:
        """Write what puts conversations to sleep (``projections.storage.protocol.stub_write``), and
        keep nothing of them here.

        Whoever calls holds ``turn``. Raises :class:`Fenced` like :meth:`process`.
        """
        self._check_settled()
        if await self._apply(self.checkpoint, list(writes)) is Verdict.DUPLICATE:
            raise self.written_by_another()
        for write in writes:
            self._slots.pop(str(write.key).encode(), None)

    @property
    def folding(self) -> bool:
        """Whether it is in the middle of a batch."""
        return not self._settled

    def _check_settled(self) -> None:
        if not self._settled:
            # What was folded and not written may not have been spoken of: nobody may take it for
            # done.
            raise Fenced(f"{self.label} stopped in the middle of a batch")

    async def _apply(self, checkpoint: Checkpoint, writes: list[Write]) -> Verdict:
        answer = await self.store.apply(self.generation, self.number, checkpoint, writes)
        if answer.verdict is Verdict.FENCED:
            raise self.written_by_another()
        if answer.verdict is Verdict.DUPLICATE:
            # Another owner may have written it before some of these windows were loaded: then they
            # folded the batch twice.
            self._slots.clear()
        self.checkpoint = Checkpoint(
            answer.revision,
            checkpoint.offset,
            checkpoint.timestamp,
            checkpoint.digest,
            checkpoint.target,
        )
        return answer.verdict

    async def due_windows(self, now_ms: int, limit: int = 100) -> list[Window]:
        """Windows whose compaction request should go out (again) now."""
        keys = await self.store.due(self.generation, self.number, now_ms, limit)
        names = [str(key).encode() for key in keys]
        await self._load(set(names))
        windows = [self._slots[name].window for name in names]
        self._evict()
        return [
            window
            for window in windows
            if window.meta.due is not None and window.meta.parked is None
        ]

    def _evict(self) -> None:
        """Forget the windows that were written longest ago, down to the number that may be kept."""
        if not self._touched:
            while len(self._slots) > self._cached:
                self._slots.popitem(last=False)

    async def stored_checkpoint(self) -> Checkpoint | None:
        """The checkpoint in the store."""
        return await self.store.checkpoint(self.generation, self.number)

    async def check(self) -> Checkpoint:
        """Raise :class:`Fenced` when the store's checkpoint is not the one this object wrote last
        (Redis was wiped, say).

        Where it is, but on a server that was started anew or took over, it is written again: then
        readers know, too.
        """
        stored = await super().check()
        if stored.unverified:
            await self.set_target(self.checkpoint.target)
        return stored
