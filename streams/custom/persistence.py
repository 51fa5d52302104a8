"""What a store of projections' results promises, and what is written into it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple, Protocol

from projections.storage.records import Applied, Checkpoint
from streams.custom.result import Cell


class Hash(NamedTuple):
    """Changes of one hash: fields to put, and fields to delete (of which none is among those
    put).
    """

    put: dict[bytes, bytes]
    removed: list[bytes]


class ProjectionWrite(NamedTuple):
    """A batch's changes: of tenants' values, and of conversations' recent ids."""

    values: Mapping[str, Hash]
    ids: Mapping[str, Hash]


NO_WRITE = ProjectionWrite({}, {})


def write_of(changes: Mapping[Cell, bytes | None], ids: Mapping[str, Hash]) -> ProjectionWrite:
    """The write of a result's changes (``Result.changes``) and of the recent ids that changed."""
    values: dict[str, Hash] = {}
    for cell, raw in changes.items():
        hash_ = values.setdefault(cell.tenant, Hash({}, []))
        if raw is None:
            hash_.removed.append(cell.key.encode())
        else:
            hash_.put[cell.key.encode()] = raw
    return ProjectionWrite(values, ids)


def place_of(name: str, generation: int, partition: int) -> str:
    """The place of a partition of one generation of a projection's results."""
    return f"{name}:{generation}:{partition}"


class ProjectionStore(Protocol):
    """Values and their checkpoints, by place: each place is written by one owner at a time, the
    others are fenced.

    ``streams.custom.store.RedisProjectionStore`` is the real one, ``threadfold.testing`` has one in
    memory. All of them raise ``RedisUnavailable`` when the server does not answer, and
    ``CorruptWindow`` when something else lies under a key.
    """

    async def checkpoint(self, place: str) -> Checkpoint | None:
        """How far the place is folded; None: it holds nothing."""

    async def load(self, place: str, cells: list[Cell]) -> list[bytes | None]:
        """Values as they are stored, None for one that is not there, in the order of ``cells``."""

    async def ids(self, place: str, conversations: list[str]) -> list[dict[bytes, bytes]]:
        """The recent ids of conversations (``tenant/conversation``) as stored
        (``streams.custom.ids``), in that order.
        """

    async def read(
        self, place: str, cells: list[Cell]
    ) -> tuple[Checkpoint | None, list[bytes | None]]:
        """The same as :meth:`load`, with the checkpoint of that very moment."""

    async def all(self, place: str, tenant: str) -> tuple[Checkpoint | None, dict[str, bytes]]:
        """All values of a tenant in a place by key, with the checkpoint of that very moment."""

    def cells(self, place: str) -> AsyncIterator[Cell]:
        """Where the place has values, in no order; those put or deleted meanwhile may or may not be
        among them, some twice.
        """

    async def apply(self, place: str, checkpoint: Checkpoint, write: ProjectionWrite) -> Applied:
        """Write a batch and the checkpoint, all of it or nothing, if ``checkpoint.revision`` is the
        revision in force ("" for none).

        Answers ``APPLIED`` with the new revision; ``DUPLICATE`` when another revision is in force
        whose checkpoint is at this very record, else ``FENCED``: either way nothing is written. No
        revision is ever in force twice, whatever is lost.
        """

    async def drop(self, place: str) -> None:
        """Delete all of a place, its checkpoint first; what an owner writes again meanwhile
        stays.
        """
