"""What streams read of the windows: whether the fold accepted an event, and the state of a
conversation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from projections.errors import Erased, ThreadfoldError
from projections.fold.apply import id_hash_of
from projections.formats.context_document import summary_of, suspension_of
from projections.names import Key, Position, partition_of
from projections.render.fit_to_limit import DoesNotFit
from projections.render.read_header import AWAITING, read_header_of
from projections.render.render import render_openai
from projections.storage.layout import BASE, HEAD, Base, Head, decode_base, decode_head
from projections.storage.records import stored_form
from projections.window.meta import ActiveSummary
from projections.window.recent_ids import RecentIds
from projections.window.window import Window
from streams.log.log import Log
from streams.runtime.keyed_limit import KeyedLimit, Made
from threadfold.service.conversations import ConversationService
from threadfold.service.documents import size_of, size_to_load
from threadfold.streaming.decoding import previous_of
from threadfold.streaming.sse_event import SseEvent

logger = logging.getLogger(__name__)
WHOLE = 2
"""Whole windows that are read at a time for one tenant's streams."""
AGAIN = 0.2
"""Seconds until windows that could not be read are read again."""
JUDGED = 5.0
"""Seconds for which the fold is waited for, so that its word on a rollback is known."""
_encode = msgspec.json.Encoder().encode


class State(NamedTuple):
    """A conversation's state as an event. ``core`` is the part whose changes are sent, without the
    position.
    """

    core: bytes
    sse: SseEvent


class Windows:
    """Reads the windows of one backend."""

    def __init__(self, backend: ConversationService) -> None:
        self._backend = backend
        self._bases: dict[Key, tuple[bytes, Base]] = {}
        self._turns = KeyedLimit(WHOLE)

    def forget(self, key: Key) -> None:
        """Nobody subscribes to the conversation any more."""
        self._bases.pop(key, None)

    async def accepted(
        self,
        key: Key,
        offset: int,
        id: str,  # noqa: A002
        summary: bool,
        chain: dict[int, None] | None = None,
    ) -> bool:
        """Whether the fold accepted the event of that id at ``offset``; waits until that is known,
        however long.

        An event that is no summary and none of the last 1,024 passes for accepted, as in the
        history.

        Args:
            chain: the active summary and those before it, if they were read already; filled in for
                the next call.
        """
        position = Position(partition_of(key, self._backend.log.partitions), offset)
        while True:
            try:
                await self._backend.wait_for(position, whose=key)
                _, stored = await self._backend.windows.head(key)
                if stored is None:
                    return False
                seen = stored.recent_ids(key).find(id_hash_of(id))
                if seen is not None:
                    return seen.offset == offset and not seen.rejected
                if not summary:
                    return True
                if chain is None:
                    chain = {}
                if not chain:
                    window = await self._of_whole(key, lambda window: window)
                    if window is None:
                        return False
                    chain |= dict.fromkeys(await _chain(self._backend.log, window, offset))
                return offset in chain
            except ThreadfoldError as error:
                logger.debug("an event of %s waits for its window: %s", key, error)
                await asyncio.sleep(AGAIN)

    async def recent_ids(self, key: Key, offset: int) -> RecentIds:
        """The last ids, with the event at ``offset``; none where they cannot be known soon."""
        position = Position(partition_of(key, self._backend.log.partitions), offset)
        try:
            await self._backend.wait_for(position, JUDGED, whose=key)
            _, stored = await self._backend.windows.head(key)
        except ThreadfoldError as error:
            logger.debug("the last ids of %s cannot be read: %s", key, error)
            return RecentIds()
        return RecentIds() if stored is None else stored.recent_ids(key)

    async def reach(self, key: Key, position: Position) -> None:
        """Return once the conversation's window includes the position, however long that takes."""
        while True:
            try:
                return await self._backend.wait_for(position, whose=key)
            except ThreadfoldError as error:
                logger.debug(
                    "the windows of partition %d are waited for: %s", position.partition, error
                )
                await asyncio.sleep(AGAIN)

    async def state(self, key: Key) -> State | None:
        """The conversation's state, None before its first event is folded.

        Raises:
            Healing, CorruptWindow, RedisUnavailable: it cannot be read now.
        """
        head = await self._head(key)
        if head is None or head.position < 0:  # parked at its first event: no place to resume from
            return None
        header = head.read_header
        if head.erased or not header.flat or (not header.suspensions and header.state in AWAITING):
            # Its tokens need a render, or it is not small.
            log = self._backend.log
            return await self._of_whole(key, lambda window: state_of_window(window, log))
        with stored_form(key):
            known = self._bases.get(key)
            if known is None or known[0] != head.base:
                fields = await self._backend.windows.fields(key, [HEAD, BASE])
                head = decode_head(fields[HEAD])
                known = self._bases[key] = (head.base, decode_base(fields[BASE]))
            return _state(
                head.position,
                key,
                self._backend.log,
                head.read_header.state,
                head.read_header.tokens,
                known[1].summary,
                head,
            )

    async def erased(self, key: Key) -> bool:
        """Whether the conversation was erased, or is being erased; raises like :meth:`state`."""
        if self.erasing(key):
            return True
        head = await self._head(key)
        return head is not None and head.erased

    def erasing(self, key: Key) -> bool:
        """Whether its erasure has begun: its window may not have it yet."""
        return self._backend.keys.is_erased(str(key).encode())

    async def token(self, key: Key) -> int | None:
        """The current fencing token, None while no turn is active; raises like :meth:`state`, and
        :class:`Erased`.
        """
        head = await self._head(key)
        if head is None:
            return None
        if head.erased:
            raise Erased(f"conversation {key.conversation} was erased")
        return None if head.turns is None else head.turns.token

    async def _head(self, key: Key) -> Head | None:
        fields = await self._backend.windows.fields(key, [HEAD])
        with stored_form(key):
            return decode_head(fields[HEAD]) if HEAD in fields else None

    async def _of_whole(self, key: Key, make: Callable[[Window], Made]) -> Made | None:
        """What ``make`` returns of a whole window; None where there is none. Of each tenant few at
        a time are in memory, and large ones are worked on in a thread.
        """
        partition = partition_of(key, self._backend.log.partitions)
        rules = self._backend.live_rules()
        async with self._turns.of(key.tenant) as turn:
            _, stored = await self._backend.windows.read(key)
            if stored is None:
                return None
            size = size_to_load(stored, key)
            window = await turn.work(size, lambda: stored.load(key, partition, rules))
            return await turn.work(size_of(window), lambda: make(window))


def state_of_window(window: Window, log: Log) -> State:
    """The state of a whole window."""
    header = read_header_of(window)
    try:
        tokens = header.tokens if header.flat else render_openai(window).tokens
    except DoesNotFit:
        tokens = (
            header.tokens
        )  # more than the ceiling: reading the context says that nothing can be rendered
    return _state(
        window.meta.position, window.key, log, header.state, tokens, window.meta.summary, window
    )


def _state(
    position: int,
    key: Key,
    log: Log,
    state: str,
    tokens: int,
    summary: ActiveSummary | None,
    of: Head | Window,
) -> State:
    partition = partition_of(key, log.partitions)
    suspensions = of.read_header.suspensions if isinstance(of, Head) else of.state.suspensions
    shown = None if summary is None else summary_of(partition, summary)
    if shown is not None:
        del shown["text"]  # whoever follows a conversation got it as an event
    core = {
        "state": state,
        "tokens": tokens,
        "summary": shown,
        "suspensions": [suspension_of(partition, s) for s in suspensions],
    }
    data = _encode({**core, "position": str(Position(partition, position))})
    return State(_encode(core), SseEvent("state", None, data))


async def _chain(log: Log, window: Window, down_to: int) -> list[int]:
    """The offsets of the active summaries, from the latest back to ``down_to``, each with those
    before it.
    """
    found: list[int] = []
    at = window.meta.summary.offset if window.meta.summary else None
    while at is not None:
        found.append(at)
        if at <= down_to:
            break
        position = Position(window.partition, at)
        raw = (await log.read([position])).get(position)
        at = previous_of(raw, window.key, log.seals) if raw is not None else None
    return found
