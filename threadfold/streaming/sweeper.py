"""Ends the texts of writers that vanished: every gateway looks for texts without a new delta, and
one of them claims each.

A claim ends by itself: if its gateway dies, another one claims the text again, and finds what the
first one did in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from projections.errors import ThreadfoldError
from projections.names import Key, partition_of
from streams.log.log import Log
from streams.runtime.tasks import end_tasks
from threadfold.streaming.partial_store import PartialStore, Text
from threadfold.streaming.partials import Partials

logger = logging.getLogger(__name__)
AT_ONCE = 16
"""Texts that are held in memory at once, of up to 1 MiB each."""


class Sweeper:
    """Sweeps every ``every`` seconds. A claim lasts ``claim`` seconds, which must be longer than an
    append may take.
    """

    def __init__(
        self, store: PartialStore, partials: Partials, log: Log, *, every: float, claim: float
    ) -> None:
        self._store = store
        self._partials = partials
        self._log = log
        self._every = every
        self._claim = claim
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Sweep from now on. What fails is tried again when its claim has ended."""
        self._task = asyncio.create_task(self._run(), name="partials-sweeper")

    async def stop(self) -> None:
        """Sweep no more; :meth:`start` begins again."""
        await end_tasks([self._task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            try:
                await self.sweep()
            except ThreadfoldError as error:
                logger.warning("texts in progress cannot be swept now: %s", error)
            except Exception:
                logger.exception("texts in progress cannot be swept now")

    async def sweep(self) -> int:
        """Sweep once; returns how many texts were ended."""
        claimed, ended = await self._store.claim(self._claim), 0
        for begin in range(0, len(claimed), AT_ONCE):
            ended += await self._end(claimed[begin : begin + AT_ONCE])
        return ended

    async def _end(self, claimed: Sequence[tuple[Key, int]]) -> int:
        closed: dict[int, dict[Key, Text]] = {}
        for key, until in claimed:
            text = await self._store.close(key, claimed=until)
            if text is not None:
                closed.setdefault(partition_of(key, self._log.partitions), {})[key] = text
        for partition, texts in closed.items():
            # One scan of the log for all texts of a partition.
            ended = await self._partials.ended(partition, texts)
            for key, text in texts.items():
                await self._partials.settle(key, text, ended)
        return sum(map(len, closed.values()))
