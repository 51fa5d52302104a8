"""Windows as they were: folded from the log, up to one of its positions.

Nothing is stored of them. The positions of a conversation's events come from its present window
and its summaries, so no partition is scanned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from projections.errors import InvalidRequest
from projections.fold.replay import replay
from projections.names import Key, Position
from projections.policy.policy import Rules
from projections.window.window import Window
from streams.log.history import pieces_backwards, read_events
from streams.log.log import Log
from streams.runtime.keyed_limit import KeyedLimit

MOST_EVENTS = 20_000
"""Events that a caller may have folded for one answer: about two seconds of a core."""
AT_A_TIME = 1
"""Folds of one tenant at a time."""


class PastWindows:
    """Folds windows as they were. ``window_at`` returns a conversation's window once it includes a
    position.
    """

    def __init__(self, log: Log, window_at: Callable[[Key, str], Awaitable[Window]]) -> None:
        self._log = log
        self._window_at = window_at
        self._turns = KeyedLimit(AT_A_TIME)

    async def fold(
        self, key: Key, at: Position, rules: Rules, *, most: int | None = None
    ) -> Window:
        """The window after the conversation's last event at or before ``at``.

        Args:
            most: events that may be folded; None: any number.

        Raises:
            InvalidRequest: there are more.
            UnknownConversation, Erased, WaitTimedOut, Healing, CorruptWindow, RedisUnavailable: the
                present window cannot be read.
            KafkaUnavailable: the log cannot be read now.
        """
        async with self._turns.of(key.tenant):
            now = await self._window_at(key, str(at))
            offsets = await self._offsets(now, at.offset + 1, most)
            if offsets is None:
                raise InvalidRequest(
                    f"the window at {at} is the fold of more than {most} events: choose an earlier"
                    " position"
                )
            found = await read_events(self._log, key, at.partition, offsets)
            return await asyncio.to_thread(replay, key, at.partition, rules, found)

    async def positions(self, window: Window, most: int) -> tuple[list[str], bool]:
        """The positions of the conversation's newest ``most`` events, oldest first, and whether
        these are all.

        Raises:
            KafkaUnavailable: the log cannot be read now.
        """
        found: list[int] = []
        async for _, piece in pieces_backwards(self._log, window):
            found += piece
            if len(found) > most:
                break
        kept = sorted(set(found))[-most:]
        return [window.position_of(offset) for offset in kept], len(found) <= most

    async def _offsets(self, window: Window, below: int, most: int | None) -> list[int] | None:
        """The offsets of the conversation's events before ``below``, ascending; None if there are
        more than ``most``.
        """
        offsets: set[int] = set()
        async for _, piece in pieces_backwards(self._log, window, below=below):
            offsets.update(piece)
            if most is not None and len(offsets) > most:
                return None
        return sorted(offsets)
