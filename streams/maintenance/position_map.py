"""Where the events of one log stand in another: what a copy at other offsets keeps while it runs.

It lies in temporary files, 8 bytes for each offset of the original, so that a long log needs no
memory of its own.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import tempfile
from collections.abc import Sequence

from projections.events.relocation import NOWHERE
from projections.names import Key, Position, partition_of

_PLACE = struct.Struct("<Q")
_BITS = 20
"""Of a place, the bits of its partition; its offset has the others. 0: nothing is known."""
FAR = 10**17
"""An offset that is later than any."""


class PositionMap:
    """From positions of the original to positions of the copy."""

    def __init__(self, ends: Sequence[int]) -> None:
        """Args: ``ends``: the end offset of each partition of the original. Raises ``OSError`` if
        the temporary folder has no room.
        """
        self.partitions = len(ends)
        self._ends = list(ends)
        self._places = [self._file(end) for end in ends]

    @staticmethod
    def _file(end: int) -> mmap.mmap:
        with tempfile.TemporaryFile() as file:
            size = max(1, end) * _PLACE.size
            try:
                if sys.platform == "darwin":  # which cannot reserve
                    file.truncate(size)
                else:
                    # Not a hole: a full disk would end the process at the first write into it.
                    os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                raise OSError(error.errno, error.strerror, tempfile.gettempdir()) from None
            return mmap.mmap(file.fileno(), 0)

    def put(self, old: Position, new: Position) -> None:
        """Note where an event stands."""
        place = (new.offset << _BITS | new.partition) + 1
        _PLACE.pack_into(self._places[old.partition], old.offset * _PLACE.size, place)

    def get(self, old: Position) -> Position | None:
        """Where an event stands; None where no event is known."""
        if not 0 <= old.offset < self._ends[old.partition]:
            return None
        (place,) = _PLACE.unpack_from(self._places[old.partition], old.offset * _PLACE.size)
        return Position((place - 1) & (1 << _BITS) - 1, (place - 1) >> _BITS) if place else None

    def end(self, partition: int) -> int:
        """The end offset of a partition of the original."""
        return self._ends[partition]

    def of(self, key: Key, partitions: int) -> Moves:
        """The moves of one conversation, in a copy with so many partitions."""
        return Moves(self, partition_of(key, self.partitions), partition_of(key, partitions))

    def close(self) -> None:
        """Give the files up."""
        for place in self._places:
            place.close()


class Moves:
    """Where the events of a conversation are: :class:`projections.events.relocation.Moved`."""

    def __init__(self, places: PositionMap, partition: int, new: int) -> None:
        self._map = places
        self.partition = partition
        self._new = new

    def event(self, position: Position) -> Position:
        """As :meth:`projections.events.relocation.Moved.event` says."""
        if position.partition != self.partition:
            return NOWHERE
        found = self._map.get(position)
        return found if found is not None and found.partition == self._new else NOWHERE

    def until(self, position: Position) -> Position:
        """As :meth:`projections.events.relocation.Moved.until` says."""
        partition, offset = position
        if partition != self.partition:
            return NOWHERE
        if offset >= self._map.end(partition):
            return Position(self._new, FAR)
        while offset >= 0:
            found = self.event(Position(partition, offset))
            if found is not NOWHERE:
                return found
            offset -= 1
        return NOWHERE
