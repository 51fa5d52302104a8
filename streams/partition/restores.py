"""Rollbacks beyond their windows, beside the flow of a partition: the conversation waits for what
the log says, the others go on.

While one is under way the partition's checkpoint stays before it, and the windows of others are
ahead of the checkpoint. After a crash the records from there on are read again; a window passes
over those it has.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter

from projections.fold.outcomes import History
from projections.storage.records import Checkpoint
from streams.log.log import Row
from streams.partition.log_identity import identity

_offset = attrgetter("offset")
MOST_ROWS = 20_000
MOST_BYTES = 16 << 20
"""Records of restoring conversations that wait in memory; beyond, the partition waits, too."""


@dataclass(slots=True)
class Restore:
    """One rollback: its record, the record of the partition up to which all is folded, the history
    that is being read, and what came to the conversation since.
    """

    row: Row
    before: Row | None
    history: asyncio.Future[History]
    waiting: list[Row] = field(default_factory=list)


class Restores:
    """The rollbacks of one partition that are under way, by the record key of their
    conversations.
    """

    def __init__(self, done: Callable[[], None] | None) -> None:
        """Args: ``done`` is called when a history is there; None: nothing is read beside."""
        self.pending: dict[bytes, Restore] = {}
        self._done = done
        self._rows = 0
        self._bytes = 0
        self._batch: Sequence[Row] = ()
        self._before: Row | None = None
        """The record before the batch."""
        self._read: dict[int, asyncio.Future[History]] = {}
        """Of rollbacks in the batch, by offset, those that are read already."""

    async def batch(self, rows: Sequence[Row], before: Row | None) -> Sequence[Row]:
        """Begin a batch; ``before`` is the last record that was taken before it. Returns it behind
        the records of conversations whose histories are there.
        """
        ready = await self._ready() if self.pending else []
        self._read = {one.row.offset: one.history for one in ready}
        if ready:
            before = ready[0].before
            mine = [row for one in ready for row in (one.row, *one.waiting)]
            rows = [*sorted(mine, key=_offset), *rows]
        self._batch, self._before = rows, before
        return rows

    def begin(self, offset: int, history: Callable[[], Awaitable[History]]) -> bool:
        """Begin to read the history of a rollback in the batch; False where nothing is read
        beside.
        """
        at = bisect_left(self._batch, offset, key=_offset)
        row, done = self._batch[at], self._done
        if done is None or row.key is None:
            return False
        task = asyncio.ensure_future(history())
        task.add_done_callback(partial(self._is_there, row.key, done))
        self.pending[row.key] = Restore(row, self._batch[at - 1] if at else self._before, task)
        return True

    def wait(self, key: bytes, row: Row) -> None:
        """Have a record wait for its conversation."""
        if key not in self.pending:
            return  # all were forgotten meanwhile, and nothing of this batch is written
        self.pending[key].waiting.append(row)
        self._rows += 1
        self._bytes += len(row.value or b"")

    def read(self, offset: int) -> Awaitable[History] | None:
        """The history of a rollback in the batch, if it was read already; raises what that did."""
        return self._read.pop(offset, None)

    def checkpoint(self, before: Checkpoint, last: Row) -> Checkpoint:
        """The checkpoint of a write after ``before``, when ``last`` is the last record taken: all
        that is folded beyond a rollback under way is read again after a crash.
        """
        first = min(self.pending.values(), key=lambda one: one.row.offset, default=None)
        done = last if first is None else first.before
        ahead, names = max(before.ahead, last.offset), {key.decode() for key in self.pending}
        known = [(key.decode(), one.row.offset) for key, one in self.pending.items()]
        if ahead > last.offset:
            # A former owner's windows are further, but for those that it was restoring.
            known += [
                (name, max(offset, last.offset + 1))
                for name, offset in before.rollbacks
                if name not in names
            ]
        if done is None:
            return replace(before, ahead=ahead, rollbacks=tuple(known))
        return Checkpoint(
            before.revision,
            done.offset,
            done.timestamp,
            identity(done),
            before.target,
            ahead=ahead,
            rollbacks=tuple(known),
        )

    def clear(self) -> None:
        """Forget all of them: their records are read again."""
        for one in self.pending.values():
            one.history.cancel()
        # Not another dictionary: a batch that is being folded looks into this one.
        self.pending.clear()
        self._rows = self._bytes = 0

    async def _ready(self) -> list[Restore]:
        """Those whose histories are there, or could not be read, by offset; they are pending no
        more. While too much waits in memory, one is waited for.
        """
        if self._rows > MOST_ROWS or self._bytes > MOST_BYTES:
            tasks = [restore.history for restore in self.pending.values()]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        ready = {key: one for key, one in self.pending.items() if one.history.done()}
        for key, one in ready.items():
            del self.pending[key]
            self._rows -= len(one.waiting)
            self._bytes -= sum(len(row.value or b"") for row in one.waiting)
        return sorted(ready.values(), key=lambda one: one.row.offset)

    def _is_there(
        self, key: bytes, done: Callable[[], None], task: asyncio.Future[History]
    ) -> None:
        if not task.cancelled():
            task.exception()  # of a partition that was given up nobody else asks for it
        known = self.pending.get(key)
        if known is not None and known.history is task:
            done()
