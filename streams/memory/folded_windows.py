"""Windows of the live generation that are read once they include an event."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from projections.errors import Healing
from projections.names import Key
from projections.storage.layout import HEAD, Head, decode_head
from projections.storage.protocol import WindowReader
from projections.storage.records import Checkpoint, Stored, stored_form
from projections.window.window import Window
from streams.log.log import Log
from streams.recovery.revival import Known

Found = TypeVar("Found")
PAUSE = 0.02
LONGEST_PAUSE = 0.5
"""Seconds between two looks whether the fold is where it must be, at first and at most."""
PATIENCE = 10.0
"""Seconds after which the request waits behind others."""


class BeyondLog(Exception):
    """What a request names is beyond the end of the log: another producer made it up, or the log
    lost it.
    """


class FoldedWindows:
    """Waits for the fold, and reads."""

    def __init__(
        self, log: Log, reader: Callable[[], WindowReader], rules: Known, live: Callable[[], int]
    ) -> None:
        """Args:
        reader: gives who reads windows, sleeping ones too.
        rules: gives a generation's rules.
        live: gives the live generation's number.
        """
        self._log = log
        self._reader = reader
        self._rules = rules
        self._live = live

    async def window(self, key: Key, partition: int, offset: int) -> Window | None:
        """The conversation's window, once it includes what stands at ``offset``; None where it has
        none. Raises as :meth:`_when_folded`.
        """

        async def read(generation: int) -> tuple[Checkpoint | None, Stored | None]:
            checkpoint, (stored,) = await self._reader().read(generation, partition, [key])
            return checkpoint, stored

        if await self.head(key, partition, offset) is None:
            return None
        # Another generation may be live by now, whose windows are not that far yet.
        generation, stored = await self._when_folded(key, partition, offset, read)
        if stored is None:
            return None
        return stored.load(key, partition, await self._rules(generation, {key.tenant}))

    async def head(self, key: Key, partition: int, offset: int) -> Head | None:
        """The head of the conversation's window, once it includes what stands at ``offset``; None
        where it has none. Raises as :meth:`_when_folded`.
        """

        async def read(generation: int) -> tuple[Checkpoint | None, dict[bytes, bytes]]:
            return await self._reader().fields(generation, partition, key, [HEAD])

        _, fields = await self._when_folded(key, partition, offset, read)
        with stored_form(key):
            return decode_head(fields[HEAD]) if HEAD in fields else None

    async def _when_folded(
        self,
        key: Key,
        partition: int,
        offset: int,
        read: Callable[[int], Awaitable[tuple[Checkpoint | None, Found]]],
    ) -> tuple[int, Found]:
        """What is read of the live generation together with a checkpoint that includes what stands
        at ``offset``, and the generation.

        Raises:
            Healing: it does not for long.
            BeyondLog: it never will.
        """
        loop, pause = asyncio.get_running_loop(), PAUSE
        end = loop.time() + PATIENCE
        while True:
            generation = self._live()
            checkpoint, found = await read(generation)
            if (
                checkpoint is not None
                and not checkpoint.heals(key)
                and checkpoint.includes(offset, key)
            ):
                return generation, found
            if loop.time() > end:
                if offset >= (await self._log.last_records()).get(partition, 0):
                    raise BeyondLog
                raise Healing(f"partition {partition} is not folded up to {offset} yet")
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
