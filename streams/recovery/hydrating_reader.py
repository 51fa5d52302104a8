"""Reads windows of conversations that sleep, too: where a store has a stub, its window is brought
back.

Reading writes nothing. What an owner writes next replaces the stub by the whole window, because the
window that was brought back says that the store holds nothing of it
(:class:`projections.storage.records.Stored`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext

from projections.names import Key
from projections.storage.protocol import WindowReader
from projections.storage.records import Checkpoint, Stored, stored_form
from projections.storage.stubs import STUB, Stub, decode_stub
from streams.recovery.revival import Revival
from streams.runtime.keyed_limit import LARGE


class HydratingReader:
    """A :class:`projections.storage.protocol.WindowReader` over a store, which becomes the store's
    ``reader``.

    Reads of sleeping conversations also raise what :meth:`streams.recovery.revival.Revival.sure`
    raises. Without a ``revival`` (yet) stubs are returned as they are.
    """

    def __init__(
        self,
        store: WindowReader,
        revival: Revival | None = None,
        *,
        apart: Callable[[str], AbstractAsyncContextManager[None]] | None = None,
    ) -> None:
        """Args: ``apart``: gives the turn back that a tenant's read has, while it waits for the
        log: what others of the tenant read is there. None: reads have no turns.
        """
        self.revival = revival
        self._store = store
        self._apart = apart

    async def checkpoint(self, generation: int, partition: int) -> Checkpoint | None:
        return await self._store.checkpoint(generation, partition)

    async def read(
        self, generation: int, partition: int, keys: list[Key], *, recent_ids: bool = True
    ) -> tuple[Checkpoint | None, list[Stored | None]]:
        checkpoint, stored = await self._store.read(
            generation, partition, keys, recent_ids=recent_ids
        )
        if not _stubs(keys, stored):
            return checkpoint, stored
        again, stored = await self._revived(generation, partition, keys, stored)
        return again or checkpoint, stored

    async def fields(
        self, generation: int, partition: int, key: Key, names: list[bytes]
    ) -> tuple[Checkpoint | None, dict[bytes, bytes]]:
        """As the protocol says; whoever names field ``s`` gets a stub as it stands."""
        if self.revival is None or STUB in names:
            return await self._store.fields(generation, partition, key, names)
        checkpoint, fields = await self._store.fields(generation, partition, key, [*names, STUB])
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
        checkpoint, stored = await self._store.head(generation, partition, key)
        if not _stubs([key], [stored]):
            return checkpoint, stored
        again, (found,) = await self._revived(generation, partition, [key], [stored])
        return again or checkpoint, found

    async def _revived(
        self, generation: int, partition: int, keys: list[Key], stored: list[Stored | None]
    ) -> tuple[Checkpoint | None, list[Stored | None]]:
        """What is stored, with windows where stubs stand; read once more, with its checkpoint,
        where a stub's record is missing.
        """
        revival = self.revival
        if revival is None:
            return None, stored
        checkpoint, tenant = None, keys[0].tenant
        stubs = _stubs(keys, stored)
        async with self._waiting(tenant):
            found = await revival.quick(generation, partition, stubs)
            again = self._apart is not None and sum(one.size for one in found.values()) > LARGE
            if again:
                found = {}  # it is kept there, and not here while a turn is waited for
        if again:
            found = await revival.quick(generation, partition, stubs)
        if len(found) < len(stubs):
            # It may have been woken, or written again, in this moment.
            checkpoint, stored = await self._store.read(generation, partition, keys)
            stubs = _stubs(keys, stored)
            async with self._waiting(tenant):
                found = await revival.sure(generation, partition, stubs)
        return checkpoint, [
            found[key] if key in stubs else parts for key, parts in zip(keys, stored, strict=True)
        ]

    def _waiting(self, tenant: str) -> AbstractAsyncContextManager[None]:
        return nullcontext() if self._apart is None else self._apart(tenant)


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
