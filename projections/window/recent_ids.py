"""The last 1,024 event ids of a conversation with their positions, so that a repeat is known and
its first position is found.

Of each id the first 8 bytes of its SHA-256 are kept, so a new id is taken for one of the 1,024 with
a chance of 1,024 / 2^64 (one event in 10^16). In memory that is searched through a small filter;
stored, it lies in blocks of 128 records (:func:`block_of`), of which only the newest is ever
written again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate
from operator import sub
from struct import Struct
from sys import byteorder
from typing import NamedTuple

import msgspec

LIMIT = 1_024
BLOCK = 128
"""Records in one stored block."""
_HASH = 8
_BYTES = LIMIT * _HASH
_FILTER_BITS = 16
_encode = msgspec.msgpack.Encoder().encode
_mark = Struct("=Q").pack


class Seen(NamedTuple):
    """Where an id was first applied; ``rejected`` when its event was skipped by the fold (a stale
    summary, say).
    """

    offset: int
    rejected: bool


class RecentIds:
    """A bounded, insertion-ordered map from event id to its first position.

    ``added`` counts all records ever added, so that a store can tell which it has not written yet.
    """

    __slots__ = ("_filter", "_filter_until", "_hashes", "_marks", "added")

    def __init__(self, packed: bytes = b"", added: int | None = None) -> None:
        self._hashes = bytearray()
        self._marks = bytearray()
        self.added = 0
        if packed:
            self._hashes, self._marks = _unpacked([packed])
        self.added = len(self._hashes) // _HASH if added is None else added
        # Made by the first who adds: to look one id up it does not pay.
        self._filter: bytearray | None = None
        self._filter_until = -1

    @classmethod
    def from_blocks(cls, blocks: list[bytes], added: int) -> RecentIds:
        """The newest records of stored blocks, which come in order."""
        recent_ids = cls()
        hashes, marks = _unpacked(blocks)
        recent_ids._hashes, recent_ids._marks = hashes[-LIMIT * _HASH :], marks[-LIMIT * _HASH :]
        recent_ids.added = added
        return recent_ids

    def __len__(self) -> int:
        return len(self._hashes) // _HASH

    def find(self, id_hash: bytes) -> Seen | None:
        """Look an id up by its SHA-256."""
        bits = self._filter
        if bits is not None:
            slot = (id_hash[0] << 8) | id_hash[1]
            if not bits[slot >> 3] >> (slot & 7) & 1:
                return None
        wanted = id_hash[:_HASH]
        at = self._hashes.find(wanted)
        while at >= 0 and at % _HASH:
            at = self._hashes.find(wanted, at + 1)
        if at < 0:
            return None
        mark = int.from_bytes(self._marks[at : at + 8], byteorder)
        return Seen(mark >> 1, bool(mark & 1))

    def add(self, id_hash: bytes, offset: int, *, rejected: bool = False) -> None:
        """Remember an id; the oldest leaves when there are more than :data:`LIMIT`."""
        hashes, bits = self._hashes, self._filter
        hashes += id_hash[:_HASH]
        self._marks += _mark(offset << 1 | rejected)
        self.added = added = self.added + 1
        if len(hashes) > _BYTES:
            del hashes[:_HASH]
            del self._marks[:8]
        if bits is None or added > self._filter_until:
            # Bits of ids that left are cleared all at once, and seldom: at most one look-up in 16
            # passes for nothing.
            self._rebuild_filter()
        else:
            slot = (id_hash[0] << 8) | id_hash[1]
            bits[slot >> 3] |= 1 << (slot & 7)

    @property
    def first(self) -> int | None:
        """The first offset that is held, None where there is none."""
        return int.from_bytes(self._marks[:8], byteorder) >> 1 if self._marks else None

    @property
    def since(self) -> int:
        """From this offset on every id is held that was added; 0 while none can have left."""
        return int.from_bytes(self._marks[:8], byteorder) >> 1 if len(self._hashes) >= _BYTES else 0

    def between(self, first: int, last: int) -> list[int] | None:
        """The offsets from ``first`` to ``last`` at which events counted, repeats not among them;
        None where some may have left.
        """
        if first < self.since:
            return None
        marks = [mark >> 1 for mark in array("Q", self._marks)]
        return marks[bisect_left(marks, first) : bisect_right(marks, last)]

    def packed(self) -> bytes:
        """All records, oldest first."""
        return self._pack(0, len(self._hashes) // _HASH)

    def block_of(self, number: int) -> bytes:
        """The records ``128 * number`` to ``128 * number + 127`` of all ever added, as far as they
        are held.
        """
        first = self.added - len(self._hashes) // _HASH
        return self._pack(max(0, number * BLOCK - first), max(0, (number + 1) * BLOCK - first))

    def copy(self) -> RecentIds:
        """An independent copy."""
        return RecentIds(self.packed(), self.added)

    def _pack(self, first: int, last: int) -> bytes:
        marks = array("Q", self._marks[first * 8 : last * 8])
        steps = [*marks[:1], *map(sub, marks[1:], marks)]
        return _encode((bytes(self._hashes[first * _HASH : last * _HASH]), steps))

    def _rebuild_filter(self) -> None:
        bits = bytearray((1 << _FILTER_BITS) // 8)
        for i in range(0, len(self._hashes), _HASH):
            slot = (self._hashes[i] << 8) | self._hashes[i + 1]
            bits[slot >> 3] |= 1 << (slot & 7)
        self._filter = bits
        self._filter_until = self.added + 3 * LIMIT


_decoder = msgspec.msgpack.Decoder(tuple[bytes, list[int]])


def _unpacked(blocks: list[bytes]) -> tuple[bytearray, bytearray]:
    hashes, marks = bytearray(), bytearray()
    for block in blocks:
        some, steps = _decoder.decode(block)
        if len(some) != _HASH * len(steps):
            raise ValueError(f"{len(some)} bytes of hashes for {len(steps)} recent ids")
        hashes += some
        marks += array("Q", accumulate(steps)).tobytes()
    return hashes, marks


def first_block(added: int) -> int:
    """The number of the oldest block that still holds one of the newest :data:`LIMIT` of ``added``
    records.
    """
    return max(0, added - LIMIT) // BLOCK
