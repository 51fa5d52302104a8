"""Verify a projection: fold the log from its first event in memory and compare with what the store
holds, byte for byte, while it runs.

Values are read in small groups, each atomically with the checkpoint of that moment, and the fold
follows to just there before it compares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from projections.errors import Healing
from projections.storage.records import Checkpoint
from streams.custom.fold import ProjectionPartition
from streams.custom.persistence import ProjectionStore, place_of
from streams.custom.projection import Projection
from streams.custom.result import Cell
from streams.log.log import Log, Raw

GROUP = 100
BATCH = 97
"""Records in a batch of this fold: not what the projection is usually given, so that a fold that
depends on where batches end is found.
"""


@dataclass(slots=True)
class ProjectionReport:
    """What a verify found: how many values were compared, which differ (``tenant/key``), how many
    events it folded for it.
    """

    verified: int = 0
    differing: list[str] = field(default_factory=list)
    events: int = 0


async def verify_view(
    log: Log,
    store: ProjectionStore,
    scratch: ProjectionStore,
    projection: Projection,
    generation: int,
    progress: Callable[[int, int], None] | None = None,
) -> ProjectionReport:
    """Compare every value of a generation with a fold from zero.

    Args:
        scratch: an empty store in memory for the fold; it holds one partition's values at a time.
        progress: called with partitions done and partitions in all.

    Raises:
        Healing: a partition is being folded anew; it could not be compared.
        ProjectionFailed, KafkaUnavailable, RedisUnavailable, KeyUnusable: as named.
    """
    report = ProjectionReport()
    for number in range(log.partitions):
        place = place_of(projection.name, generation, number)
        fold = ProjectionPartition(projection, generation, number, scratch, log)
        await _advance(fold, _there(await store.checkpoint(place), number, projection))
        cells = {cell async for cell in scratch.cells(place)} | {
            cell async for cell in store.cells(place)
        }
        ordered = sorted(cells)
        for i in range(0, len(ordered), GROUP):
            await _compare(fold, store, place, ordered[i : i + GROUP], report)
        report.events += fold.counts.applied
        await scratch.drop(place)
        if progress is not None:
            progress(number + 1, log.partitions)
    return report


async def _compare(
    fold: ProjectionPartition,
    store: ProjectionStore,
    place: str,
    cells: list[Cell],
    report: ProjectionReport,
) -> None:
    checkpoint, stored = await store.read(place, cells)
    await _advance(fold, _there(checkpoint, fold.number, fold.projection))
    expected = await fold.store.load(place, cells)
    for cell, found, right in zip(cells, stored, expected, strict=True):
        if found is None and right is None:
            continue  # put and deleted meanwhile
        report.verified += 1
        if found != right:
            report.differing.append(f"{cell.tenant}/{cell.key}")


def _there(checkpoint: Checkpoint | None, number: int, projection: Projection) -> int:
    if checkpoint is None or checkpoint.healing:
        raise Healing(
            f"partition {number} of projection {projection.name} is being folded again: verify it"
            " afterwards"
        )
    return checkpoint.offset


async def _advance(fold: ProjectionPartition, offset: int) -> None:
    """Fold on to ``offset``, included."""
    batch: list[Raw] = []
    if offset > fold.checkpoint.offset:
        async for raw in fold.log.scan(fold.number, fold.checkpoint.offset + 1, offset):
            batch.append(raw)
            if len(batch) >= BATCH:
                await fold.process(batch)
                batch = []
        await fold.process(batch)
