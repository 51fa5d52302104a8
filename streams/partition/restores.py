"""Conversations that wait beside the flow of a partition, while the others go on: for what the log
says, in a rollback beyond their windows, or for their windows to be loaded.

While one waits the partition's checkpoint stays before it, and the windows of others are ahead of
the checkpoint. After a crash the records from there on are read again; a window passes over those
it has.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter, itemgetter

from projections.fold.outcomes import History
from projections.fold.rollback import regained
from projections.names import Position
from projections.storage.records import Checkpoint
from projections.window.window import Window
from streams.log.log import Log, Raw, Row
from streams.partition.log_identity import identity

_offset = attrgetter("offset")
MOST_ROWS = 20_000
MOST_BYTES = 16 << 20
"""Records of restoring conversations that wait in memory; those beyond are read again."""
MOST_PUT_OFF = 400
"""Conversations that wait for their windows: each is named in the checkpoint."""
MOST_LEFT = 200_000
"""Records that are read again; beyond, the partition waits, too."""


@dataclass(slots=True)
class Restore:
    """A conversation that waits: its first record that does, the record of the partition up to
    which all is folded, and what came to the conversation since. Where the first is a rollback, the
    history that is being read for it, with the records of summaries that it puts in force
    ``again``; None where the next batch goes on with it.
    """

    row: Row
    before: Row | None
    history: asyncio.Future[History] | None = None
    again: list[Raw] = field(default_factory=list)
    waiting: list[Row] = field(default_factory=list)


@dataclass(slots=True)
class Left:
    """What of a conversation waits in the log, behind what waits in memory: offsets and sizes; and
    the record of the partition up to which all is folded.
    """

    before: Row | None
    rows: deque[tuple[int, int]] = field(default_factory=deque)

    def next(self) -> list[int]:
        """Take the offsets of as many as may be in memory, at least one."""
        taken: list[int] = []
        room = MOST_BYTES
        while self.rows and len(taken) < MOST_ROWS and (not taken or room >= self.rows[0][1]):
            offset, size = self.rows.popleft()
            taken.append(offset)
            room -= size
        return taken


class Restores:
    """The conversations of one partition that wait, by their record key."""

    def __init__(self, log: Log, number: int, done: Callable[[], None] | None) -> None:
        """Args: ``done`` is called when the partition can go on with what waited, be it without
        records; None: nothing is read beside.
        """
        self.pending: dict[bytes, Restore] = {}
        self._left: dict[bytes, Left] = {}
        self._done = done
        self._log, self._number = log, number
        self._rows = 0
        self._bytes = 0
        self._batch: Sequence[Row] = ()
        self._before: Row | None = None
        """The record before the batch."""
        self._read: dict[int, asyncio.Future[History]] = {}
        """Of rollbacks in the batch, by offset, those that are read already."""
        self._again: list[Raw] = []
        """The records of summaries that these put in force again."""

    def __bool__(self) -> bool:
        return bool(self.pending or self._left)

    async def batch(self, rows: Sequence[Row], before: Row | None) -> Sequence[Row]:
        """Begin a batch; ``before`` is the last record that was taken before it. Returns it behind
        the records of conversations whose histories are there, or that waited in the log.
        """
        ready = await self._ready() if self.pending else {}
        self._read = {
            one.row.offset: one.history for one in ready.values() if one.history is not None
        }
        self._again = [raw for one in ready.values() for raw in one.again]
        mine: list[Row] = [row for one in ready.values() for row in (one.row, *one.waiting)]
        befores = [(one.row.offset, one.before) for one in ready.values()]
        for key, left in list(self._left.items()):
            if key in self.pending or key in ready:
                continue
            befores.append((left.rows[0][0], left.before))
            mine += await self._read_again(left.next())
            if not left.rows:
                self._left.pop(key, None)  # all were forgotten while it was read
        if befores:
            before = min(befores, key=itemgetter(0))[1]
            rows = [*sorted(mine, key=_offset), *self._behind(rows)]
        self._batch, self._before = rows, before
        return rows

    async def _read_again(self, offsets: list[int]) -> list[Raw]:
        found = await self._log.read(Position(self._number, offset) for offset in offsets)
        return [found[position] for position in sorted(found)]

    def _behind(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The records but those of conversations of which earlier ones wait in the log: they wait
        there, too.
        """
        mine = self._left.keys() - self.pending.keys()
        if not mine:
            return rows
        assert self._done is not None
        self._done()  # it goes on with them at once
        for row in rows:
            if row.key is not None and row.key in mine:
                self._left[row.key].rows.append((row.offset, _size(row)))
        return [row for row in rows if row.key not in mine]

    def raws(self, rows: Sequence[Row]) -> list[Raw]:
        """The records of the batch, and of summaries that rollbacks in it put in force again."""
        at = partial(Position, self._number)
        mine = [Raw(at(row.offset), row.key, row.value, row.timestamp) for row in rows]
        return [*self._again, *mine]

    def begin(self, offset: int, window: Window, history: Callable[[], Awaitable[History]]) -> bool:
        """Begin to read the history of a rollback of ``window`` in the batch; False where nothing
        is read beside.
        """
        at = bisect_left(self._batch, offset, key=_offset)
        row, done = self._batch[at], self._done
        if done is None or row.key is None:
            return False
        again: list[Raw] = []
        task = asyncio.ensure_future(self._history(window, history, again))
        task.add_done_callback(partial(self._is_there, row.key, done))
        before = self._batch[at - 1] if at else self._before
        self.pending[row.key] = Restore(row, before, task, again)
        return True

    @property
    def room(self) -> int:
        """How many conversations a batch may put off."""
        return 0 if self._done is None else MOST_PUT_OFF

    def put_off(self, names: Collection[bytes]) -> None:
        """Have these conversations wait from their first record of the batch on: for the next
        batch, which comes at once.
        """
        if not names or self._done is None:
            return
        before = self._before
        for row in self._batch:
            if row.key is not None and row.key in names and row.key not in self.pending:
                self.pending[row.key] = Restore(row, before)
            before = row
        self._done()

    async def _history(
        self, window: Window, history: Callable[[], Awaitable[History]], again: list[Raw]
    ) -> History:
        """Read the history, and what is to be announced again: others would wait for that, too."""
        found = await history()
        offsets = await asyncio.to_thread(regained, window, found)
        again += await self._read_again(offsets)
        return found

    def wait(self, key: bytes, row: Row) -> None:
        """Have a record wait for its conversation."""
        if key not in self.pending:
            return  # all were forgotten meanwhile, and nothing of this batch is written
        one, left = self.pending[key], self._left.get(key)
        if row.offset == one.row.offset:
            return  # it is the first itself
        if left is None and (self._rows >= MOST_ROWS or self._bytes >= MOST_BYTES):
            left = self._left[key] = Left(one.before)
        if left is not None and (not left.rows or left.rows[-1][0] < row.offset):
            left.rows.append((row.offset, _size(row)))
            return
        one.waiting.append(row)
        self._rows += 1
        self._bytes += _size(row)

    def read(self, offset: int) -> Awaitable[History] | None:
        """The history of a rollback in the batch, if it was read already; raises what that did."""
        return self._read.pop(offset, None)

    def checkpoint(self, before: Checkpoint, last: Row) -> Checkpoint:
        """The checkpoint of a write after ``before``, when ``last`` is the last record taken: all
        that is folded beyond a rollback under way is read again after a crash.
        """
        stand = [(key, one.row.offset, one.before) for key, one in self.pending.items()]
        stand += [
            (key, left.rows[0][0], left.before)
            for key, left in self._left.items()
            if key not in self.pending
        ]
        done = min(stand, key=itemgetter(1))[2] if stand else last
        ahead, names = max(before.ahead, last.offset), {key.decode() for key, _, _ in stand}
        known = [(key.decode(), offset) for key, offset, _ in stand]
        if ahead > last.offset:
            # A former owner's windows are further, but for those that it was restoring.
            known += [
                (name, max(offset, last.offset + 1))
                for name, offset in before.rollbacks
                if name not in names
            ]
        if done is None:
            return replace(before, ahead=ahead, rollbacks=tuple(known), ahead_ms=last.timestamp)
        return Checkpoint(
            before.revision,
            done.offset,
            done.timestamp,
            identity(done),
            before.target,
            ahead=ahead,
            rollbacks=tuple(known),
            ahead_ms=last.timestamp,
        )

    def clear(self) -> None:
        """Forget all of them: their records are read again."""
        for one in self.pending.values():
            if one.history is not None:
                one.history.cancel()
        # Not another dictionary: a batch that is being folded looks into this one.
        self.pending.clear()
        self._left.clear()
        self._rows = self._bytes = 0

    async def _ready(self) -> dict[bytes, Restore]:
        """Those that go on: their histories are there, or could not be read, or they need none.
        They are pending no more. While too much waits, one is waited for.
        """
        tasks = [one.history for one in self.pending.values() if one.history is not None]
        much = sum(len(left.rows) for left in self._left.values()) > MOST_LEFT
        if much and len(tasks) == len(self.pending):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        ready = {
            key: one
            for key, one in self.pending.items()
            if one.history is None or one.history.done()
        }
        for key, one in ready.items():
            del self.pending[key]
            self._rows -= len(one.waiting)
            self._bytes -= sum(map(_size, one.waiting))
        return ready

    def _is_there(
        self, key: bytes, done: Callable[[], None], task: asyncio.Future[History]
    ) -> None:
        if not task.cancelled():
            task.exception()  # of a partition that was given up nobody else asks for it
        known = self.pending.get(key)
        if known is not None and known.history is task:
            done()


def _size(row: Row) -> int:
    return len(row.value or b"")
