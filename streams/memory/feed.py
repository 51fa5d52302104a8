"""Feeds a memory store with its topic.

Whoever has a store reads the whole topic. Records that are no news are passed over and counted:
the log is what counts, and ``threadfold verify`` looks after that one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from projections.events.untrusted import Undecodable
from projections.memory.news import News, log_of, read_news
from projections.names import partition_of, users_log
from streams.encryption.payload_cipher import NotAuthentic, PayloadCipher, kid_in, open_value
from streams.log.log import Row
from streams.memory.store import MemoryStore
from streams.memory.topic_feed import TopicFeed
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)


class MemoryFeed(TopicFeed):
    """Keeps one store up with the topic of memories."""

    def __init__(self, settings: Settings, seals: PayloadCipher, store: MemoryStore) -> None:
        super().__init__(settings, "memories", "the long-term memory")
        self.store = store
        self.passed_over = 0
        """Records that were no news."""
        self._seals = seals

    async def has_all_of(self, tenant: str, user: str | None) -> None:
        """Wait until the store has everything of a user that is on the topic now; raises as
        :meth:`caught_up` says.
        """
        await self.ready()
        await self.caught_up([partition_of(users_log(tenant, user), self.partitions)])

    def _checkpoints(self) -> dict[int, int]:
        return self.store.checkpoints()

    def _drop(self) -> None:
        self.store.drop()

    async def _take(self, batches: Mapping[int, Sequence[Row]]) -> None:
        news = await self._news([row for rows in batches.values() for row in rows])
        checkpoints = {partition: rows[-1].offset for partition, rows in batches.items()}
        await self._apply(news, checkpoints)

    async def _apply(self, news: Sequence[News], checkpoints: Mapping[int, int]) -> None:
        """Bring news into the store."""
        await asyncio.to_thread(self.store.apply, news, checkpoints)

    async def _news(self, rows: Sequence[Row]) -> list[News]:
        logs = [None if row.value is None else log_of(row.value) for row in rows]
        await self._seals.find(
            (str(log).encode(), kid)
            for row, log in zip(rows, logs, strict=True)
            if log is not None and (kid := kid_in(row.value)) is not None
        )
        found: list[News] = []
        for row, log in zip(rows, logs, strict=True):
            try:
                if log is None or row.value is None:
                    raise Undecodable("its source names no log")
                value = open_value(self._seals, str(log).encode(), row.value)
                news = None if value is None else read_news(log, value)
            except (Undecodable, NotAuthentic) as error:
                self.passed_over += 1
                logger.warning("topic %s at %d: %s", self._topic, row.offset, error)
                continue
            if news is not None:
                found.append(news)
        return found
