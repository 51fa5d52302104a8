"""Feeds the memory store that all processes share, and follows it.

One process at a time holds the lease of the store and feeds it. All others read how far it is.
Where that process ends, another one goes on within seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from projections.errors import TopicMismatch
from streams.encryption.payload_cipher import PayloadCipher
from streams.log.log import Row
from streams.memory.feed import MemoryFeed
from streams.memory.redis_store import RedisMemories
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)
LOOK_EVERY = 0.1
"""Seconds between two looks at how far the store is, while another process feeds it."""


class SharedFeed(MemoryFeed):
    """Keeps the store in Redis up with the topic, in turn with other processes."""

    at_once = 200  # each time Redis is asked several times, and it does the work

    def __init__(self, settings: Settings, seals: PayloadCipher, store: RedisMemories) -> None:
        super().__init__(settings, seals, store)
        self._shared = store
        self._holds = False
        self._stored: dict[int, int] = {}
        """The checkpoints that this process left."""

    async def stop(self) -> None:
        """Stop feeding, and let another process feed at once."""
        await super().stop()
        self._holds = False
        await asyncio.to_thread(self._shared.place.let_go)

    async def _open(self) -> None:
        await asyncio.to_thread(self._shared.place.check)
        self._holds = await asyncio.to_thread(self._shared.place.hold)
        await super()._open()

    def _checkpoints(self) -> dict[int, int]:
        self._stored = super()._checkpoints()
        return dict(self._stored)

    def _drop(self) -> None:
        if not self._holds:
            raise TopicMismatch(
                f"the memory store in Redis is ahead of topic {self._topic}: the process that"
                " feeds it reads another Kafka, or will feed it again"
            )
        super()._drop()

    async def _step(self) -> None:
        held = await asyncio.to_thread(self._shared.place.hold)
        before, stored = self._holds, self._stored
        self._holds = held
        if held:
            done = await asyncio.to_thread(self._checkpoints)
            if not before or done != stored:
                # Another process fed it so far, or Redis lost some of it.
                logger.info("this process feeds the memory store in Redis")
                assert self._consumer is not None
                await self._go_on(self._consumer)
            await super()._step()
            return
        done = await asyncio.to_thread(self._checkpoints)
        positions = {place.partition: done.get(place.partition, -1) + 1 for place in self._places}
        if positions != self._next:
            if any(at < self._next.get(partition, 0) for partition, at in positions.items()):
                # Redis lost some of it: readers wait until all that was there is there again.
                self._begun = {p: max(at, self._begun.get(p, 0)) for p, at in self._next.items()}
            await self._advance(positions)
        await asyncio.sleep(LOOK_EVERY)

    async def _take(self, batches: Mapping[int, Sequence[Row]]) -> None:
        await super()._take(batches)
        self._stored |= {partition: rows[-1].offset for partition, rows in batches.items()}

    async def _advance(self, positions: dict[int, int]) -> None:
        # Where marks of transactions stand no record comes; the others know of it from here alone.
        behind = {
            partition: at - 1
            for partition, at in positions.items()
            if at - 1 > self._stored.get(partition, -1)
        }
        if self._holds and behind:
            await asyncio.to_thread(self.store.apply, [], behind)
            self._stored |= behind
        await super()._advance(positions)
