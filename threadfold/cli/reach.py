"""A command's own way to a stack: control topic, log and store, opened together and closed together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from projections.store import RedisStore
from streams.control import Control, Generation
from streams.keys import KeyRing, encrypting
from streams.log import KafkaLog
from streams.settings import Settings


@dataclass(frozen=True, slots=True)
class Reach:
    """The open parts of a stack."""

    settings: Settings
    control: Control
    log: KafkaLog
    store: RedisStore
    keys: KeyRing

    @property
    def generation(self) -> Generation:
        """The generation that is live now; raises TopicMismatch when there is none."""
        return self.control.state.live_generation


@asynccontextmanager
async def reach(settings: Settings) -> AsyncIterator[Reach]:
    """Open a stack that has a live generation, with its Redis reachable.

    Raises:
        KafkaUnavailable, RedisUnavailable, TopicMismatch: as named.
    """
    control = Control(settings)
    keys, store = KeyRing(settings, encrypting(control)), RedisStore(settings.redis, settings.topic_prefix, compress=settings.compress)
    log: KafkaLog | None = None
    try:
        await control.start()
        await keys.start()
        log = KafkaLog(settings, control.state.live_generation.partitions, seals=keys)
        await store.ping()
        yield Reach(settings, control, log, store, keys)
    finally:
        if log is not None:
            await log.stop()
        await keys.stop()
        await control.stop()
        await store.close()
