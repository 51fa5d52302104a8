"""Playing scripts into the log through the append path, no faster than the pipeline takes it."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from uuid import uuid4

import msgspec

from projections.errors import KafkaUnavailable
from projections.events.validation import Record, make_record
from projections.names import Key
from projections.storage.protocol import Checkpoint
from streams.log.log import Log
from threadfold.demo.sources import Flat

BATCH = 100
"""Events a list that is appended holds at most."""
MAX_LAG = 25
"""Events a window that may wait to be folded before the player waits, too."""
MAX_DUE = 0.05
"""Share of the windows that may wait for a summary before the player waits: real people do not all
speak at once.
"""
ATTEMPTS = 3


class _Tokens(msgspec.Struct):
    count: int


class _Counted(msgspec.Struct):
    tokens: _Tokens | None = None


_counted = msgspec.json.Decoder(_Counted)


class Player:
    """Appends events; ``appended`` and ``tokens`` count what was acknowledged."""

    def __init__(self, log: Log, windows: int) -> None:
        self.log = log
        self.appended = 0
        self.tokens = 0
        self.applied = 0
        self.due = 0
        self.done = False
        self._batch = min(BATCH, 5 * windows)
        self._max_lag = MAX_LAG * windows
        self._max_due = max(2, int(windows * MAX_DUE))
        self._offsets: dict[int, list[int]] = {}
        self._room = asyncio.Event()
        self._room.set()

    async def play(self, events: Iterator[tuple[Key, Flat]]) -> None:
        """Append all events, each conversation's in its order; waits while too much is under way
        (see ``observe``).
        """
        while batch := list(islice(events, self._batch)):
            records = [self._record(key, flat) for key, flat in batch]
            await self._room.wait()
            await self._append(records)
            self._judge_room()
        self.done = True

    def observe(self, checkpoints: list[Checkpoint | None], due: int) -> None:
        """Take in how far the windows are and how many of them wait for a summary."""
        at = {p: c.offset for p, c in enumerate(checkpoints) if c is not None}
        self.applied = sum(
            bisect_right(offsets, at.get(p, -1)) for p, offsets in self._offsets.items()
        )
        self.due = due
        self._judge_room()

    def _judge_room(self) -> None:
        if self.appended - self.applied > self._max_lag or self.due > self._max_due:
            self._room.clear()
        else:
            self._room.set()

    def _record(self, key: Key, flat: Flat) -> Record:
        record = make_record(
            key, flat, where=f"event {flat['id']} of {key}", now=flat["time"], new_id=uuid4().hex
        )
        tokens = _counted.decode(record.value).tokens
        self.tokens += tokens.count if tokens is not None else 0
        return record

    async def _append(self, records: list[Record]) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                positions = await self.log.append(records)
                break
            except KafkaUnavailable:
                # Unknown whether it is in: the same records once more have the same ids, and a
                # repeat changes nothing.
                if attempt == ATTEMPTS:
                    raise
        for position in positions:
            self._offsets.setdefault(position.partition, []).append(position.offset)
        self.appended += len(records)
