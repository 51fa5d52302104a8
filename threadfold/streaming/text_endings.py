"""Finds what has ended a text in progress, by the conversation's own events.

A conversation's window has the positions of its last 1,024 events: those since the text began are
read, and of the partition only what came after all that is applied. What was looked at is
remembered, so that a caller who asks again costs what is new alone. If more than 1,024 came, the
partition is read before them, but not far. If that is too far, the text passes for ended: one that
has its message must never become another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import NamedTuple

from projections.errors import WaitTimedOut
from projections.events.types import RollbackEvent
from projections.fold.quarantine import waiting_offsets
from projections.fold.replay import Logged
from projections.names import Key, Position, partition_of
from projections.storage.layout import HEAD, decode_head
from projections.storage.records import Stored, stored_form
from streams.log.history import FEW_BYTES, READ_PART, SLICE, Pieces, event_of
from streams.runtime.time_slices import TimeSlices
from threadfold.service.conversations import ConversationService
from threadfold.streaming.catchup import SCAN
from threadfold.streaming.partial_end import Ending, Rollback, is_end
from threadfold.streaming.partial_store import Text
from threadfold.streaming.windows import Windows

logger = logging.getLogger(__name__)
AT_ONCE = 500
"""Records behind a window that are read at once. Of more, the window is waited for."""
PATIENCE = 5.0
"""Seconds for which a window is waited for that is further behind."""
READING = 5.0
"""Seconds that one look may read."""
MOST_LOOKS = 10_000
"""Texts of which it is known up to where nothing has ended them."""
AGAIN = 5
"""``Retry-After`` in seconds while it is not known."""


class Places(NamedTuple):
    """Where a conversation's events stand from an offset on: somewhere before ``since``, at
    ``offsets``, and somewhere after ``applied``. ``erased``: where it was.
    """

    since: int
    offsets: list[int]
    applied: int
    complete: bool = True
    """Whether there are no others."""
    erased: int | None = None


class TextEndings:
    """Finds what has ended texts, for one process."""

    def __init__(self, backend: ConversationService, windows: Windows) -> None:
        self._backend = backend
        self._windows = windows
        self._looked: OrderedDict[Key, tuple[str, int, int]] = OrderedDict()
        """Of each text turn and beginning, and the offset up to which nothing has ended it."""

    async def find(self, key: Key, text: Text, patience: float = PATIENCE) -> Ending | None:
        """What has ended a text: the first message (or erasure) that does, or a rollback before
        that. None: nothing has.

        Args:
            patience: seconds for which a window is waited for that is far behind the log.

        Raises:
            WaitTimedOut: it is still too far behind, or there is too much to read.
            Healing, CorruptWindow, RedisUnavailable, KafkaUnavailable: it cannot be known now.
        """
        end = (await self._backend.log.end_offsets())[self._partition(key)]
        begin = self._begin(key, text)
        if begin >= end:
            return None
        places = await self._places(key, begin, end, patience)
        if places.erased is not None:
            return Ending(places.erased)
        rollbacks: list[Rollback] = []
        message = await self._first_end(key, text, begin, places, end, rollbacks)
        back = await self._accepted(key, text.since, rollbacks)
        if back is not None:
            return back
        if message is None and not places.complete:
            logger.warning(
                "the text in progress of %s passes for ended: its conversation has had too many"
                " events since to know",
                key,
            )
            return Ending(end - 1, unknown=True)
        if message is None:
            self._note(key, text, end)
        return message

    def _partition(self, key: Key) -> int:
        return partition_of(key, self._backend.log.partitions)

    def _begin(self, key: Key, text: Text) -> int:
        """From where on a text is to be looked at."""
        known = self._looked.get(key)
        if known is None or known[:2] != (text.turn, text.since):
            return text.since
        return known[2]

    def _note(self, key: Key, text: Text, end: int) -> None:
        self._looked[key] = text.turn, text.since, end
        self._looked.move_to_end(key)
        if len(self._looked) > MOST_LOOKS:
            self._looked.popitem(last=False)

    async def _places(self, key: Key, begin: int, end: int, patience: float) -> Places:
        partition, windows = self._partition(key), self._backend.windows
        checkpoint, stored = await windows.head(key)
        if patience and checkpoint.applied_to(key) < end - 1 - AT_ONCE:
            with suppress(WaitTimedOut):
                near = Position(partition, end - 1 - AT_ONCE)
                await self._backend.wait_for(near, patience, whose=key)
            checkpoint, stored = await windows.head(key)
        applied = checkpoint.applied_to(key)
        behind = end - 1 - max(applied, begin - 1)
        if behind > SCAN:
            raise WaitTimedOut(
                f"text in progress of {key.conversation}: whether it has its message is not known"
                f" now, because the conversation's window is {behind} records behind the log: try"
                " again shortly",
                AGAIN,
            )
        if stored is None:
            return Places(begin, [], applied)
        return places_of(key, stored, begin, applied)

    async def _first_end(
        self, key: Key, text: Text, begin: int, places: Places, end: int, before: list[Rollback]
    ) -> Ending | None:
        """The first message (or erasure) that ends a text; rollbacks ``before`` it are added."""
        events, reached = self._events(key, begin, places, end), begin
        try:
            async with asyncio.timeout(READING), aclosing(events):
                async for offset, event in events:
                    reached = offset
                    if type(event) is RollbackEvent:
                        before.append(Rollback(offset, event.id, event.data.to))
                    elif is_end(event, key, text):
                        return Ending(offset)
        except TimeoutError:
            if places.complete and not before:
                self._note(key, text, reached)  # the next look goes on there
            raise WaitTimedOut(
                f"text in progress of {key.conversation}: what came since it began could not be"
                f" read within {READING:g} s: try again shortly",
                AGAIN,
            ) from None
        return None

    async def _events(
        self, key: Key, begin: int, places: Places, end: int
    ) -> AsyncGenerator[Logged, None]:
        """The conversation's events from ``begin`` on, ascending."""
        log, partition = self._backend.log, self._partition(key)
        if places.complete:
            async for logged in self._scanned(key, begin, places.since - 1):
                yield logged
        pieces = Pieces(log, partition, READ_PART, FEW_BYTES)
        async for _, found in pieces.events(key, places.offsets):
            for logged in found:
                yield logged
        async for logged in self._scanned(key, max(begin, places.applied + 1), end - 1):
            yield logged

    async def _scanned(self, key: Key, first: int, last: int) -> AsyncIterator[Logged]:
        log, name = self._backend.log, str(key).encode()
        with TimeSlices(SLICE).begin() as part:
            async for raw in log.scan(self._partition(key), first, last):
                if part.over:
                    await part.rest()
                event = event_of(raw, key, log.seals) if raw.key == name else None
                if event is not None:
                    yield raw.offset, event

    async def _accepted(self, key: Key, since: int, rollbacks: list[Rollback]) -> Ending | None:
        """The first of these rollbacks that goes to before a text's beginning, if one does."""
        if not rollbacks:
            return None
        ids = await self._windows.recent_ids(key, rollbacks[-1].offset)
        for rollback in rollbacks:
            if rollback.goes_before(since, ids):
                return Ending(rollback.offset, rollback=True)
        return None


def places_of(key: Key, stored: Stored, begin: int, applied: int) -> Places:
    """Where a conversation's events stand from ``begin`` on, by its window."""
    with stored_form(key):
        head = decode_head(stored.fields[HEAD])
    if head.erased:
        return Places(begin, [], applied, erased=head.position)
    ids = stored.recent_ids(key)
    since = max(begin, ids.since)
    offsets, complete = ids.between(since, applied) or [], since - begin <= SCAN
    parked = head.quarantine
    if parked is not None:
        waiting = [parked.offset, *waiting_offsets(parked)]
        # Of more than it names, the last ones may be of the text, and are not known.
        complete = complete and (parked.count < len(waiting) or parked.last < begin)
        offsets += [offset for offset in waiting if begin <= offset <= applied]
    return Places(since, offsets, applied, complete)
