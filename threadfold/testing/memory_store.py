"""The window store in memory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from projections.fold.timers import KEEP_TIMER
from projections.names import Key, parse_key
from projections.storage.layout import HEAD
from projections.storage.listing import IDLE, Found, Lists
from projections.storage.protocol import WindowReader
from projections.storage.records import (
    Applied,
    Checkpoint,
    DueChange,
    Index,
    Stored,
    Verdict,
    Write,
)
from projections.storage.stubs import STUB


@dataclass(slots=True)
class _Partition:
    """The data that Redis stores under one hash tag."""

    checkpoint: Checkpoint | None = None
    windows: dict[Key, Stored] = field(default_factory=dict)
    due: dict[Key, int] = field(default_factory=dict)
    timers: dict[Key, int] = field(default_factory=dict)
    lists: dict[str, dict[str, int]] = field(default_factory=dict)
    copies: dict[Key, dict[bytes, bytes]] = field(default_factory=dict)


class MemoryStore:
    """A :class:`projections.storage.protocol.WindowStore` in memory, for tests.

    It behaves as :class:`projections.redis.store.RedisStore`. Use an instance in one event loop.
    Every call is atomic.
    """

    def __init__(self) -> None:
        self.reader: WindowReader = self
        self._partitions: dict[tuple[int, int], _Partition] = {}
        self._writes = 0
        self._held: dict[int, tuple[str, float]] = {}
        self._set_aside = Counter[int]()

    async def checkpoint(self, generation: int, partition: int) -> Checkpoint | None:
        return self._of(generation, partition).checkpoint

    async def load(self, generation: int, partition: int, keys: list[Key]) -> list[Stored | None]:
        """The windows that :meth:`read` returns, without the checkpoint; goes with 0.3."""
        return (await self.read(generation, partition, keys))[1]

    async def read(
        self, generation: int, partition: int, keys: list[Key], *, recent_ids: bool = True
    ) -> tuple[Checkpoint | None, list[Stored | None]]:
        windows = self._of(generation, partition).windows
        found = [_copy(windows.get(key)) for key in keys]
        if not recent_ids:
            found = [None if stored is None else Stored(stored.fields, {}) for stored in found]
        return await self.checkpoint(generation, partition), found

    async def fields(
        self, generation: int, partition: int, key: Key, names: list[bytes]
    ) -> tuple[Checkpoint | None, dict[bytes, bytes]]:
        stored = self._of(generation, partition).windows.get(key)
        found = (
            {}
            if stored is None
            else {name: stored.fields[name] for name in names if name in stored.fields}
        )
        return await self.checkpoint(generation, partition), found

    async def head(
        self, generation: int, partition: int, key: Key
    ) -> tuple[Checkpoint | None, Stored | None]:
        checkpoint, fields = await self.fields(generation, partition, key, [HEAD, STUB])
        stored = self._of(generation, partition).windows.get(key)
        return checkpoint, Stored(fields, dict(stored.id_blocks)) if stored and fields else None

    async def copies(self, generation: int, partition: int, key: Key) -> list[bytes]:
        return list(self._of(generation, partition).copies.get(key, {}).values())

    async def apply(
        self, generation: int, partition: int, checkpoint: Checkpoint, writes: list[Write]
    ) -> Applied:
        there = self._of(generation, partition)
        before = there.checkpoint
        revision = before.revision if before is not None else ""
        if revision != checkpoint.revision:
            same = before is not None and (before.offset, before.digest) == (
                checkpoint.offset,
                checkpoint.digest,
            )
            return Applied(Verdict.DUPLICATE if same else Verdict.FENCED, revision)
        for write in writes:
            _keep_copies(there.copies, write)
            changed = _changed(there.windows.pop(write.key, None), write)
            if changed.fields:
                there.windows[write.key] = changed
            if write.due is DueChange.SET:
                there.due[write.key] = 0
            elif write.due is DueChange.CLEAR:
                there.due.pop(write.key, None)
            if write.timer is None:
                there.timers.pop(write.key, None)
            elif write.timer != KEEP_TIMER:
                there.timers[write.key] = write.timer
        _list(there.lists, writes)
        # Never an earlier revision, whatever was lost since: an old owner must not mistake a new
        # owner's revision for its own.
        self._writes += 1
        unverified = checkpoint.unverified and (before is None or before.unverified)
        there.checkpoint = replace(checkpoint, revision=str(self._writes), unverified=unverified)
        self._partitions[generation, partition] = there
        return Applied(Verdict.APPLIED, str(self._writes))

    async def due(self, generation: int, partition: int, now_ms: int, limit: int) -> list[Key]:
        return _ripe(self._of(generation, partition).due, now_ms, limit)

    async def due_count(self, generation: int, partition: int) -> int:
        return len(self._of(generation, partition).due)

    async def requested(
        self, generation: int, partition: int, keys: list[Key], again_at_ms: int
    ) -> None:
        due = self._of(generation, partition).due
        due.update({key: again_at_ms for key in keys if key in due})

    async def timers(
        self, generation: int, partition: int, now_ms: int, limit: int, *, latest: bool = False
    ) -> list[Key]:
        return _ripe(self._of(generation, partition).timers, now_ms, limit, latest)

    async def put_off(self, generation: int, partition: int, timers: dict[Key, int]) -> None:
        there = self._of(generation, partition).timers
        there.update({key: at for key, at in timers.items() if key in there})

    async def listed(
        self,
        generation: int,
        partition: int,
        name: str,
        before: Found | None,
        limit: int,
        since: int = 0,
    ) -> list[Found]:
        found = sorted(
            (
                Found(at_ms, name)
                for name, at_ms in self._of(generation, partition).lists.get(name, {}).items()
                if at_ms >= since
            ),
            reverse=True,
        )
        return [item for item in found if before is None or item < before][: max(0, limit)]

    async def conversations(self, generation: int, partition: int) -> set[Key]:
        return set(self._of(generation, partition).windows)

    async def index(self, generation: int, partition: int) -> tuple[Checkpoint | None, Index]:
        there = self._of(generation, partition)
        lists = {name: dict(times) for name, times in there.lists.items() if times and name != IDLE}
        return there.checkpoint, Index(dict(there.due), dict(there.timers), lists)

    async def idle(self, generation: int, partition: int, before_ms: int, limit: int) -> list[Key]:
        times = self._of(generation, partition).lists.get(IDLE, {})
        return _ripe(
            {
                key: at_ms
                for name, at_ms in times.items()
                if (key := parse_key(name.encode())) is not None
            },
            before_ms,
            limit,
        )

    async def drop_partition(self, generation: int, partition: int) -> int:
        """Delete a partition of a generation; returns the number of keys that Redis would have."""
        return _size(self._partitions.pop((generation, partition), _Partition()))

    async def drop_generation(self, generation: int, partitions: int) -> int:
        """Delete everything of a generation; returns the number of keys that Redis would have."""
        return sum(
            [await self.drop_partition(generation, partition) for partition in range(partitions)]
        )

    async def hold(self, generation: int, holder: str, seconds: float) -> bool:
        known, until = self._held.get(generation, ("", 0.0))
        now = time.monotonic()
        if known not in ("", holder) and now < until:
            return False
        self._held[generation] = (holder, now + seconds)
        return True

    def lose_everything(self) -> None:
        """Delete everything, like a Redis that lost its memory. Earlier revisions stay fenced."""
        self._partitions.clear()
        self._held.clear()

    async def count_set_aside(self, counts: Mapping[int, int]) -> None:
        self._set_aside.update(counts)

    async def set_aside(self) -> dict[int, int]:
        return dict(self._set_aside)

    def take_over(self) -> None:
        """Become another server with the same data: checkpoints are unverified."""
        for there in self._partitions.values():
            if there.checkpoint is not None:
                there.checkpoint = replace(there.checkpoint, unverified=True)

    def replace(self, generation: int, partition: int, key: Key, stored: Stored | None) -> None:
        """Put something else in place of a stored window, as a fault would; None: nothing."""
        windows = self._of(generation, partition).windows
        windows.pop(key, None)
        if stored is not None:
            windows[key] = stored

    def _of(self, generation: int, partition: int) -> _Partition:
        return self._partitions.get((generation, partition)) or _Partition()


def _list(lists: dict[str, dict[str, int]], writes: list[Write]) -> None:
    changes = Lists()
    for write in writes:
        if write.listing is not None:
            changes.add(write.key, write.listing)
        if write.rests:
            changes.rest(write.key)
    for name, put in changes.put.items():
        lists.setdefault(name, {}).update(put)
    for name, gone in changes.gone.items():
        for conversation in gone:
            lists.get(name, {}).pop(conversation, None)


def _keep_copies(copies: dict[Key, dict[bytes, bytes]], write: Write) -> None:
    before = {} if write.copies.clear else copies.get(write.key, {})
    after = {name: value for name, value in before.items() if name not in write.copies.gone}
    copies[write.key] = after | dict(write.copies.put)


def _ripe(times: dict[Key, int], now_ms: int, limit: int, latest: bool = False) -> list[Key]:
    there = ((at, str(key), key) for key, at in times.items() if at <= now_ms)
    ripe = sorted(there, reverse=latest)
    return [key for _, _, key in ripe[: max(0, limit)]]


def _changed(before: Stored | None, write: Write) -> Stored:
    fields = {} if before is None or write.reset or write.anew else dict(before.fields)
    id_blocks = {} if before is None or write.anew else dict(before.id_blocks)
    for there, put, gone in (
        (fields, write.put, write.gone),
        (id_blocks, write.id_blocks_put, write.id_blocks_gone),
    ):
        there.update(put)
        for name in gone:
            there.pop(name, None)
    return Stored(fields, id_blocks)


def _copy(stored: Stored | None) -> Stored | None:
    return None if stored is None else Stored(dict(stored.fields), dict(stored.id_blocks))


def _size(partition: _Partition) -> int:
    present: Iterable[object] = (
        partition.checkpoint is not None,
        bool(partition.due),
        bool(partition.timers),
    )
    return (
        sum(map(bool, present))
        + sum(map(bool, partition.lists.values()))
        + sum(map(bool, partition.copies.values()))
        + sum(1 + bool(w.id_blocks) for w in partition.windows.values())
    )
