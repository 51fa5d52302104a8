"""What a worker has to do and what of it was done, as its watchdog looks at it: partitions of the
log, and compaction requests.

Nothing here trusts the clients that do the work: how long the log is, and how far the group of
the compactor is, is asked of the brokers by other ones.
"""

from __future__ import annotations

from collections.abc import Callable

from projections.storage.protocol import Checkpoints
from streams.log.kafka_log import KafkaLog
from streams.projector.compaction_scheduler import Answered
from streams.projector.projector import Projector
from streams.runtime.watchdog import Look


class FoldProgress:
    """How far the partitions of one projector are."""

    def __init__(self, projector: Projector, log: KafkaLog, store: Checkpoints) -> None:
        self._projector = projector
        self._log = log
        self._store = store

    async def __call__(self) -> dict[str, Look]:
        """A look at each partition that is assigned; where none is, at all of them as one.

        Raises:
            KafkaUnavailable, RedisUnavailable: it is unknown now.
        """
        ends, begins = await self._log.last_records(), await self._log.beginning_offsets()
        projector = self._projector
        generation = projector.control.state.live_generation.number
        looks: dict[str, Look] = {}
        behind = 0
        marks: list[object] = []
        assigned = projector.runtime.assignment()
        for number in assigned or ends:
            partition = assigned.get(number)
            # Of a partition that is being prepared, what is written and read for it counts as well.
            # This also asks whether Redis is there.
            checkpoint = (
                await self._store.checkpoint(generation, number)
                if partition is None
                else partition.checkpoint
            )
            offset, revision = (
                (-1, "") if checkpoint is None else (checkpoint.offset, checkpoint.revision)
            )
            mark = (
                generation,
                offset,
                revision if partition is None else "",
                projector.runtime.waits[number],
            )
            # What was lost with the log's beginning is nobody's to fold.
            halted = projector.halted_after(number)
            end = ends[number] if halted is None else min(ends[number], halted + 1)
            lag = max(0, end - max(offset + 1, begins[number]))
            if assigned:
                # So does what is read while a batch may wait: for a sleeping window that is folded
                # from the log, after those of other partitions, or for a rollback, which can be the
                # whole of a long conversation.
                waits = (
                    partition is None
                    or partition.folding
                    or partition.restoring
                    or projector.revival.folding
                )
                reads = (self._log.reads, projector.snapshots.reads) if waits else ()
                looks[f"partition {number}"] = Look(lag, (*mark, *reads))
            else:
                behind += lag
                marks.append(mark)
        if not assigned:
            looks["a worker that is given no partition, and the others of its group,"] = Look(
                behind, tuple(marks)
            )
        else:
            await self._store.checkpoint(generation, min(assigned))
        return looks


class AnswerProgress:
    """How far a group is with the compaction requests of the partitions that are given to this
    process.
    """

    def __init__(
        self,
        answered: Answered,
        assigned: Callable[[], set[int]],
        mark: Callable[[], object],
    ) -> None:
        """Args: ``answered`` is how far the group is, ``assigned`` gives the partitions that this
        process' agents have, ``mark`` what changes whenever one of their requests was answered or
        waits for a known cause.
        """
        self._answered = answered
        self._assigned = assigned
        self._mark = mark

    async def __call__(self) -> dict[str, Look]:
        """One look at all of them; raises KafkaUnavailable."""
        extents = await self._answered(self._assigned())
        if not extents:
            return {}
        lag = sum(max(0, one.end - one.done) for one in extents.values())
        done = tuple(one.done for one in extents.values())
        return {"the compactor": Look(lag, (self._mark(), done))}
