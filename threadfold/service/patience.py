"""How long an answer waits for what feeds a store or an index."""

from __future__ import annotations

import time

from streams.memory.topic_feed import TopicFeed

PATIENCE = 5.0
BUSY = 0.25
"""Seconds that a search waits for turns that are in the log already: soon after the start, and
later, while the index is built of a long log.
"""
STARTING = 20.0


class Patience:
    """Counts from the first answer on."""

    def __init__(self) -> None:
        self._since: float | None = None

    def of(self, feed: TopicFeed) -> float:
        """Seconds to wait for a feed: none where it is known to fail."""
        if self._since is None:
            self._since = time.monotonic()
        if feed.is_failing:
            return 0.0
        starting = time.monotonic() < self._since + STARTING
        return PATIENCE if starting or feed.is_ready else BUSY
