"""Windows written straight into the store, without a log behind them: for figures that only read
them or weigh them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from projections.events.codec import decode_event
from projections.fold.replay import replay
from projections.names import Key, partition_of
from projections.policy.policy import Rules
from projections.storage.protocol import WindowStore
from projections.storage.records import Checkpoint, write_of
from projections.window.window import Window
from streams.settings.settings import Settings

AT_ONCE = 50
"""Windows in one write: a batch of the projector's own is about as large."""


def fold_window(key: Key, partitions: int, values: Iterable[bytes]) -> Window:
    """A window folded from events' values."""
    return replay(
        key,
        partition_of(key, partitions),
        Rules(),
        [(i, decode_event(value)) for i, value in enumerate(values)],
    )


class Writer:
    """Writes whole windows and keeps the partitions' revisions."""

    def __init__(self, store: WindowStore, settings: Settings, generation: int = 1) -> None:
        self._store = store
        self._settings = settings
        self._generation = generation
        self._checkpoints: dict[int, Checkpoint] = {}

    async def write(self, windows: Iterable[Window]) -> int:
        """Write windows as new ones, each under its own key; returns how many."""
        waiting: dict[int, list[Window]] = {}
        count = 0
        for window in windows:
            count += 1
            batch = waiting.setdefault(window.partition, [])
            batch.append(window)
            if len(batch) >= AT_ONCE:
                await self._write(window.partition, waiting.pop(window.partition))
        for partition, batch in waiting.items():
            await self._write(partition, batch)
        return count

    async def write_copies(self, prototypes: Sequence[Window], keys: Iterable[Key]) -> int:
        """Write the prototypes' content in turn under many keys: as many bytes as if each had been
        folded by itself.
        """
        count = 0
        waiting: dict[int, list[tuple[Window, Key]]] = {}
        for i, key in enumerate(keys):
            partition = partition_of(key, self._settings.partitions)
            batch = waiting.setdefault(partition, [])
            batch.append((prototypes[i % len(prototypes)], key))
            count += 1
            if len(batch) >= AT_ONCE:
                await self._write_copies(partition, waiting.pop(partition))
        for partition, batch in waiting.items():
            await self._write_copies(partition, batch)
        return count

    async def _write(self, partition: int, windows: Sequence[Window]) -> None:
        await self._write_copies(partition, [(window, window.key) for window in windows])

    async def _write_copies(self, partition: int, copies: Sequence[tuple[Window, Key]]) -> None:
        writes = []
        for window, key in copies:
            own, window.key = window.key, key
            writes.append(write_of(window))
            window.key = own
        before = self._checkpoints.get(partition, Checkpoint())
        now = Checkpoint(before.revision, before.offset + len(copies), 0, "", -1)
        applied = await self._store.apply(self._generation, partition, now, writes)
        if applied.verdict.value != "applied":
            raise RuntimeError(f"partition {partition} was not written: {applied.verdict.value}")
        self._checkpoints[partition] = Checkpoint(applied.revision, now.offset, 0, "", -1)
