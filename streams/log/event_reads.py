"""The events of one conversation, read from its log as a fold of them needs them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import TypeVar

from projections.errors import KafkaUnavailable
from projections.fold.known_events import KnownEvents, NotRead
from projections.fold.replay import Logged
from projections.names import Key
from streams.log import history
from streams.log.history import Piece, Pieces
from streams.log.log import Log

T = TypeVar("T")
KEPT_BYTES = 32 << 20
"""Bytes of events that are kept while more are read. Those that were read first are forgotten, and
are read again where they are needed.
"""


class EventReads:
    """Reads events, and forgets them. One call at a time."""

    def __init__(self, log: Log, key: Key, partition: int, kept_bytes: int | None = None) -> None:
        self.texts = KnownEvents(whole=False)
        """The events that are known now."""
        self._key = key
        self._kept_bytes = kept_bytes
        self._pieces = Pieces(log, partition)

    async def rows(self, offsets: Sequence[int]) -> Piece:
        """The records at the first of these offsets, as many as are read at once, for who adds
        their events, and then weighs them.
        """
        self._make_room()
        return await self._pieces.read(offsets)

    async def read(self, offsets: Iterable[int]) -> None:
        """Have the events at these offsets, as far as the log has them."""
        async for _ in self.pieces(self.texts.unread(offsets)):
            pass

    async def done(self, work: Callable[[], T], *, in_thread: bool = True) -> T:
        """What the work returns; it is called again as often as it needs events. Raises as
        :meth:`read_needed`.
        """
        while True:
            try:
                return await asyncio.to_thread(work) if in_thread else work()
            except NotRead as needed:
                await self.read_needed(needed)

    async def read_needed(self, needed: NotRead) -> None:
        """Have the first of the events that a fold needs to go on.

        Raises:
            KafkaUnavailable: the log has lost them since they were read. The next fold finds that
                at its beginning.
        """
        if not needed.offsets:
            raise KafkaUnavailable(
                f"events of {self._key.shown} are gone that were read a moment ago: it begins again"
            )
        self._make_room()
        async with aclosing(self.pieces(needed.offsets)) as pieces:
            await anext(pieces)

    async def pieces(self, offsets: Sequence[int]) -> AsyncGenerator[Sequence[Logged], None]:
        """The events at these offsets, as far as the log has them, in pieces; they are kept."""
        async for piece, found in self._pieces.events(self._key, offsets):
            self.texts.have_read(piece.asked, found, piece.size)
            yield found

    def forget_all(self) -> None:
        """Know nothing any more. Nobody may use the ``texts`` that were known."""
        self.texts = KnownEvents(whole=False)

    def _make_room(self) -> None:
        kept = KEPT_BYTES if self._kept_bytes is None else self._kept_bytes
        self.texts.forget(max(0, kept - history.READ_BYTES))
