"""What the streams of one tenant hold in memory: live events that are not sent yet, and pages of
the log that streams read again to resume.

Live events wait for nobody: where they are too many, the stream that has sent nothing for longest
ends. A stream that resumes waits: it holds nothing before there is room for its page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol

from streams.log.log import Row
from streams.runtime.keyed_limit import KeyedLimit
from streams.runtime.time_slices import TimeSlices
from threadfold.streaming.sse_event import SseEvent

MOST_UNSENT = 64 << 20
"""Bytes of live events that one tenant's streams may hold. An event counts once, however many
streams hold it.
"""
MOST_PAST = 64 << 20
"""Bytes of the log's pages that one tenant's resuming streams may hold. One page always may."""
READING = 4
"""Pages that one tenant's streams read at a time; one that waits for room still counts."""
COPIES = 2
"""A page's rows are in memory, and the events made of them."""
PATIENCE = 30.0
"""Seconds that a stream may take to send its page while others of its tenant wait for room."""
LOOK = 1.0
"""Seconds between two looks whether it took longer."""
SLICE = 0.001
"""Seconds for which one of a tenant's streams makes a page into events before others have their
turn: some ten events.
"""


OnTurn = Callable[[str], Awaitable[object]]


class Holder(Protocol):
    """Who holds live events."""

    def cut(self) -> None:
        """Give up what it holds."""


class Unsent:
    """Counts the live events that one tenant's streams hold."""

    def __init__(self, most: int = MOST_UNSENT) -> None:
        self.bytes = 0
        self._most = most
        self._holders: dict[Holder, None] = {}
        """The one that has sent nothing for longest comes first."""

    def add(self, holder: Holder, event: SseEvent) -> None:
        """A stream holds an event more. Others are cut where they hold too much together."""
        event.holders += 1
        if event.holders == 1:
            self.bytes += len(event.data)
        self._holders.setdefault(holder)
        while self.bytes > self._most and len(self._holders) > 1:
            oldest = next(iter(self._holders))
            del self._holders[oldest]
            oldest.cut()

    def remove(self, events: Sequence[SseEvent]) -> None:
        """A stream does not hold these any more."""
        for event in events:
            event.holders -= 1
            if not event.holders:
                self.bytes -= len(event.data)

    def moved(self, holder: Holder, *, holds: bool) -> None:
        """A stream has sent something; ``holds``: it still holds something."""
        self._holders.pop(holder, None)
        if holds:
            self._holders[holder] = None


class Page:
    """Rows of the log that one stream holds until it leaves the page."""

    def __init__(self, room: PastRoom, rows: Sequence[Row], cut: Callable[[], None]) -> None:
        self.rows = rows
        self.size = COPIES * sum(len(row.value or b"") for row in rows)
        self.cut = cut
        self._room = room

    def leave(self) -> None:
        """It is sent, or its stream ends; safe to repeat."""
        self.rows = ()
        self._room.give_back(self)


class PastRoom:
    """Room for the pages that the streams of one tenant read of the log. They wait in order.

    Args:
        patience: after so many seconds with one page a stream is cut if another waits.
    """

    def __init__(self, most: int = MOST_PAST, patience: float = PATIENCE) -> None:
        self.bytes = 0
        self._most = most
        self._patience = patience
        self._pages: dict[Page, float] = {}
        """Since when each is held: the oldest comes first."""
        self._reading = asyncio.Semaphore(READING)
        self._next = asyncio.Lock()
        self._left = asyncio.Event()

    async def page(
        self, read: Callable[[], Awaitable[Sequence[Row] | None]], cut: Callable[[], None]
    ) -> Page | None:
        """What ``read`` returns, once there is room for it; None if it returns None. ``cut`` is
        called if the stream takes too long with it.
        """
        async with self._reading:
            rows = await read()
            if rows is None:
                return None
            page = Page(self, rows, cut)
            async with self._next:
                while self._pages and self.bytes + page.size > self._most:
                    await self._one_leaves()
            self._pages[page] = asyncio.get_running_loop().time()
            self.bytes += page.size
        return page

    def give_back(self, page: Page) -> None:
        """A page is not held any more."""
        if self._pages.pop(page, None) is not None:
            self.bytes -= page.size
            self._left.set()

    async def _one_leaves(self) -> None:
        oldest, since = next(iter(self._pages.items()))
        late = asyncio.get_running_loop().time() - since - self._patience
        if late >= 0:
            oldest.cut()
            oldest.leave()
            return
        self._left.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(LOOK, -late)):
                await self._left.wait()


class TenantStreams:
    """What the streams of one tenant share in this process.

    Args:
        turns: for work on many bytes (``threadfold.service.documents.beside``).
        turn: waits until a stream of that tenant may send something; None: at once.
    """

    def __init__(self, name: str, turns: KeyedLimit, turn: OnTurn | None = None) -> None:
        self.name = name
        self.turns = turns
        self._turn = turn
        self.unsent = Unsent()
        self.past = PastRoom()
        self.slices = TimeSlices(SLICE)
        """Pages are made into events in turns of its streams."""
        # Their pages take long to find: conversations' streams do not wait for these.
        self.past_summaries = PastRoom(MOST_PAST // 2)

    async def take_turn(self) -> None:
        """Wait until one of its streams may send something."""
        if self._turn is not None:
            await self._turn(self.name)
