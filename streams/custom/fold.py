"""One partition of a projection's results: decode a batch, apply it, and write what came of it with
its checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from projections.errors import CorruptWindow, InvalidProjection, ProjectionFailed, ThreadfoldError
from projections.names import Key
from projections.storage.records import Checkpoint, Verdict
from streams.custom.events import Event, event_of_row
from streams.custom.ids import Ids
from streams.custom.persistence import NO_WRITE, Hash, ProjectionStore, place_of, write_of
from streams.custom.projection import Projection
from streams.custom.result import Cell, Result
from streams.log.log import Log, Row
from streams.partition.log_identity import identity
from streams.partition.owned import OwnedPartition
from streams.runtime.log_fields import about

logger = logging.getLogger(__name__)
_ITS_OWN = (Exception, SystemExit)
"""What a projection may raise; the errors of threadfold among these that say that something is away
are not its own.
"""


@dataclass(slots=True)
class ProjectionCounts:
    """What became of the records read so far: handed on, repeats passed over, and records that are
    no events passed over.
    """

    applied: int = 0
    repeats: int = 0
    dead: int = 0


class ProjectionPartition(OwnedPartition):
    """The results of one partition under one generation, owned by one process (others are
    fenced).
    """

    def __init__(
        self, projection: Projection, generation: int, number: int, store: ProjectionStore, log: Log
    ) -> None:
        super().__init__(number, f"partition {number} of projection {projection.name}")
        self.projection = projection
        self.place = place_of(projection.name, generation, number)
        self.store = store
        self.log = log
        self.counts = ProjectionCounts()

    async def process(self, rows: Sequence[Row]) -> None:
        """Apply a batch, in order, and write it; records at or before the checkpoint are passed
        over.

        Raises:
            Fenced: another process wrote; nothing was written.
            ProjectionFailed: ``apply`` raised; nothing was written.
            RedisUnavailable, KafkaUnavailable: unknown whether it was; go on from the stored
                checkpoint.
            CorruptWindow, KeyUnusable: as named.
        """
        rows = [row for row in rows if row.offset > self.checkpoint.offset]
        if not rows:
            return
        batch, counts = await self._decoded(rows)
        ids = await self._without_repeats(batch, counts) if self.projection.once else {}
        result = Result(self.projection.name, self._load)
        if batch:
            await self._apply(batch, result)
        write = write_of(await result.changes(), ids)
        last = rows[-1]
        checkpoint = Checkpoint(
            self.checkpoint.revision,
            last.offset,
            last.timestamp,
            identity(last),
            self.checkpoint.target,
        )
        answer = await self.store.apply(self.place, checkpoint, write)
        if answer.verdict is Verdict.FENCED:
            raise self.written_by_another()
        self.checkpoint = replace(checkpoint, revision=answer.revision)
        self.counts.applied += len(batch)
        self.counts.repeats += counts.repeats
        self.counts.dead += counts.dead

    async def begin(self, checkpoint: Checkpoint, target: int) -> None:
        """Take the partition over at a checkpoint, and record up to where it heals; a former owner
        is fenced. Raises :class:`Fenced`.
        """
        answer = await self.store.apply(self.place, replace(checkpoint, target=target), NO_WRITE)
        if answer.verdict is not Verdict.APPLIED:
            raise self.written_by_another()
        self.checkpoint = replace(checkpoint, target=target, revision=answer.revision)

    async def stored_checkpoint(self) -> Checkpoint | None:
        """The checkpoint in the store."""
        return await self.store.checkpoint(self.place)

    async def _load(self, cells: list[Cell]) -> list[bytes | None]:
        return await self.store.load(self.place, cells)

    async def _decoded(self, rows: Sequence[Row]) -> tuple[list[Event], ProjectionCounts]:
        await self.log.seals.ready(rows)
        counts, batch = ProjectionCounts(), []
        for row in rows:
            event = event_of_row(self.log.seals, self.number, row, self.log.partitions)
            if isinstance(event, str):
                counts.dead += 1
                logger.debug(
                    "projection %s skips %d-%d: %s",
                    self.projection.name,
                    self.number,
                    row.offset,
                    event,
                )
            else:
                batch.append(event)
        return batch, counts

    async def _without_repeats(
        self, batch: list[Event], counts: ProjectionCounts
    ) -> dict[str, Hash]:
        """Take repeats out of the batch; returns the changes of what has to be remembered."""
        names = list(dict.fromkeys(f"{event.tenant}/{event.conversation}" for event in batch))
        stored = await self.store.ids(self.place, names)
        try:
            known = {name: Ids(fields) for name, fields in zip(names, stored, strict=True)}
        except ValueError as error:
            raise CorruptWindow(
                f"projection {self.projection.name}: recent ids of {self.place} cannot be read"
                f" ({error})"
            ) from None
        fresh = [
            event for event in batch if known[f"{event.tenant}/{event.conversation}"].take(event.id)
        ]
        counts.repeats = len(batch) - len(fresh)
        batch[:] = fresh
        changes = {name: Hash(*ids.changes()) for name, ids in known.items()}
        return {name: change for name, change in changes.items() if change.put}

    async def _apply(self, batch: list[Event], result: Result) -> None:
        try:
            await self.projection.apply(batch, result)
        except _ITS_OWN as error:
            if isinstance(error, ThreadfoldError) and not isinstance(error, InvalidProjection):
                raise
            where = await self._culprit(batch)
            if isinstance(error, InvalidProjection):
                raise InvalidProjection(f"{error} (at {where})") from error
            raise ProjectionFailed(
                f"projection {self.projection.name} failed at {where}: {type(error).__name__}:"
                f" {error}: fix it and start it again; nothing was skipped"
            ) from error

    async def _culprit(self, batch: list[Event]) -> str:
        """The first event that fails by itself on top of those before it, else the batch; nothing
        of this is written.
        """
        result = Result(self.projection.name, self._load)
        for event in batch:
            try:
                await self.projection.apply([event], result)
            except _ITS_OWN as error:
                if isinstance(error, ThreadfoldError) and not isinstance(error, InvalidProjection):
                    raise
                fields = about(Key(event.tenant, event.conversation), event.position)
                name = self.projection.name
                logger.exception("projection %s failed at event %s", name, event.id, extra=fields)
                return (
                    f"position {event.position} ({event.type} of"
                    f" {event.tenant}/{event.conversation})"
                )
        return f"positions {batch[0].position} to {batch[-1].position} together"
