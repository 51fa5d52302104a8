"""A conversation's channel: sends what the log and Redis say of it to all its subscribers in this
process.

Records come from the tail in order. A record that the fold has to accept first (a summary) blocks
the ones behind it, in a bounded inbox. All others are sent at once, without a task of their own.
Nothing here waits for a subscriber.
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
from threadfold.streaming.decoding import StreamRecord, decode_record
from threadfold.streaming.partial_end import Rollback, ends_text
from threadfold.streaming.partial_text import Delta, PartialText
from threadfold.streaming.reader import Reader
from threadfold.streaming.sse_event import SseEvent
from threadfold.streaming.windows import AGAIN, State, Windows

logger = logging.getLogger(__name__)
MOST_WAITING = 20_000
MOST_WAITING_BYTES = 32 << 20
"""Records, and bytes of them, that may wait behind an event that the fold has not judged yet.
Beyond that the subscribers have to connect again.
"""
STATE_EVERY = 0.05
"""Seconds between two reads of a conversation's state."""
OnMessage = Callable[[Key, str, int], None]
"""Called with the conversation, the turn and the beginning of a partial text that a message ended.
"""
OnRollback = Callable[[Key, Rollback], None]
"""Called with the conversation and a rollback in its log."""
GONE = "the conversation is erased"


class Channel:
    """The channel of one conversation, while anybody here uses it.

    Args:
        next_of: returns the offset of a partition's next record from the tail.
        on_message: called for each partial text that a message of the log ended.
        on_rollback: called for each rollback.
    """

    def __init__(
        self,
        key: Key,
        partition: int,
        windows: Windows,
        seals: PayloadCipher,
        next_of: Callable[[int], int],
        on_message: OnMessage,
        on_rollback: OnRollback,
    ) -> None:
        self.key = key
        self.seals = seals
        self.partition = partition
        self.readers: set[Reader] = set()
        self.users = 0
        """How many subscribers and writers use it (``Channels.acquire``)."""
        self.opening: asyncio.Task[None]
        """Set by ``Channels`` at once; ends once the channel is open."""
        self.recent_ids = RecentIds()
        self.partial = PartialText()
        self.read_again: Callable[[], None] = lambda: None
        """Called when text in progress has to be read from Redis again."""
        self._windows = windows
        self._next_of = next_of
        self._on_message = on_message
        self._on_rollback = on_rollback
        self._inbox: deque[tuple[int, StreamRecord] | Delta] = deque()
        self._inbox_bytes = 0
        self._blocked = True
        self._work: asyncio.Task[None] | None = None
        self._state: State | None = None
        self._state_task: asyncio.Task[None] | None = None
        self._published = -1
        self._state_at = -1
        self._passing: asyncio.TimerHandle | None = None

    # -- subscribers
    # ------------------------------------------------------------------------------------------

    def open(self, state: State | None, published: int, state_at: int) -> None:
        """Begin to send; until now everything went into the inbox.

        Args:
            state: the conversation's, as of offset ``state_at``.
            published: the last offset that is not to be sent any more.
        """
        self._state, self._published, self._state_at = state, published, state_at
        self._blocked = False
        self._drain()

    def add(self, reader: Reader) -> int:
        """Send a reader the present state, and everything from an offset on, which is returned."""
        self.readers.add(reader)
        for event in [*([self._state.sse] if self._state else []), *self.partial.snapshot()]:
            reader.put(event)
        if self._published > self._state_at:
            self._read_state()  # nobody read it while there were no readers
        return next(
            (item[0] for item in self._inbox if isinstance(item, tuple)),
            self._next_of(self.partition),
        )

    def close(self, reason: str) -> None:
        """End all readers and everything under way."""
        for reader in list(self.readers):
            reader.end(reason)
        for task in (self._work, self._state_task):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        if self._passing is not None:
            self._passing.cancel()
        self._inbox.clear()

    # -- input
    # ------------------------------------------------------------------------------------------

    def deliver(self, row: Row, partition: int) -> None:
        """Take a record of the conversation from the tail."""
        found = decode_record(row, partition, self.key, self.seals)
        if found is None:
            return
        if found.last and self.readers:
            # No event waits for the fold to judge it any more: nothing is sent after this one.
            self._inbox.clear()
            self._publish(row.offset, found)
        elif not self._blocked and not found.judged:
            self._publish(row.offset, found)
        else:
            self._keep((row.offset, found), len(found.sse.data))

    def on_delta(self, delta: Delta) -> None:
        """Take a piece of text in progress from Redis."""
        if self._blocked:
            self._keep(delta, len(delta.text))
        else:
            self._send(self.partial.delta(delta))

    def on_stored_text(self, turn: str, since: int, text: str) -> None:
        """Take the text in progress as it is stored in Redis."""
        self._send(self.partial.stored(turn, since, text))

    def on_dropped(self, turn: str, since: int) -> None:
        """A text in progress ended without a message."""
        self._send(self.partial.dropped(turn, since))

    def broken(self, reason: str) -> None:
        """End all readers, because records cannot be delivered in order any more."""
        for reader in list(self.readers):
            reader.end(reason)
        self._inbox.clear()
        self._inbox_bytes = 0

    # -- output
    # ------------------------------------------------------------------------------------------

    def _keep(self, item: tuple[int, StreamRecord] | Delta, size: int) -> None:
        self._inbox.append(item)
        self._inbox_bytes += size
        if len(self._inbox) > MOST_WAITING or self._inbox_bytes > MOST_WAITING_BYTES:
            logger.warning(
                "too many events of %s wait for a summary to be applied: its subscribers have to"
                " connect again",
                self.key,
            )
            self.broken("more waits than may wait here: connect again with Last-Event-ID")
        elif not self._blocked:
            self._drain()

    def _drain(self) -> None:
        """Send what waits in the inbox, up to an event that the fold has to judge first."""
        while self._inbox:
            item = self._inbox[0]
            if isinstance(item, tuple) and item[1].judged:
                self._blocked = True
                self._work = asyncio.create_task(self._judge(item), name=f"judging-{self.key}")
                return
            self._inbox.popleft()
            if isinstance(item, tuple):
                self._publish(*item)
            else:
                self._send(self.partial.delta(item))
        self._inbox_bytes = 0

    async def _judge(self, item: tuple[int, StreamRecord]) -> None:
        offset, found = item
        accepted = await self._windows.accepted(
            self.key, offset, found.id, found.sse.event == "summary"
        )
        if self._inbox and self._inbox[0] is item:
            self._inbox.popleft()
            if accepted:
                self._publish(offset, found)
        self._blocked = False
        self._drain()

    def _publish(self, offset: int, found: StreamRecord) -> None:
        id_hash = id_hash_of(found.id)
        seen = self.recent_ids.find(id_hash)
        if seen is not None and seen.offset < offset and not found.last:
            return
        if seen is None:
            self.recent_ids.add(id_hash, offset)
        for reader in self.readers:
            if reader.after >= offset:
                continue
            if found.last:
                reader.end_now(GONE, found.sse)
            else:
                reader.put(found.sse)
        if found.ends is not None:
            self._end_text(offset, found.id, found.ends)
        if found.back_to is not None:
            self._on_rollback(self.key, Rollback(offset, found.id, found.back_to))
        if found.last:
            self.broken(GONE)
        self._published = offset
        if self.readers:
            self._read_state()

    def _end_text(self, offset: int, message: str, status: str) -> None:
        """End the text that an assistant's message of this id ends."""
        turn, since = self.partial.turn, self.partial.since
        if turn is not None:
            if not ends_text(message, self.key, turn, since):
                return  # another text has become that message, and may have begun at the same time
            if since <= offset:
                self._on_message(self.key, turn, since)
        self._send(self.partial.message(offset, status))

    def _send(self, events: list[SseEvent]) -> None:
        for event in events:
            self._broadcast(event)
        if self.partial.incomplete:
            self.read_again()
        if self.partial.waits_for is not None and self._passing is None:
            self._passing = asyncio.get_running_loop().call_later(0.02, self._passed)

    def _passed(self) -> None:
        """Show a next text that waits for the log, once the log has been read that far."""
        self._passing = None
        self._send([] if self._blocked else self.partial.passed(self._next_of(self.partition)))

    def _broadcast(self, event: SseEvent) -> None:
        for reader in self.readers:
            reader.put(event)

    # -- state
    # ------------------------------------------------------------------------------------------

    def _read_state(self) -> None:
        if self._state_task is None or self._state_task.done():
            self._state_task = asyncio.create_task(self._states(), name=f"state-{self.key}")

    async def _states(self) -> None:
        """Read the state once the window includes what was sent, until nothing new was sent
        meanwhile.
        """
        while self._published > self._state_at and self.readers:
            upto = self._published
            await self._windows.reach(self.key, Position(self.partition, upto))
            try:
                state = await self._windows.state(self.key)
            except ThreadfoldError as error:
                logger.debug("the state of %s cannot be read: %s", self.key, error)
                await asyncio.sleep(AGAIN)
                continue
            self._state_at = upto
            before, self._state = self._state, state
            if state is not None and (before is None or before.core != state.core):
                self._broadcast(state.sse)
            await asyncio.sleep(STATE_EVERY)
