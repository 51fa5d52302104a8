"""Feeds the index of turns with the log of events."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice

from projections.events.codec import Undecodable
from projections.events.times import parse_micros
from projections.names import Key, Position, parse_key, partition_of
from streams.encryption.payload_cipher import PayloadCipher, kid_in, read_event
from streams.log.log import Row
from streams.memory.topic_feed import TopicFeed
from streams.memory.turns import Said, SqliteTurns
from streams.settings.settings import Settings

AT_ONCE = 200
"""Events taken in at once: searches wait for them."""


class TurnFeed(TopicFeed):
    """Keeps an index of turns up with the log."""

    def __init__(self, settings: Settings, seals: PayloadCipher, store: SqliteTurns) -> None:
        super().__init__(settings, "events", "the index of turns")
        self.store = store
        self._seals = seals

    async def has_all_of(self, key: Key | None, timeout: float = 10.0) -> None:  # noqa: ASYNC109
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
        for partition, rows in batches.items():
            await self._seals.find(
                (row.key, kid) for row in rows if (kid := kid_in(row.value)) is not None
            )
            left = iter(rows)
            while some := list(islice(left, AT_ONCE)):
                await asyncio.to_thread(self._apply, partition, some)

    def _apply(self, partition: int, rows: Sequence[Row]) -> None:
        said = [one for row in rows if (one := self._said(partition, row)) is not None]
        self.store.apply(said, {partition: rows[-1].offset})

    def _said(self, partition: int, row: Row) -> Said | None:
        """The event of a record; None for what is no conversation's."""
        key = None if row.key is None else parse_key(row.key)
        if key is None or key.of_user or row.key is None or row.value is None:
            return None
        try:
            event = read_event(self._seals, row.key, row.value)
        except Undecodable:
            return None
        if event.source != key.source:
            return None
        claimed, recorded = parse_micros(event.time), row.timestamp * 1000
        at = recorded if claimed is None else min(claimed, recorded)
        return Said(key, Position(partition, row.offset), at, event)
