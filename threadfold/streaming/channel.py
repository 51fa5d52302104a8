"""A conversation's channel: what the log and Redis say of it, told once to all its subscribers in
this process.

Records come from the tail in order. One that the fold has to accept first (a summary) holds the
ones behind it back, in a bounded inbox; all others are passed on at once, without a task of their
own. Nothing here waits for a subscriber.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from projections.errors import ThreadfoldError
from projections.fold.apply import id_hash_of
from projections.names import Key, Position
from projections.window.recent_ids import RecentIds
from streams.encryption.payload_cipher import PayloadCipher
from streams.log.log import Row
from threadfold.streaming.decoding import Told, told
from threadfold.streaming.partial_text import Delta, PartialText
from threadfold.streaming.reader import Reader
from threadfold.streaming.sse_event import SseEvent
from threadfold.streaming.windows import AGAIN, State, Windows

logger = logging.getLogger(__name__)
MOST_WAITING = 20_000
MOST_WAITING_BYTES = 32 << 20
"""What may wait behind an event that cannot be judged: records, and bytes of them; beyond, the
subscribers have to come again.
"""
STATE_EVERY = 0.05
"""Seconds between two looks at a conversation's state."""
GONE = "the conversation is erased"


class Channel:
    """One conversation's, while anybody here is interested in it.

    Args:
        next_of: the offset from which on the tail has still to deliver the conversation's
        partition. on_message: told the turn and beginning of each partial text that a message
        ended.
    """

    def __init__(
        self,
        key: Key,
        partition: int,
        windows: Windows,
        seals: PayloadCipher,
        next_of: Callable[[int], int],
        on_message: Callable[[Key, str, int], None],
    ) -> None:
        self.key = key
        self.seals = seals
        self.partition = partition
        self.readers: set[Reader] = set()
        self.holds = 0
        """How many are interested in it that are no subscribers."""
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.recents = RecentIds()
        self.saying = PartialText()
        self.torn: Callable[[], None] = lambda: None
        """Called when text in progress has to be read from Redis again."""
        self._windows = windows
        self._next_of = next_of
        self._on_message = on_message
        self._inbox: deque[tuple[int, Told] | Delta] = deque()
        self._inbox_bytes = 0
        self._held = True
        self._work: asyncio.Task[None] | None = None
        self._state: State | None = None
        self._stating: asyncio.Task[None] | None = None
        self._told = -1
        self._stated = -1
        self._passing: asyncio.TimerHandle | None = None

    # -- subscribers
    # ------------------------------------------------------------------------------------------

    def open(self, state: State | None, told: int, stated: int) -> None:
        """Begin telling: until now what came was kept in the inbox.

        Args:
            state: the conversation's, as of offset ``stated``.
            told: the last offset that is not to be told any more.
        """
        self._state, self._told, self._stated = state, told, stated
        self._held = False
        self._drain()

    def add(self, reader: Reader) -> int:
        """Let a reader have everything from an offset on, which is returned; what stands now comes
        first.
        """
        self.readers.add(reader)
        for sent in [*([self._state.sent] if self._state else []), *self.saying.so_far()]:
            reader.put(sent)
        if self._told > self._stated:
            self._look_at_state()  # nobody looked while there were no readers
        return next(
            (item[0] for item in self._inbox if isinstance(item, tuple)),
            self._next_of(self.partition),
        )

    def close(self, reason: str) -> None:
        """End all readers and everything under way."""
        for reader in list(self.readers):
            reader.end(reason)
        for task in (self._work, self._stating):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        if self._passing is not None:
            self._passing.cancel()
        self._inbox.clear()

    # -- what comes
    # ------------------------------------------------------------------------------------------

    def deliver(self, row: Row, partition: int) -> None:
        """A record of the conversation, from the tail."""
        found = told(row, partition, self.key, self.seals)
        if found is None:
            return
        if not self._held and not found.judged:
            self._tell(row.offset, found)
        else:
            self._keep((row.offset, found), len(found.sent.data))

    def said(self, delta: Delta) -> None:
        """A piece of text in progress, from Redis."""
        if self._held:
            self._keep(delta, len(delta.text))
        else:
            self._say(self.saying.delta(delta))

    def said_so_far(self, turn: str, since: int, text: str) -> None:
        """The text in progress, as Redis holds it."""
        self._say(self.saying.held(turn, since, text))

    def dropped(self, turn: str, since: int) -> None:
        """Text in progress ended without a message."""
        self._say(self.saying.dropped(turn, since))

    def broken(self, reason: str) -> None:
        """Records cannot be delivered any more: all readers have to come again."""
        for reader in list(self.readers):
            reader.end(reason)
        self._inbox.clear()
        self._inbox_bytes = 0

    # -- telling
    # ------------------------------------------------------------------------------------------

    def _keep(self, item: tuple[int, Told] | Delta, size: int) -> None:
        self._inbox.append(item)
        self._inbox_bytes += size
        if len(self._inbox) > MOST_WAITING or self._inbox_bytes > MOST_WAITING_BYTES:
            logger.warning(
                "too much waits behind an event of %s that cannot be judged: its subscribers have"
                " to come again",
                self.key,
            )
            self.broken("more waits than may wait here: connect again with Last-Event-ID")
        elif not self._held:
            self._drain()

    def _drain(self) -> None:
        """Tell what waits in the inbox, up to an event that is to be judged first."""
        while self._inbox:
            item = self._inbox[0]
            if isinstance(item, tuple) and item[1].judged:
                self._held = True
                self._work = asyncio.create_task(self._judge(item), name=f"judging-{self.key}")
                return
            self._inbox.popleft()
            if isinstance(item, tuple):
                self._tell(*item)
            else:
                self._say(self.saying.delta(item))
        self._inbox_bytes = 0

    async def _judge(self, item: tuple[int, Told]) -> None:
        offset, found = item
        accepted = await self._windows.accepted(
            self.key, offset, found.id, found.sent.event == "summary"
        )
        if self._inbox and self._inbox[0] is item:
            self._inbox.popleft()
            if accepted:
                self._tell(offset, found)
        self._held = False
        self._drain()

    def _tell(self, offset: int, found: Told) -> None:
        id_hash = id_hash_of(found.id)
        seen = self.recents.find(id_hash)
        if seen is not None and seen.offset < offset:
            return
        if seen is None:
            self.recents.add(id_hash, offset)
        for reader in self.readers:
            if reader.after < offset:
                reader.put(found.sent)
        if found.ends is not None:
            saying = self.saying
            if saying.turn is not None and saying.since <= offset:
                self._on_message(self.key, saying.turn, saying.since)
            self._say(saying.message(offset, found.ends))
        if found.last:
            self.broken(GONE)
        self._told = offset
        if self.readers:
            self._look_at_state()

    def _say(self, sents: list[SseEvent]) -> None:
        for sent in sents:
            self._broadcast(sent)
        if self.saying.torn:
            self.torn()
        if self.saying.waits_for is not None and self._passing is None:
            self._passing = asyncio.get_running_loop().call_later(0.02, self._passed)

    def _passed(self) -> None:
        """A next text waits for the log: look whether it has been read so far."""
        self._passing = None
        self._say([] if self._held else self.saying.passed(self._next_of(self.partition)))

    def _broadcast(self, sent: SseEvent) -> None:
        for reader in self.readers:
            reader.put(sent)

    # -- state
    # ------------------------------------------------------------------------------------------

    def _look_at_state(self) -> None:
        if self._stating is None or self._stating.done():
            self._stating = asyncio.create_task(self._states(), name=f"state-{self.key}")

    async def _states(self) -> None:
        """Read the state once the window includes what was told, until nothing new was told
        meanwhile.
        """
        while self._told > self._stated and self.readers:
            upto = self._told
            await self._windows.reach(Position(self.partition, upto))
            try:
                state = await self._windows.state(self.key)
            except ThreadfoldError as error:
                logger.debug("the state of %s cannot be read: %s", self.key, error)
                await asyncio.sleep(AGAIN)
                continue
            self._stated = upto
            before, self._state = self._state, state
            if state is not None and (before is None or before.core != state.core):
                self._broadcast(state.sent)
            await asyncio.sleep(STATE_EVERY)
