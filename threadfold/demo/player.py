"""Playing scripts into the log through the append path, no faster than the pipeline follows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from uuid import uuid4

import orjson

from projections.events.validation import Record, make_record
from projections.names import Key
from projections.storage.records import Checkpoint
from streams.log.log import Log
from threadfold.cli.play import Player
from threadfold.demo.sources import Flat

BATCH = 100
"""Events a list that is appended holds at most."""
MAX_LAG = 25
"""Events a window that may wait to be folded before the player waits."""
MAX_DUE = 0.05
"""The player waits while a larger share of the windows waits for a summary."""


class DemoPlayer(Player):
    """Appends events, and waits while too many are not applied or too many summaries are due."""

    def __init__(self, log: Log, total: int, windows: int) -> None:
        super().__init__(log, total)
        self.tokens = 0
        self.applied = 0
        self.due = 0
        self._batch = min(BATCH, 5 * windows)
        self._max_lag = MAX_LAG * windows
        self._max_due = max(2, int(windows * MAX_DUE))
        self._may_append = asyncio.Event()
        self._may_append.set()

    async def play(self, events: Iterator[tuple[Key, Flat]]) -> None:
        """Append all events, each conversation's in its order; ``observe`` sets the pace."""
        while batch := list(islice(events, self._batch)):
            records = [self._record(key, flat) for key, flat in batch]
            await self._may_append.wait()
            await self.append(records)
            self._set_pace()

    def observe(self, checkpoints: list[Checkpoint | None], due: int) -> None:
        """Note how far the windows are and how many of them wait for a summary."""
        self.applied = max(self.applied, self.appended - self.left(dict(enumerate(checkpoints))))
        self.due = due
        self._set_pace()

    def _set_pace(self) -> None:
        if self.appended - self.applied > self._max_lag or self.due > self._max_due:
            self._may_append.clear()
        else:
            self._may_append.set()

    def _record(self, key: Key, flat: Flat) -> Record:
        record = make_record(
            key, flat, where=f"event {flat['id']} of {key}", now=flat["time"], new_id=uuid4().hex
        )
        tokens = orjson.loads(record.value).get("tokens")
        self.tokens += tokens["count"] if tokens else 0
        return record
