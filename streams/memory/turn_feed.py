"""Feeds the index of turns with the log of events."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version

from projections.events.times import stated_at
from projections.events.untrusted import Undecodable
from projections.names import Position, make_key, parse_key, partition_of
from streams.encryption.payload_cipher import PayloadCipher, kid_in, read_event
from streams.log.clients import (
    AIOKafkaConsumer,
    kafka_errors,
)
from streams.log.log import Row
from streams.log.topic_ids import topic_id
from streams.memory.lanes import Lanes
from streams.memory.store_folder import StoreFolder, folder_of
from streams.memory.topic_feed import TopicFeed
from streams.memory.turns import Said, SqliteTurns
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)
AHEAD = 200
"""Records read at once: some ms of work, mostly of the event loop."""
SOON = 0.25
"""Seconds that a tenant waits for what was put off."""


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
        self._release = version("threadfold")
        self._lanes: Lanes | None = None
        self._again: AIOKafkaConsumer | None = None
        self._again_at: dict[int, int] = {}

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
        events which the log has lost meanwhile (an erasure may be among them), or which this
        release may read and an earlier one could not.
        """
        self._lanes = None
        await self._close_again()
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
        elif await asyncio.to_thread(self.store.lacks_unread_of, self._release):
            logger.warning(
                "the index of turns lacks records that another release could not read: it is"
                " filled again"
            )
            missed = True
        if missed:
            await self._begin_anew()
            if found is not None:
                await asyncio.to_thread(self.store.belongs_to, str(found))
        await super()._go_on(consumer)

    async def _step(self) -> None:
        if self.store.damaged:
            assert self._consumer is not None
            await self._go_on(self._consumer)
        if not self.is_ready:
            await super()._step()
            return
        if self._lanes is None:
            self._lanes = Lanes(self._next)
        worked = await self._read_on(self._lanes)
        if worked:
            await asyncio.sleep(self.rest * worked)

    async def _read_on(self, lanes: Lanes) -> float:
        """Read ahead, and take some records in; the seconds that this took."""
        assert self._consumer is not None
        idle, batches = lanes.is_empty and not lanes.again, dict[int, list[Row]]()
        if not lanes.is_full:
            batches, read = await self._read(self._consumer, 500 if idle else 0, AHEAD)
            for partition, rows in batches.items():
                for row in rows:
                    if (tenant := _tenant_of(row)) is not None:
                        lanes.add(tenant, partition, row)
            lanes.read_up_to(read)
        seconds = 0.0
        if taken := lanes.take(self.at_once):
            found: dict[int, list[Row]] = {}
            for partition, row in taken:
                found.setdefault(partition, []).append(row)
            seconds = await self._take_up_to(found, lanes.positions_after_taken())
            lanes.applied()
        elif lanes.again:
            seconds = await self._read_again(lanes)
        elif idle and not batches:
            await self._idle()
        positions = lanes.positions
        if not idle or positions != self._next:
            await self._advance(positions)
        return seconds

    async def _read_again(self, lanes: Lanes) -> float:
        """Take in some of the records that were put off; the seconds that this took."""
        if self._again is None:
            self._again, self._again_at = await self._connected(), {}
        for place in self._places:
            if self._again_at.get(place.partition) != (at := lanes.again[place.partition]):
                self._again.seek(place, at)
        batches, self._again_at = await self._read(self._again, 10, self.at_once)
        found = {
            partition: put_off
            for partition, rows in batches.items()
            if (put_off := [row for row in rows if _is_due_again(lanes, partition, row)])
        }
        seconds = await self._take_up_to(found, lanes.positions) if found else 0.0
        lanes.applied_again(self._again_at)
        if not lanes.again:
            await self._close_again()
        return seconds

    async def _close_again(self) -> None:
        consumer, self._again = self._again, None
        await self._disconnect(consumer)

    async def _close(self) -> None:
        self._lanes = None
        await self._close_again()
        await super()._close()

    async def has_all_of(
        self,
        tenant: str,
        conversation: str | None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> None:
        """Wait until the index has all that is now in a conversation's log (None: in all of the
        tenant); raises as :meth:`caught_up` says. For a tenant whose events are put off it does not
        wait long.
        """
        await self.ready(timeout)
        key = None if conversation is None else make_key(tenant, conversation)
        ends = await self.ends_now(None if key is None else [partition_of(key, self.partitions)])

        def has() -> bool:
            if self._lanes is None:
                return self._reached(ends)
            return self._lanes.has(tenant, ends)

        patience = self._patience(timeout)
        if self._lanes is not None and self._lanes.is_put_off(tenant):
            patience = min(patience, SOON)
        await self._wait(has, patience)

    def _checkpoints(self) -> dict[int, int]:
        return self.store.checkpoints()

    def _drop(self) -> None:
        self.store.drop()

    async def _take(self, batches: Mapping[int, Sequence[Row]]) -> None:
        positions = {partition: rows[-1].offset + 1 for partition, rows in batches.items()}
        await self._take_up_to(batches, positions)

    async def _take_up_to(
        self, batches: Mapping[int, Sequence[Row]], positions: Mapping[int, int]
    ) -> float:
        """Bring records into the index, which has all before ``positions`` then; the seconds that
        this took.
        """
        began = time.perf_counter()
        await self._seals.find(
            (row.key, kid)
            for rows in batches.values()
            for row in rows
            if (kid := kid_in(row.value)) is not None
        )
        await asyncio.to_thread(self._apply, batches, positions)
        return time.perf_counter() - began

    def _apply(self, batches: Mapping[int, Sequence[Row]], positions: Mapping[int, int]) -> None:
        said: list[Said] = []
        unread_by = None
        for partition, rows in batches.items():
            for row in rows:
                try:
                    one = self._said(partition, row)
                except Undecodable:
                    unread_by = self._release
                else:
                    said += [] if one is None else [one]
        checkpoints = {partition: at - 1 for partition, at in positions.items() if at}
        self.store.apply(said, checkpoints, unread_by)

    def _said(self, partition: int, row: Row) -> Said | None:
        """The event of a record; None for what is no conversation's. What stands in another
        partition than its key's is none: an erasure would not reach it. Raises
        :class:`Undecodable` for what cannot be read.
        """
        key = None if row.key is None else parse_key(row.key)
        if key is None or key.of_user or row.key is None or row.value is None:
            return None
        if partition_of(key, self.partitions) != partition:
            return None
        event = read_event(self._seals, row.key, row.value)
        if event.source != key.source:
            return None
        at = stated_at(event.time, row.timestamp * 1000)
        return Said(key, Position(partition, row.offset), at, event)


def _tenant_of(row: Row) -> str | None:
    """The tenant of a conversation's record; None for any other."""
    key = None if row.key is None else parse_key(row.key)
    return None if key is None or key.of_user else key.tenant


def _is_due_again(lanes: Lanes, partition: int, row: Row) -> bool:
    return lanes.is_due_again(_tenant_of(row), partition, row.offset)
