"""A log in memory that counts what is read back from it."""

from __future__ import annotations

from collections.abc import Iterable

from projections.names import Position
from streams.log.log import Raw
from threadfold.testing import MemoryLog


class CountingLog(MemoryLog):
    """Counts the records that are read at their positions."""

    read_rows = 0

    async def read(self, positions: Iterable[Position]) -> dict[Position, Raw]:
        found = await super().read(positions)
        self.read_rows += len(found)
        return found
