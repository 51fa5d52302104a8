"""Keeping the text of writers that vanished: every gateway looks for texts of which nothing more
came, and one of them gets each.

A claim ends by itself, so that of a gateway that dies is made again; what it had done already is
found in the log.
"""

from __future__ import annotations

import asyncio
import logging

from projections.errors import ThreadfoldError
from projections.names import Key, partition_of
from threadfold.streaming.partial_store import PartialStore, Text
from threadfold.streaming.partials import Partials

logger = logging.getLogger(__name__)


class Sweeper:
    """Looks every ``every`` seconds; a claim holds for ``claim`` seconds, which has to be longer
    than an append may take.
    """

    def __init__(
        self, held: PartialStore, partials: Partials, partitions: int, *, every: float, claim: float
    ) -> None:
        self._held = held
        self._partials = partials
        self._partitions = partitions
        self._every = every
        self._claim = claim

    async def run(self) -> None:
        """Until it is cancelled; what fails is tried again when its claim has ended."""
        while True:
            await asyncio.sleep(self._every)
            try:
                await self.sweep()
            except ThreadfoldError as error:
                logger.warning("texts in progress cannot be looked after now: %s", error)
            except Exception:
                logger.exception("texts in progress cannot be looked after now")

    async def sweep(self) -> int:
        """Look once; returns how many texts were ended."""
        closed: dict[int, dict[Key, Text]] = {}
        for key, until in await self._held.claim(self._claim):
            text = await self._held.close(key, claimed=until)
            if text is not None:
                closed.setdefault(partition_of(key, self._partitions), {})[key] = text
        for partition, texts in closed.items():
            # One look at the log for all of a partition's: what was not ended by its message is
            # kept.
            ended = await self._partials.came_since(partition, texts)
            for key, text in texts.items():
                await self._partials.settle(key, text, ended)
        return sum(map(len, closed.values()))
