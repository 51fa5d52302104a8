"""Reads a projection's results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec

from projections.errors import Healing
from projections.names import check_name
from projections.storage.records import Checkpoint
from streams.control.control_topic import Control
from streams.control.custom_projections import ProjectionRecord
from streams.custom.persistence import ProjectionStore, place_of
from streams.custom.projection import Projection, check_projection
from streams.custom.result import Cell
from streams.custom.store import RedisProjectionStore
from streams.settings.settings import Settings


class ProjectionReader:
    """Reads the results of the live generation. A value is as of its partition's checkpoint: it may
    lack the latest events.
    """

    def __init__(
        self,
        projection: Projection,
        store: ProjectionStore,
        records: Callable[[bool], Awaitable[ProjectionRecord]],
    ) -> None:
        """Args: ``records`` returns the projection's record; with True it reads the control topic
        to its end first.
        """
        self.projection = check_projection(projection)
        self._store = store
        self._records = records

    @classmethod
    @asynccontextmanager
    async def open(
        cls, settings: Settings, projection: Projection
    ) -> AsyncIterator[ProjectionReader]:
        """A reader with connections of its own, closed at the end; raises KafkaUnavailable."""
        async with AsyncExitStack() as stack:
            control, store = (
                Control(settings.require()),
                RedisProjectionStore(settings.redis, settings.topic_prefix),
            )
            stack.push_async_callback(store.close)
            await control.start()
            stack.push_async_callback(control.stop)

            async def records(fresh: bool) -> ProjectionRecord:
                if fresh:
                    await control.sync()
                return control.projection(projection.name)

            yield cls(projection, store, records)

    async def get(self, tenant: str, key: str) -> Any | None:
        """The value under a key, None if there is none. :meth:`Projection.merge` joins the values
        of several partitions.

        Raises:
            InvalidName: the tenant's name is invalid.
            UnknownProjection: there are no results yet.
            Healing: a partition is being folded anew; try again shortly.
            RedisUnavailable, KafkaUnavailable: the value cannot be read now.
        """
        cell = Cell(check_name("tenant", tenant), key)
        found = await self._each(lambda place: self._one(place, cell))
        return self._merged([value for part in found for value in part.values()])

    async def all(self, tenant: str) -> dict[str, Any]:
        """All values of a tenant by key, in the order of their keys. They must fit in memory.

        Raises like :meth:`get`.
        """
        check_name("tenant", tenant)
        parts = await self._each(lambda place: self._store.all(place, tenant))
        values: dict[str, list[bytes]] = {}
        for part in parts:
            for key, raw in part.items():
                values.setdefault(key, []).append(raw)
        return {key: self._merged(values[key]) for key in sorted(values)}

    async def _one(self, place: str, cell: Cell) -> tuple[Checkpoint | None, dict[str, bytes]]:
        checkpoint, (raw,) = await self._store.read(place, [cell])
        return checkpoint, {} if raw is None else {cell.key: raw}

    async def _each(
        self, read: Callable[[str], Awaitable[tuple[Checkpoint | None, dict[str, bytes]]]]
    ) -> list[dict[str, bytes]]:
        """The answers of the live generation's partitions, even if it changes meanwhile."""
        name, number = self.projection.name, -1
        record = await self._records(False)
        while record.live is not None and record.live != number:
            number = record.live
            places = [
                place_of(name, number, partition)
                for partition in range(len(record.generations[number].ends))
            ]
            answers = await asyncio.gather(*map(read, places))
            if all(checkpoint is not None and not checkpoint.healing for checkpoint, _ in answers):
                return [values for _, values in answers]
            record = await self._records(True)
        raise Healing(f"projection {name} is being folded again: try again shortly")

    def _merged(self, raw: list[bytes]) -> Any | None:
        values = [msgspec.json.decode(part) for part in raw]
        return (
            None if not values else values[0] if len(values) == 1 else self.projection.merge(values)
        )
