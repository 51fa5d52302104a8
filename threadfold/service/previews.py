"""The last messages that lists have shown, so that the next list need not read large ones again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from projections.names import Key
from projections.storage.card import LastMessage

KEPT = 10_000
"""Conversations whose last message is kept; each takes less than a kilobyte."""


class Previews:
    """Last messages by conversation. Each is of one content of the window, and is found only for
    this content.
    """

    def __init__(self, most: int = KEPT) -> None:
        self._most = most
        self._kept: OrderedDict[Key, tuple[Hashable, LastMessage]] = OrderedDict()

    def find(self, key: Key, content: Hashable) -> LastMessage | None:
        """The last message of a window with this content; None if it is not known."""
        known = self._kept.get(key)
        if known is None or known[0] != content:
            return None
        self._kept.move_to_end(key)
        return known[1]

    def keep(self, key: Key, content: Hashable, last: LastMessage) -> None:
        """Keep it, and drop the one that was not asked for for longest."""
        self._kept[key] = content, last
        self._kept.move_to_end(key)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def forget(self, key: Key) -> None:
        """Drop a conversation's."""
        self._kept.pop(key, None)
