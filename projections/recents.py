"""The last 1,024 event ids of a conversation with their positions, so that a repeat is known and its first position can be told.

Packed: 16 bytes of the id's SHA-256, then the offset doubled plus one bit for "skipped", big-endian in 8 bytes. 24 KiB a conversation
at most, searched with one ``bytes.find``. Two different ids agree in 128 bits with a chance of about 2^-118 per window of 1,024.
"""

from __future__ import annotations

from typing import NamedTuple

RECORD = 24
LIMIT = 1_024


class Seen(NamedTuple):
    """Where an id was first applied; ``rejected`` when its event was skipped by the fold (a stale summary, say)."""

    offset: int
    rejected: bool


class Recents:
    """A bounded, insertion-ordered map from event id to its first position.

    ``added`` counts all records ever added, so that a store can tell which it has not written yet.
    """

    __slots__ = ("_packed", "added")

    def __init__(self, packed: bytes = b"") -> None:
        self._packed = bytearray(packed)
        self.added = len(packed) // RECORD

    def find(self, id_hash: bytes) -> Seen | None:
        """Look an id up by its SHA-256."""
        wanted = id_hash[:16]
        at = self._packed.find(wanted)
        while at >= 0 and at % RECORD:
            at = self._packed.find(wanted, at + 1)
        if at < 0:
            return None
        packed = int.from_bytes(self._packed[at + 16 : at + RECORD], "big")
        return Seen(packed >> 1, bool(packed & 1))

    def add(self, id_hash: bytes, offset: int, *, rejected: bool = False) -> None:
        """Remember an id; the oldest leaves when there are more than :data:`LIMIT`."""
        self._packed += id_hash[:16] + (offset << 1 | rejected).to_bytes(8, "big")
        self.added += 1
        if len(self._packed) > LIMIT * RECORD:
            del self._packed[:RECORD]

    def last(self, n: int) -> list[bytes]:
        """The newest ``n`` records, oldest first (fewer when fewer are held)."""
        packed = bytes(self._packed[-min(n, LIMIT) * RECORD :]) if n > 0 else b""
        return [packed[i : i + RECORD] for i in range(0, len(packed), RECORD)]

    def packed(self) -> bytes:
        """All records, oldest first."""
        return bytes(self._packed)

    def copy(self) -> Recents:
        """An independent copy."""
        other = Recents(bytes(self._packed))
        other.added = self.added
        return other
