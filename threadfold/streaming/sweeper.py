"""Ends the texts of writers that vanished: every gateway looks for texts without a new delta, and
one of them claims each.

A claim ends by itself: if its gateway dies, another one claims the text again, and finds what the
first one did in the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from functools import partial

from projections.errors import ThreadfoldError
from projections.names import Key
from streams.runtime.tasks import end_tasks, some_at_a_time
from threadfold.streaming.partial_store import PartialStore
from threadfold.streaming.partials import Partials
from threadfold.streaming.text_endings import TextEndings

logger = logging.getLogger(__name__)
AT_ONCE = 16
"""Tenants whose texts are ended at once; of each one text is in memory, of up to 1 MiB."""
PATIENCE = 1.0
"""Seconds for which a window is waited for that is far behind the log."""


class Sweeper:
    """Sweeps every ``every`` seconds. A claim lasts ``claim`` seconds, which must be longer than an
    append may take.
    """

    def __init__(
        self,
        store: PartialStore,
        partials: Partials,
        endings: TextEndings,
        *,
        every: float,
        claim: float,
    ) -> None:
        self._store = store
        self._partials = partials
        self._endings = endings
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
        """Sweep once; returns how many texts were ended. Each tenant's are ended one after the
        other, beside other tenants'. What is left when the claims end is claimed again.
        """
        over = time.monotonic() + self._claim
        claimed: dict[str, list[tuple[Key, int]]] = {}
        for key, until in await self._store.claim(self._claim):
            claimed.setdefault(key.tenant, []).append((key, until))
        parts = [partial(self._end, texts, over) for texts in claimed.values()]
        return sum(await some_at_a_time(AT_ONCE, parts))

    async def _end(self, claimed: Sequence[tuple[Key, int]], over: float) -> int:
        ended = 0
        for key, until in claimed:
            if time.monotonic() >= over:
                break
            try:
                ended += await self._end_one(key, until)
            except ThreadfoldError as error:
                # It is tried again when its claim has ended. Others' are ended although it is not.
                logger.warning("the text in progress of %s cannot be ended now: %s", key, error)
        return ended

    async def _end_one(self, key: Key, claimed: int) -> bool:
        text = await self._store.close(key, claimed=claimed)
        if text is None:
            return False
        await self._partials.settle(key, text, await self._endings.find(key, text, PATIENCE))
        return True
