"""The last messages that lists have shown, so that the next list need not read large ones again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

from projections.names import Key
from projections.storage.card import LastMessage

KEPT = 10_000
"""Conversations whose last message is kept; each takes less than a kilobyte."""


class Preview(NamedTuple):
    """The last message of a window with this content; None: it has none."""

    content: Hashable
    last: LastMessage | None


class Previews:
    """Last messages by conversation. Each is of one content of the window, and is found only for
    this content.
    """

    def __init__(self, most: int = KEPT) -> None:
        self._most = most
        self._kept: OrderedDict[Key, Preview] = OrderedDict()

    def find(self, key: Key, content: Hashable) -> Preview | None:
        """What is known of a window with this content; None if nothing is."""
        known = self._kept.get(key)
        if known is None or known.content != content:
            return None
        self._kept.move_to_end(key)
        return known

    def keep(self, key: Key, content: Hashable, last: LastMessage | None) -> None:
        """Keep it, and drop the one that was not asked for for longest."""
        self._kept[key] = Preview(content, last)
        self._kept.move_to_end(key)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def forget(self, key: Key) -> None:
        """Drop a conversation's."""
        self._kept.pop(key, None)
