"""One partition's windows of one generation, in a cache over the store: loaded when they are
needed, written with the checkpoint, fenced by its revision.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import get_args

from projections.events.types import (
    ErasedEvent,
    EventDroppedEvent,
    MemoryEvent,
    RollbackEvent,
    SessionClosedEvent,
)
from projections.names import Key, parse_key
from projections.policy.policy import Rules
from projections.storage.layout import Mark
from projections.storage.protocol import WindowStore
from projections.storage.records import (
    NOTHING,
    Checkpoint,
    Stored,
    StoreMark,
    Verdict,
    Write,
    write_of,
)
from projections.storage.window_copies import (
    ENDS,
    LARGE_BYTES,
    NO_CHANGE,
    CopiesChange,
    NamedCopy,
    WindowCopy,
    changed_copies,
    decode_copies,
    next_change,
)
from projections.window.window import Window
from streams.log.log import Log, Row
from streams.log.parted_fold import PartedFold
from streams.partition.kept_folds import KEPT_FOLDS
from streams.partition.load_parts import LoadParts
from streams.partition.owned import Fenced, OwnedPartition
from streams.partition.step import Read, astray, belongs, read_row
from streams.runtime.time_slices import TimeSlices

TAKEN_OUT = frozenset({ErasedEvent, EventDroppedEvent})
"""Events after which no earlier copy of a window may be used."""
ANNOUNCED = TAKEN_OUT | {RollbackEvent, SessionClosedEvent, *get_args(MemoryEvent)}
"""Events that may say something to others even where they are simply applied."""


@dataclass(slots=True)
class Slot:
    """A cached window, what the store already has of it, and the source its events must name.

    ``at_ms`` is the time of its latest record since it was written, ``copies`` is what changed of
    its copies since. ``count`` is how many events it had at the last change of those, ``next_copy``
    at how many they change next, ``read`` how many bytes came since. ``fold`` is what its last
    rollback read.
    """

    window: Window
    mark: StoreMark
    source: str
    at_ms: int = 0
    copies: CopiesChange = NO_CHANGE
    count: int = 0
    next_copy: int = 0
    read: int = 0
    fold: PartedFold | None = None

    def __post_init__(self) -> None:
        self.count = self.window.meta.count
        self.next_copy = next_change(self.count)

    def take_copy(self, *, back: bool = False) -> None:
        """Take the copies that are due; ``back``: it went back to an old event just now."""
        large = self.read >= LARGE_BYTES
        change = changed_copies(self.window, self.count, back=back, large=large)
        self.copies = self.copies.then(change)
        self.count, self.read = self.window.meta.count, 0
        self.next_copy = next_change(self.count)

    def end_copies(self) -> None:
        """Something was taken out of the conversation: no copy is used any more."""
        self.copies, self.fold = ENDS, None

    def replace(self, window: Window) -> None:
        """Put another window in place: what the store has is written anew, and no copy is of it."""
        self.fold = None
        self.window, self.mark = window, self.mark._replace(layout=Mark())
        self.copies, self.count, self.read = NO_CHANGE, window.meta.count, 0
        self.next_copy = next_change(self.count)

    @property
    def copies_end(self) -> bool:
        """Whether what the store has of its copies must not be used any more."""
        return self.copies.clear or self.mark.layout.nothing

    def write(self) -> Write:
        """What a write has to change of the window and its copies."""
        return write_of(self.window, self.mark, self.at_ms, self.copies)

    def written(self, write: Write) -> None:
        """The store has what the write changes."""
        self.mark, self.copies, self.at_ms = write.after, NO_CHANGE, 0


@dataclass(frozen=True, slots=True)
class SlotCopies:
    """The copies of a slot's window, written and not (``streams.log.rollback_history.Copies``)."""

    slot: Slot
    stored: Callable[[Key], Awaitable[list[bytes]]]

    async def read(self) -> Sequence[WindowCopy]:
        slot, mine = self.slot, self.slot.copies
        stored = [] if slot.copies_end else await self.stored(slot.window.key)
        return decode_copies([*stored, *(value for _, value in mine.put)])

    def keep(self, made: Sequence[NamedCopy]) -> None:
        self.slot.copies = self.slot.copies.then(CopiesChange(put=tuple(made)))

    def take_fold(self) -> PartedFold | None:
        fold, self.slot.fold = self.slot.fold, None
        return fold

    def keep_fold(self, fold: PartedFold) -> None:
        KEPT_FOLDS.keep(self.slot, fold)


def _is_there(window: Window) -> bool:
    """Whether anything was ever folded into a window, or it is quarantined: a slot is there before
    its conversation has a window.
    """
    return window.meta.position >= 0 or window.meta.quarantine is not None


class PartitionWindows(OwnedPartition):
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
        learn: Callable[[str], Awaitable[None]],
        cached_windows: int,
        slices: TimeSlices,
    ) -> None:
        super().__init__(number, f"partition {number} of generation {generation}")
        self.generation = generation
        self.store = store
        self.log = log
        self.rules = rules
        self.changed: set[Key] | None = None
        """Conversations written since whoever takes snapshots emptied it; None: nobody does."""
        self._learn = learn
        self._slots: OrderedDict[bytes, Slot] = OrderedDict()
        """By the records' key as it is: a batch looks up each of its records here."""
        self._cached = cached_windows
        self._slices = slices
        self._tenants: set[str] = set()
        self._settled = True
        self._last: Row | None = None
        self._touched: dict[bytes, Slot] = {}
        """The windows that were folded on and are not written."""

    def adopt(self, checkpoint: Checkpoint) -> None:
        """Begin (again) at a checkpoint; nothing cached is kept."""
        self.checkpoint = checkpoint
        self._slots.clear()
        self._last, self._touched, self._settled = None, {}, True

    async def _prepare(self, rows: Sequence[Row], room: int) -> tuple[dict[int, Read], set[bytes]]:
        """Have the keys that open these records, and the windows they belong to. Most batches need
        neither. Returns what was read for it, by offset: reading an event may take long. And the
        keys of windows that are left (:meth:`_load`).
        """
        await self.log.seals.ready(rows)
        found: dict[int, Read] = {}
        left = await self._load(self._missing(rows, found), room)
        return found, left

    def _missing(self, rows: Sequence[Row], found: dict[int, Read]) -> dict[bytes, None]:
        """The keys without a slot under which there is an event, in the order of the log: what
        cannot be applied loads nothing and makes no tenant known. What was read is in ``found``.
        """
        missing: dict[bytes, None] = {}
        for row in rows:
            if (
                row.key is not None
                and row.key not in self._slots
                and row.key not in missing
                and (key := parse_key(row.key)) is not None
                and astray(key, self.number, self.log.partitions) is None
            ):
                found[row.offset] = event = read_row(self.log.seals, row)
                if belongs(event):
                    missing[row.key] = None
        return missing

    async def _load(self, names: Iterable[bytes], room: int = 0) -> set[bytes]:
        """Have a slot for each of these records' keys that is one. What takes too long may leave
        ``room`` of them for later, and returns them.
        """
        keys = {
            name: key
            for name in names
            if name not in self._slots and (key := parse_key(name)) is not None
        }
        if not keys:
            return set()
        await self.known({key.tenant for key in keys.values()})
        parts = LoadParts(keys, room)
        for part in parts:
            await self._load_now({name: keys[name] for name in part})
        return set(parts.left)

    async def _load_now(self, keys: Mapping[bytes, Key]) -> None:
        wanted = list(keys.values())
        checkpoint, stored = await self.store.reader.read(self.generation, self.number, wanted)
        self.check_loaded(checkpoint)
        with self._slices.begin() as slice_:
            for (name, key), parts in zip(keys.items(), stored, strict=True):
                opened = (
                    (Window(key, self.number, self.rules), NOTHING)
                    if parts is None
                    else parts.open(key, self.number, self.rules)
                )
                self._slots[name] = Slot(*opened, key.source)
                if slice_.over:
                    await slice_.rest()

    async def set_target(self, target: int) -> None:
        """Record up to where this partition heals (the windows stay as they are); raises
        :class:`Fenced` like :meth:`process`.
        """
        await self.put_back(replace(self.checkpoint, target=target), [])

    async def put_back(
        self,
        checkpoint: Checkpoint,
        windows: Sequence[Window],
        times: Mapping[Key, int] = MappingProxyType({}),
    ) -> None:
        """Write windows that the store does not have, as they are, with a checkpoint; raises
        :class:`Fenced` like :meth:`process`.

        As many as the cache has room for stay in it. ``times`` (ms) are those of their last
        records. A window without one is listed, and its session closes, as if that came now.
        """
        checkpoint = replace(checkpoint, revision=self.checkpoint.revision)
        late = max(checkpoint.timestamp, int(time.time() * 1000))
        writes = [write_of(window, NOTHING, times.get(window.key, late)) for window in windows]
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
        checkpoint, stored = await self.store.reader.read(self.generation, self.number, list(keys))
        self.check_revision(checkpoint)
        return stored

    async def rest(self, writes: Sequence[Write]) -> None:
        """Write what puts conversations to sleep (``projections.storage.records.stub_write``), and
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
            # What was folded and not written may not have been published: nobody may take it for
            # done.
            raise Fenced(f"{self.label} stopped in the middle of a batch")

    async def _apply(self, checkpoint: Checkpoint, writes: list[Write]) -> Verdict:
        answer = await self.store.apply(self.generation, self.number, checkpoint, writes)
        if answer.verdict is Verdict.FENCED:
            raise self.written_by_another()
        self.checkpoint = replace(checkpoint, revision=answer.revision, unverified=False)
        return answer.verdict

    async def due_windows(self, keys: Iterable[Key]) -> list[Window]:
        """Those of these conversations' windows that are due for a summary."""
        names = [str(key).encode() for key in keys]
        await self._load(names)
        windows = [self._slots[name].window for name in names]
        self._evict()
        return [
            window
            for window in windows
            if window.meta.due is not None
            and window.meta.quarantine is None
            and window.key.tenant not in self.rules.unusable
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
