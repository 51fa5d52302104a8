"""A window store in which sleeping conversations look awake: where a stub stands, its window is
brought back for whoever reads it.

Nothing is written by reading. What an owner writes next replaces the stub by the whole window,
because the window that was brought back says that the store holds nothing of it
(:class:`projections.storage.protocol.Stored`).
"""

from __future__ import annotations

from typing import Generic, TypeVar

from projections.names import Key
from projections.storage.listing import Found
from projections.storage.protocol import (
    Applied,
    Checkpoint,
    Index,
    Stored,
    WindowStore,
    Write,
    stored_form,
)
from projections.storage.stubs import STUB, Stub, decode_stub
from streams.recovery.revival import Revival

Inner = TypeVar("Inner", bound=WindowStore)


class HydratingStore(Generic[Inner]):
    """A :class:`projections.storage.protocol.WindowStore` over another one, ``inner``, for readers
    and owners alike.

    Reads of sleeping conversations raise besides what :meth:`streams.recovery.revival.Revival.sure`
    does. Without a ``revival`` (yet) stubs are handed out as they are.
    """

    def __init__(self, inner: Inner, revival: Revival | None = None) -> None:
        self.inner = inner
        self.revival = revival

    async def checkpoint(self, generation: int, partition: int) -> Checkpoint | None:
        return await self.inner.checkpoint(generation, partition)

    async def load(self, generation: int, partition: int, keys: list[Key]) -> list[Stored | None]:
        stored = await self.inner.load(generation, partition, keys)
        return (
            stored
            if not _stubs(keys, stored)
            else (await self._revived(generation, partition, keys, stored))[1]
        )

    async def read(
        self, generation: int, partition: int, keys: list[Key], *, recents: bool = True
    ) -> tuple[Checkpoint | None, list[Stored | None]]:
        checkpoint, stored = await self.inner.read(generation, partition, keys, recents=recents)
        if not _stubs(keys, stored):
            return checkpoint, stored
        again, stored = await self._revived(generation, partition, keys, stored)
        return again or checkpoint, stored

    async def fields(
        self, generation: int, partition: int, key: Key, names: list[bytes]
    ) -> tuple[Checkpoint | None, dict[bytes, bytes]]:
        """As the protocol says; who asks for field ``s`` by name is given a stub as it stands."""
        if self.revival is None or STUB in names:
            return await self.inner.fields(generation, partition, key, names)
        checkpoint, fields = await self.inner.fields(generation, partition, key, [*names, STUB])
        if STUB not in fields:
            return checkpoint, fields
        again, (stored,) = await self._revived(generation, partition, [key], [Stored(fields, {})])
        found = (
            {}
            if stored is None
            else {name: stored.fields[name] for name in names if name in stored.fields}
        )
        return again or checkpoint, found

    async def head(
        self, generation: int, partition: int, key: Key
    ) -> tuple[Checkpoint | None, Stored | None]:
        """As the protocol says; a window that was brought back comes whole."""
        checkpoint, stored = await self.inner.head(generation, partition, key)
        if not _stubs([key], [stored]):
            return checkpoint, stored
        again, (found,) = await self._revived(generation, partition, [key], [stored])
        return again or checkpoint, found

    async def _revived(
        self, generation: int, partition: int, keys: list[Key], stored: list[Stored | None]
    ) -> tuple[Checkpoint | None, list[Stored | None]]:
        """What is stored, with windows where stubs stand; read once more, with its checkpoint,
        where a stub's record is gone.
        """
        if self.revival is None:
            return None, stored
        checkpoint = None
        stubs = _stubs(keys, stored)
        found = await self.revival.quick(generation, partition, stubs)
        if len(found) < len(stubs):
            # It may have been woken, or written again, in this moment.
            checkpoint, stored = await self.inner.read(generation, partition, keys)
            stubs = _stubs(keys, stored)
            found = await self.revival.sure(generation, partition, stubs)
        return checkpoint, [
            found[key] if key in stubs else parts for key, parts in zip(keys, stored, strict=True)
        ]

    async def apply(
        self, generation: int, partition: int, checkpoint: Checkpoint, writes: list[Write]
    ) -> Applied:
        return await self.inner.apply(generation, partition, checkpoint, writes)

    async def due(self, generation: int, partition: int, now_ms: int, limit: int) -> list[Key]:
        return await self.inner.due(generation, partition, now_ms, limit)

    async def requested(
        self, generation: int, partition: int, keys: list[Key], again_at_ms: int
    ) -> None:
        await self.inner.requested(generation, partition, keys, again_at_ms)

    async def timers(self, generation: int, partition: int, now_ms: int, limit: int) -> list[Key]:
        return await self.inner.timers(generation, partition, now_ms, limit)

    async def put_off(self, generation: int, partition: int, timers: dict[Key, int]) -> None:
        await self.inner.put_off(generation, partition, timers)

    async def listed(
        self, generation: int, partition: int, name: str, before: Found | None, limit: int
    ) -> list[Found]:
        return await self.inner.listed(generation, partition, name, before, limit)

    async def idle(self, generation: int, partition: int, before_ms: int, limit: int) -> list[Key]:
        return await self.inner.idle(generation, partition, before_ms, limit)

    async def conversations(self, generation: int, partition: int) -> set[Key]:
        return await self.inner.conversations(generation, partition)

    async def index(self, generation: int, partition: int) -> tuple[Checkpoint | None, Index]:
        return await self.inner.index(generation, partition)

    async def hold(self, generation: int, holder: str, seconds: float) -> bool:
        return await self.inner.hold(generation, holder, seconds)

    async def drop_partition(self, generation: int, partition: int) -> int:
        return await self.inner.drop_partition(generation, partition)

    async def drop_generation(self, generation: int, partitions: int) -> int:
        return await self.inner.drop_generation(generation, partitions)


def _stubs(keys: list[Key], stored: list[Stored | None]) -> dict[Key, Stub]:
    """The conversations that sleep; raises :class:`projections.errors.CorruptWindow` for a stub
    that is none.
    """
    found: dict[Key, Stub] = {}
    for key, parts in zip(keys, stored, strict=True):
        if parts is not None and (value := parts.asleep) is not None:
            with stored_form(key):
                found[key] = decode_stub(value)
    return found
