"""One subscriber of a conversation: the events that it missed, then those of its channel, each
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

from projections.fold.apply import id_hash_of
from streams.log.log import Row
from threadfold.service.documents import beside
from threadfold.streaming.catchup import Missed
from threadfold.streaming.channel import GONE, Channel
from threadfold.streaming.decoding import StreamRecord, decode_record
from threadfold.streaming.past_pages import PastPages
from threadfold.streaming.reader import CHUNK, Reader, batches_of
from threadfold.streaming.sse_event import SseEvent
from threadfold.streaming.unsent import TenantStreams
from threadfold.streaming.windows import Windows


class Joined(NamedTuple):
    """The missed events, up to the offset from which the channel's readers get all events."""

    missed: Missed | None
    upto: int


class Subscription:
    """A subscription of :meth:`threadfold.streaming.Live.open`. Iterate :meth:`batches` once, and
    :meth:`close` it in any case.

    Args:
        again: joins the channel again after an offset, if too many new events came while the missed
            ones were read.
    """

    def __init__(
        self,
        channel: Channel,
        reader: Reader,
        windows: Windows,
        joined: Joined,
        again: Callable[[int], Awaitable[Joined]],
        close: Callable[[], None],
        heartbeat: float,
        tenant: TenantStreams,
    ) -> None:
        self._tenant = tenant
        self._pages = PastPages(reader, tenant.past, heartbeat)
        self._channel = channel
        self._reader = reader
        self._windows = windows
        self._joined = joined
        self._again = again
        self._close = close

    def close(self) -> None:
        """Leave the channel; may be called more than once."""
        self._pages.close()
        self._close()

    def on_cut(self, callback: Callable[[], None]) -> None:
        """Call back if the batch that is being sent is not to be sent to its end: it is too slow,
        and others wait for what it holds.
        """
        self._reader.on_cut = callback

    async def batches(self) -> AsyncIterator[list[SseEvent]]:
        """The events in order, with comments: heart-beats, and the reason at the end. It closes the
        subscription at its end.
        """
        try:
            async for batch in batches_of(self._reader, self._past()):
                yield batch
        finally:
            self.close()

    async def _past(self) -> AsyncIterator[list[SseEvent]]:
        while self._reader.ended is None:
            missed, upto = self._joined
            if missed is not None:
                batches_of = partial(self._batches_of, missed.first, {})
                async for batch in self._pages.batches(missed.next_page, batches_of):
                    yield batch
            if not self._reader.overflowed or not self._reader.sends:
                break
            self._joined = await self._again(upto - 1)
        self._reader.joining = False

    async def _batches_of(
        self, scanned: int, chain: dict[int, None], rows: Sequence[Row]
    ) -> AsyncGenerator[list[SseEvent], None]:
        """A page's events. ``scanned``: from this offset on the log was scanned; ``chain``: what is
        known of the summaries.
        """
        batch: list[SseEvent] = []
        size = 0
        with self._tenant.slices.begin() as own:
            for row in rows:
                if own.over:
                    await own.rest()
                found = await self._decoded(row)
                if found is None or (self._repeats(row, found.id) and not found.last):
                    continue
                if self._is_to_be_judged(row, found, scanned):
                    own.give_up()
                    if batch:
                        yield batch
                        batch, size = [], 0
                    verdict = asyncio.ensure_future(self._accepted(row, found, chain))
                    async for beat in self._pages.beats_until(verdict):
                        yield beat
                    if not verdict.result():
                        continue
                batch.append(found.sse)
                size += len(found.sse.data)
                if found.last:
                    self._reader.end(GONE)
                if size >= CHUNK or len(batch) >= 256:
                    own.give_up()
                    yield batch
                    batch, size = [], 0
        if batch:
            yield batch

    def _is_to_be_judged(self, row: Row, found: StreamRecord, scanned: int) -> bool:
        """Whether the fold says if this counts: of the history all events do but summaries."""
        return found.judged and (found.sse.event == "summary" or row.offset >= scanned)

    async def _accepted(self, row: Row, found: StreamRecord, chain: dict[int, None]) -> bool:
        summary = found.sse.event == "summary"
        return await self._windows.accepted(self._channel.key, row.offset, found.id, summary, chain)

    async def _decoded(self, row: Row) -> StreamRecord | None:
        """What subscribers get of a record, its frame included; beside others' streams if it is
        large.
        """
        channel = self._channel

        def decode() -> StreamRecord | None:
            found = decode_record(row, channel.partition, channel.key, channel.seals)
            if found is not None:
                _ = found.sse.frame  # it is made here
            return found

        return await beside(len(row.value or b""), self._tenant.turns, self._tenant.name, decode)

    def _repeats(self, row: Row, id: str) -> bool:  # noqa: A002
        seen = self._channel.recent_ids.find(id_hash_of(id))
        return seen is not None and seen.offset < row.offset
