"""Results of custom projections in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace

from projections.storage.records import Applied, Checkpoint, Verdict
from streams.custom.persistence import Hash, ProjectionWrite
from streams.custom.result import Cell


@dataclass
class _Place:
    checkpoint: Checkpoint | None = None
    values: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    ids: dict[str, dict[bytes, bytes]] = field(default_factory=dict)


class MemoryProjectionStore:
    """A :class:`streams.custom.persistence.ProjectionStore` kept in this process, for the fold that
    ``verify`` compares with, and for tests. It passes the same suite as the one in Redis.
    """

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}
        self._writes = 0

    async def checkpoint(self, place: str) -> Checkpoint | None:
        return self._of(place).checkpoint

    async def load(self, place: str, cells: list[Cell]) -> list[bytes | None]:
        values = self._of(place).values
        return [values.get(cell.tenant, {}).get(cell.key.encode()) for cell in cells]

    async def ids(self, place: str, conversations: list[str]) -> list[dict[bytes, bytes]]:
        return [dict(self._of(place).ids.get(conversation, {})) for conversation in conversations]

    async def read(
        self, place: str, cells: list[Cell]
    ) -> tuple[Checkpoint | None, list[bytes | None]]:
        return self._of(place).checkpoint, await self.load(place, cells)

    async def all(self, place: str, tenant: str) -> tuple[Checkpoint | None, dict[str, bytes]]:
        there = self._of(place)
        return there.checkpoint, {
            key.decode(): raw for key, raw in there.values.get(tenant, {}).items()
        }

    async def cells(self, place: str) -> AsyncIterator[Cell]:
        for tenant, values in list(self._of(place).values.items()):
            for key in list(values):
                yield Cell(tenant, key.decode())

    async def apply(self, place: str, checkpoint: Checkpoint, write: ProjectionWrite) -> Applied:
        there = self._of(place)
        before = there.checkpoint
        revision = before.revision if before is not None else ""
        if revision != checkpoint.revision:
            same = before is not None and (before.offset, before.digest) == (
                checkpoint.offset,
                checkpoint.digest,
            )
            return Applied(Verdict.DUPLICATE if same else Verdict.FENCED, revision)
        _change(there.values, write.values)
        _change(there.ids, write.ids)
        self._writes += 1
        there.checkpoint = replace(checkpoint, revision=str(self._writes))
        self._places[place] = there
        return Applied(Verdict.APPLIED, str(self._writes))

    async def drop(self, place: str) -> None:
        self._places.pop(place, None)

    def lose_everything(self) -> None:
        """Forget all, as a Redis that lost its memory does; what was written before stays
        fenced.
        """
        self._places.clear()

    def _of(self, place: str) -> _Place:
        return self._places.get(place) or _Place()


def _change(there: dict[str, dict[bytes, bytes]], changes: Mapping[str, Hash]) -> None:
    for name, hash_ in changes.items():
        fields = there.setdefault(name, {})
        fields.update(hash_.put)
        for field_ in hash_.removed:
            fields.pop(field_, None)
        if not fields:
            del there[name]
