"""Feeds the index of turns with the log of events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from projections.events.times import stated_at
from projections.events.untrusted import Undecodable
from projections.names import Key, Position, parse_key, partition_of
from streams.encryption.payload_cipher import PayloadCipher, kid_in, read_event
from streams.log.clients import AIOKafkaConsumer, kafka_errors
from streams.log.log import Row
from streams.log.topic_ids import topic_id
from streams.memory.store_folder import StoreFolder, folder_of
from streams.memory.topic_feed import TopicFeed
from streams.memory.turns import Said, SqliteTurns
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)


class TurnFeed(TopicFeed):
    """Keeps an index of turns up with the log: that of the settings' folder, if they name one."""

    def __init__(
        self,
        settings: Settings,
        seals: PayloadCipher,
        store: SqliteTurns,
        *,
        hold: bool = False,
    ) -> None:
        """Args: ``store`` becomes the folder's index; where another process holds that, or this one
        is not to ``hold`` it, a copy that goes with the process.
        """
        super().__init__(settings, "events", "the index of turns")
        self.store = store
        self._seals = seals
        self._hold = hold
        self._folder = folder_of(settings.memory_store)
        self._begins = True

    async def stop(self) -> None:
        """Stop feeding, and let go of the folder."""
        await super().stop()
        if self._folder is not None:
            self._folder.close()

    async def _open(self) -> None:
        if self._begins and self._folder is not None:
            self.store.adopt(await asyncio.to_thread(self._first, self._folder))
        self._begins = False
        await super()._open()

    def _first(self, folder: StoreFolder) -> SqliteTurns:
        if self._hold and folder.hold_turns():
            return SqliteTurns(folder.turns)
        return SqliteTurns.copied(folder.turns) or SqliteTurns()

    async def _idle(self) -> None:
        await asyncio.to_thread(self.store.tidy)

    async def _go_on(self, consumer: AIOKafkaConsumer) -> None:
        """Go on where the index is. One of another topic is dropped, and so is one that lacks
        events which the log has lost meanwhile: an erasure may be among them.
        """
        if self.store.damaged:
            logger.warning(
                "the index of turns in %s is damaged: it is filled again", self.store.path
            )
            await self._begin_anew()
        async with kafka_errors(self._settings, f"reading topic {self._topic}"):
            found = await topic_id(consumer, self._topic)
            begins = await consumer.beginning_offsets(self._places)
        done = await asyncio.to_thread(self._checkpoints)
        missed = done and any(done.get(tp.partition, -1) + 1 < at for tp, at in begins.items())
        if found is not None and not await asyncio.to_thread(self.store.belongs_to, str(found)):
            missed = True
        if missed:
            logger.warning("the index of turns is of another log: it is filled again")
            await self._begin_anew()
            if found is not None:
                await asyncio.to_thread(self.store.belongs_to, str(found))
        await super()._go_on(consumer)

    async def _step(self) -> None:
        if self.store.damaged:
            assert self._consumer is not None
            await self._go_on(self._consumer)
        await super()._step()

    async def has_all_of(self, key: Key | None, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Wait until the index has all that is in a conversation's log now (None: in every log);
        raises as :meth:`caught_up` says.
        """
        await self.ready(timeout)
        of = None if key is None else [partition_of(key, self.partitions)]
        await self.caught_up(of, timeout)

    def _checkpoints(self) -> dict[int, int]:
        return self.store.checkpoints()

    def _drop(self) -> None:
        self.store.drop()

    async def _take(self, batches: Mapping[int, Sequence[Row]]) -> None:
        await self._seals.find(
            (row.key, kid)
            for rows in batches.values()
            for row in rows
            if (kid := kid_in(row.value)) is not None
        )
        await asyncio.to_thread(self._apply, batches)

    def _apply(self, batches: Mapping[int, Sequence[Row]]) -> None:
        said = [
            one
            for partition, rows in batches.items()
            for row in rows
            if (one := self._said(partition, row)) is not None
        ]
        self.store.apply(said, {partition: rows[-1].offset for partition, rows in batches.items()})

    def _said(self, partition: int, row: Row) -> Said | None:
        """The event of a record; None for what is no conversation's. What stands in another
        partition than its key's is none: an erasure would not reach it.
        """
        key = None if row.key is None else parse_key(row.key)
        if key is None or key.of_user or row.key is None or row.value is None:
            return None
        if partition_of(key, self.partitions) != partition:
            return None
        try:
            event = read_event(self._seals, row.key, row.value)
        except Undecodable:
            return None
        if event.source != key.source:
            return None
        at = stated_at(event.time, row.timestamp * 1000)
        return Said(key, Position(partition, row.offset), at, event)
