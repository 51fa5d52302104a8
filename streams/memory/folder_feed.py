"""Feeds the memory store of a folder, and goes over to another one that takes its place.

The process that holds the folder feeds its live store. Any other has a copy of it that goes with
the process, and takes the live one over when it is let go. The store to go over to is brought up to
where the present one is first, so readers never find less than before.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from pathlib import Path

from streams.encryption.payload_cipher import PayloadCipher
from streams.log.clients import AIOKafkaConsumer
from streams.memory.feed import MemoryFeed
from streams.memory.store import LocalStore
from streams.memory.store_folder import StoreFolder
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)
LOOK_EVERY = 1.0
"""Seconds between two looks at the folder."""


class FolderFeed(MemoryFeed):
    """Keeps the store of a folder up with the topic."""

    def __init__(
        self,
        settings: Settings,
        seals: PayloadCipher,
        store: LocalStore,
        folder: StoreFolder,
        *,
        hold: bool,
    ) -> None:
        """Args: ``store`` becomes the folder's live one; where another process holds the folder, or
        this one is not to ``hold`` it, a copy of that.
        """
        super().__init__(settings, seals, store)
        self._local, self._kind = store, type(store)
        self._folder = folder
        self._hold = hold
        self._begins = True
        self._file: Path | None = None
        self._other: MemoryFeed | None = None
        """Brings up the store to go over to."""
        self._taken_over = store
        self._looked = time.monotonic()

    async def stop(self) -> None:
        """Stop feeding, and let go of the folder."""
        await super().stop()
        if self._other is not None:
            await self._other.stop()
            self._other.store.close()
        self._folder.close()

    async def _open(self) -> None:
        if self._begins:
            self._local.adopt(await asyncio.to_thread(self._first))
            self._begins = False
        await super()._open()

    def _first(self) -> LocalStore:
        self._file = self._wanted()
        if self._file is not None:
            self._folder.tidy()
            return self._kind(self._file)
        live = self._folder.live
        copy = None if live is None else self._kind.copied(live)
        return copy or self._kind()

    async def _go_on(self, consumer: AIOKafkaConsumer) -> None:
        if self._local.damaged:
            logger.warning("the memory store %s is damaged: it is filled again", self._file)
            await self._begin_anew()
        await super()._go_on(consumer)

    async def _step(self) -> None:
        if self._local.damaged:
            assert self._consumer is not None
            await self._go_on(self._consumer)
        await super()._step()
        if self._other is not None:
            if self._other.has(self.positions):
                await self._go_over(self._other)
        elif time.monotonic() >= self._looked + LOOK_EVERY:
            self._looked = time.monotonic()
            await self._look()

    async def _idle(self) -> None:
        await asyncio.to_thread(self._local.tidy)

    async def _look(self) -> None:
        """See whether there is another store to have, and begin to bring it up."""
        wanted = await asyncio.to_thread(self._wanted)
        if wanted is None:
            return
        if wanted == self._file:
            await asyncio.to_thread(self._folder.tidy)
            return
        try:
            self._taken_over = await asyncio.to_thread(self._kind, wanted)
        except (sqlite3.Error, OSError, RuntimeError) as error:
            self._file = wanted
            logger.warning("the memory store %s cannot be taken over: %s", wanted, error)
            return
        self._file = wanted
        self._other = MemoryFeed(self._settings, self._seals, self._taken_over)
        self._other.start()

    def _wanted(self) -> Path | None:
        """The store to have, None while another process holds the folder."""
        return self._folder.live if self._hold and self._folder.hold() else None

    async def _go_over(self, other: MemoryFeed) -> None:
        self._other = None
        await other.stop()
        await asyncio.to_thread(self._local.adopt, self._taken_over)
        await asyncio.to_thread(self._folder.tidy)
        logger.info("the memory store is %s now", self._file)
        assert self._consumer is not None
        await self._go_on(self._consumer)
