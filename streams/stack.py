"""The way to a running stack of a command, or of a process it starts: control topic, log and store,
opened and closed together.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from projections.redis.store import RedisStore
from projections.storage.protocol import WindowStore
from streams.control.control_topic import Control
from streams.control.key_ring import KeyRing, encrypting
from streams.control.state import Generation
from streams.log.kafka_log import KafkaLog
from streams.recovery.hydrating_reader import HydratingReader
from streams.recovery.revival import Revival, rules_of
from streams.recovery.snapshot_topic import KafkaSnapshots
from streams.settings.settings import Settings


@dataclass(frozen=True, slots=True)
class Stack:
    """The open parts of a stack."""

    settings: Settings
    control: Control
    log: KafkaLog
    store: WindowStore
    keys: KeyRing

    @property
    def generation(self) -> Generation:
        """The generation that is live now; raises TopicMismatch when there is none."""
        return self.control.state.live_generation


@asynccontextmanager
async def open_stack(settings: Settings) -> AsyncIterator[Stack]:
    """Open a stack that has a live generation, with its Redis reachable.

    Raises:
        KafkaUnavailable, RedisUnavailable, TopicMismatch: as named.
    """
    control = Control(settings)
    keys, store = (
        KeyRing(settings, encrypting(control)),
        RedisStore(settings.redis, settings.topic_prefix, compress=settings.compress),
    )
    log: KafkaLog | None = None
    revival: Revival | None = None
    snapshots: KafkaSnapshots | None = None
    try:
        await control.start()
        await keys.start()
        partitions, admit = control.state.live_generation.partitions, control.state.check_appends
        log = KafkaLog(settings, partitions, seals=keys, admit=admit)
        await store.ping()
        snapshots = KafkaSnapshots(settings, log.partitions)
        revival = Revival(snapshots, log, rules_of(control))
        store.reader = HydratingReader(store, revival)
        yield Stack(settings, control, log, store, keys)
    finally:
        if revival is not None:
            await revival.stop()
        if snapshots is not None:
            await snapshots.stop()
        if log is not None:
            await log.stop()
        await keys.stop()
        await control.stop()
        await store.close()
