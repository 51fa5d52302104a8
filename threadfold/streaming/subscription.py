"""One subscriber of a conversation: the events that it missed, then those of its channel, each
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from projections.fold.apply import id_hash_of
from streams.log.log import Row
from threadfold.streaming.catchup import Missed
from threadfold.streaming.channel import GONE, Channel
from threadfold.streaming.decoding import decode_record
from threadfold.streaming.reader import CHUNK, Reader, batches_of
from threadfold.streaming.sse_event import HEARTBEAT, SseEvent
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
    ) -> None:
        self._channel = channel
        self._reader = reader
        self._windows = windows
        self._joined = joined
        self._again = again
        self._close = close
        self._heartbeat = heartbeat

    def close(self) -> None:
        """Leave the channel; may be called more than once."""
        self._close()

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
                async for batch in self._published(missed):
                    yield batch
            if not self._reader.overflowed:
                break
            self._joined = await self._again(upto - 1)
        self._reader.joining = False

    async def _published(self, missed: Missed) -> AsyncIterator[list[SseEvent]]:
        batch: list[SseEvent] = []
        size = 0
        chain: dict[int, None] = {}
        async for row in missed.rows():
            found = decode_record(
                row, self._channel.partition, self._channel.key, self._channel.seals
            )
            if found is None or self._repeats(row, found.id):
                continue
            summary = found.sse.event == "summary"
            if found.judged and (summary or row.offset >= missed.first):
                if batch:
                    yield batch
                    batch, size = [], 0
                verdict = asyncio.ensure_future(
                    self._windows.accepted(self._channel.key, row.offset, found.id, summary, chain)
                )
                try:
                    while not (await asyncio.wait({verdict}, timeout=self._heartbeat))[0]:
                        yield [HEARTBEAT]
                finally:
                    verdict.cancel()
                if not verdict.result():
                    continue
            batch.append(found.sse)
            size += len(found.sse.data)
            if found.last:
                self._reader.end(GONE)
            if size >= CHUNK or len(batch) >= 256:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _repeats(self, row: Row, id: str) -> bool:  # noqa: A002
        seen = self._channel.recent_ids.find(id_hash_of(id))
        return seen is not None and seen.offset < row.offset
