"""A projection over a log in memory, for unit tests."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from projections.events.validation import Intake
from projections.names import make_key
from streams.control.custom_projections import ProjectionGeneration, ProjectionRecord
from streams.custom.fold import ProjectionPartition
from streams.custom.memory_store import MemoryProjectionStore
from streams.custom.projection import Projection, check_projection
from streams.custom.verify import ProjectionReport, verify_view
from threadfold.custom.reader import ProjectionReader
from threadfold.testing.memory_log import MemoryLog


class MemoryProjection:
    """A projection with its log and its results in memory: append events, read values, verify.

    Decoding, repeats, the fold and merging are the same code as over Kafka and Redis.
    """

    def __init__(self, projection: Projection, partitions: int = 4) -> None:
        """Raises InvalidProjection if its name or version is invalid."""
        self.projection = check_projection(projection)
        self.log = MemoryLog(partitions)
        self.store = MemoryProjectionStore()
        self.partitions = [
            ProjectionPartition(projection, 1, number, self.store, self.log)
            for number in range(partitions)
        ]
        record = ProjectionRecord(
            1, 1, {1: ProjectionGeneration(projection.version, (0,) * partitions)}
        )

        async def records(fresh: bool) -> ProjectionRecord:
            return record

        self.reader = ProjectionReader(projection, self.store, records)

    async def append(self, tenant: str, conversation: str, *events: Mapping[str, Any]) -> None:
        """Append events as on HTTP (``{"type": "message", "role": "user", "content": "…"}``),
        checked as there, and apply them at once.

        Raises:
            InvalidEvent, InvalidName: an argument is invalid; nothing was appended.
            ProjectionFailed, InvalidProjection: ``apply`` failed, or its result is invalid.
        """
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        key, intake = make_key(tenant, conversation), Intake(now=now)
        for number, event in enumerate(events):
            intake.add(key, dict(event), where=f"event {number}", new_id=uuid4().hex)
        await self.log.append(intake.records())
        await self.catch_up()

    async def catch_up(self) -> None:
        """Apply records that were put into :attr:`log` directly."""
        for part, end in zip(self.partitions, (await self.log.end_offsets()).values(), strict=True):
            await part.process(
                [
                    raw
                    async for raw in self.log.scan(part.number, part.checkpoint.offset + 1, end - 1)
                ]
            )
            if part.checkpoint.offset < 0:
                await part.begin(part.checkpoint, -1)

    async def get(self, tenant: str, key: str) -> Any | None:
        """The value under a key, as ``ProjectionReader.get`` gives it."""
        await self.catch_up()
        return await self.reader.get(tenant, key)

    async def all(self, tenant: str) -> dict[str, Any]:
        """A tenant's values, as ``ProjectionReader.all`` gives them."""
        await self.catch_up()
        return await self.reader.all(tenant)

    async def verify(self) -> ProjectionReport:
        """Fold all again in other batches, and compare the values."""
        await self.catch_up()
        return await verify_view(self.log, self.store, MemoryProjectionStore(), self.projection, 1)
