"""The ways into a log: an appender for each partition, and a producer for each kind of lists."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from streams.log.appender import Appender, Brokers, Pair
from streams.log.clients import LOST_PLACE, SharedProducer
from streams.settings.settings import Settings

LARGE = 1 << 20
"""Bytes of a list that has a producer of its own: single events never wait for it."""
_BEGIN = 4096
"""Bytes of a record in which its first part begins."""


class Appenders:
    """An appender for each partition, all with one producer."""

    def __init__(self, topic: str, partitions: int, producer: SharedProducer) -> None:
        self._producer = producer
        brokers = Brokers()
        self._of = [Appender(topic, partition, brokers) for partition in range(partitions)]

    async def append(self, partition: int, rows: Sequence[Pair]) -> list[int]:
        """Append rows to a partition as :meth:`Appender.append` does, with another producer where
        one has lost its place.

        What it had under way may be in already: then it is in twice, and the fold recognises the
        repeat.
        """
        while True:
            producer = await self._producer.get()
            try:
                return await self._of[partition].append(producer, rows)
            except LOST_PLACE as error:
                self._producer.retire(producer, error)

    async def stop(self) -> None:
        """Send nothing more, and close the producer."""
        await asyncio.gather(*(appender.stop() for appender in self._of))
        await self._producer.stop()


class AppendersByKind:
    """Three of them: for short lists, for large ones, and for images and files."""

    def __init__(
        self, topic: str, partitions: int, settings: Settings, producer: SharedProducer | None
    ) -> None:
        """Args: ``producer`` is that of short lists; None: one of its own."""
        self._short = Appenders(topic, partitions, producer or SharedProducer(settings))
        self._large = Appenders(topic, partitions, SharedProducer(settings))
        self._media = Appenders(topic, partitions, SharedProducer(settings, "none"))

    async def append(self, partition: int, rows: Sequence[Pair]) -> list[int]:
        """Append rows to a partition as :meth:`Appenders.append` does."""
        to = self._short
        if sum(len(value) for _, value in rows) > LARGE:
            to = self._media if any(is_media(value) for _, value in rows) else self._large
        return await to.append(partition, rows)

    async def stop(self) -> None:
        """Send nothing more, and close the producers."""
        await asyncio.gather(self._short.stop(), self._large.stop(), self._media.stop())


def is_media(value: bytes) -> bool:
    """Whether a record is mostly an image or a file: to compress 5 MB of one takes 30 ms of the
    event loop and saves a quarter.
    """
    return len(value) > LARGE and b";base64," in value[:_BEGIN]
