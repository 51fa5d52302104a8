"""Images of one conversation's window at many times, which share what they have in common: nearly
all of its text and of its recent ids.
"""

from __future__ import annotations

from typing import NamedTuple

from projections.names import Key
from projections.policy.policy import Rules
from projections.window.image import decode_entry, decode_meta, encode_entry, encode_meta
from projections.window.recent_ids import BLOCK, LIMIT, RecentIds, first_block
from projections.window.window import Window

_REFERENCE = 8


class SharedImage(NamedTuple):
    """A window at one time: the bytes of its meta, of each entry of its tail, and of the blocks of
    its recent ids.
    """

    meta: bytes
    tail: tuple[bytes, ...]
    blocks: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """Bytes of what it does not share, about."""
        return len(self.meta) + _REFERENCE * (len(self.tail) + len(self.blocks))

    def window(self, key: Key, partition: int, rules: Rules) -> Window:
        """The window, byte for byte."""
        meta = decode_meta(self.meta)
        recent_ids = RecentIds.from_blocks(list(self.blocks), meta.events)
        return Window(key, partition, rules, meta, [decode_entry(e) for e in self.tail], recent_ids)


class SharedImages:
    """Takes images of windows of one conversation; all are folds of the same events."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes that the images share."""
        self._entries: dict[int, bytes] = {}
        self._blocks: dict[int, bytes] = {}

    def take(self, window: Window) -> SharedImage:
        """The image of a window."""
        tail = [self._entry(entry.offset, encode_entry(entry)) for entry in window.tail]
        ids = window.recent_ids
        numbers = range(first_block(ids.added), -(-ids.added // BLOCK))
        blocks = [self._block(ids, number) for number in numbers]
        return SharedImage(encode_meta(window.meta), tuple(tail), tuple(blocks))

    def _entry(self, offset: int, value: bytes) -> bytes:
        known = self._entries.get(offset, b"")
        if known == value:
            return known
        self._entries[offset] = value
        self.size += len(value) - len(known)
        return value

    def _block(self, ids: RecentIds, number: int) -> bytes:
        if (number + 1) * BLOCK > ids.added:
            return ids.block_of(number)  # records will come to it
        known = self._blocks.get(number)
        if known is None:
            known = ids.block_of(number)
            if number * BLOCK >= ids.added - LIMIT:
                self._blocks[number] = known  # it is whole
                self.size += len(known)
        return known
