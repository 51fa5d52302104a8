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
RECENT = 1.0
"""Seconds after a search for which another one is to be expected."""
BESIDE_SEARCHES = 10
"""Records that were put off and are taken in at once then: searches wait for the processor."""
REST = 3.0
"""Seconds of rest then for each second of work: a quarter of a processor is used."""


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
        self._later: asyncio.Task[None] | None = None
        """Takes in what was put off."""
        self._searched = -RECENT

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
        await self._end_later()
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
        if self._later is not None and self._later.done():
            self._later.result()
            self._later = None
        if self._lanes.again and self._later is None:
            name = f"{self._name}-put-off"
            self._later = asyncio.create_task(self._take_put_off(self._lanes), name=name)
        await asyncio.sleep(self.rest * await self._read_on(self._lanes))

    async def _read_on(self, lanes: Lanes) -> float:
        """Read ahead, and take some records in; the seconds that this took."""
        assert self._consumer is not None
        idle, batches, before = lanes.is_empty, dict[int, list[Row]](), dict(lanes.read)
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
        elif not batches and not lanes.again:
            await self._idle()
        positions = lanes.positions
        if not idle or lanes.read != before or positions != self._next:
            await self._advance(positions)
        return seconds

    async def _take_put_off(self, lanes: Lanes) -> None:
        """Take in the records that were put off. What comes is read on meanwhile: a search waits
        until all is read, and not for these.
        """
        consumer, at = await self._connected(), dict[int, int]()
        try:
            while lanes.again and self._lanes is lanes:
                beside = time.monotonic() < self._searched + RECENT
                for place in self._places:
                    if at.get(place.partition) != (first := lanes.again[place.partition]):
                        consumer.seek(place, first)
                at, seconds = await self._read_again(
                    consumer, lanes, BESIDE_SEARCHES if beside else self.at_once
                )
                await self._advance(lanes.positions)
                await asyncio.sleep(seconds * (REST if beside else self.rest))
        finally:
            await self._disconnect(consumer)

    async def _read_again(
        self, consumer: AIOKafkaConsumer, lanes: Lanes, most: int
    ) -> tuple[dict[int, int], float]:
        """Take in some of the records that were put off; where the consumer is then, and the
        seconds that this took.
        """
        times = lanes.times_put_off
        batches, at = await self._read(consumer, 10, most)
        if lanes.times_put_off != times:  # who was put off meanwhile may have earlier ones
            return at, 0.0
        found = {
            partition: put_off
            for partition, rows in batches.items()
            if (put_off := [row for row in rows if _is_due_again(lanes, partition, row)])
        }
        up_to = {partition: min(offset, lanes.read[partition]) for partition, offset in at.items()}
        seconds = await self._take_up_to(found, lanes.positions) if found else 0.0
        lanes.applied_again(up_to, times)
        return at, seconds

    async def _end_later(self) -> None:
        """Let go of what was read. A batch that is being taken in is waited for: the store may be
        emptied next.
        """
        self._lanes = None
        if self._later is not None:
            await asyncio.wait([self._later])
            if not self._later.cancelled():
                self._later.exception()
            self._later = None

    async def _close(self) -> None:
        await self._end_later()
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
        else:
            self._searched = time.monotonic()
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
