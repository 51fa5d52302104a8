"""The last 1,024 event ids of a conversation, for projections that pass over repeats; stored in
blocks of which only the newest changes.

Of each id the first 8 bytes of its SHA-256 are kept, as ``projections.window.recent_ids``
does for windows: a new id is taken for a repeat with a chance of 1,024 / 2^64. Positions are not
needed here, so this is a set and an order and nothing else.
"""

from __future__ import annotations

from array import array
from hashlib import sha256

LIMIT = 1_024
BLOCK = 128
COUNT = b"n"
"""The field that says how many ids were ever added."""


class Ids:
    """A bounded set of ids in their order."""

    def __init__(self, fields: dict[bytes, bytes] | None = None) -> None:
        """Args: ``fields`` as stored (see :meth:`changes`). Raises ``ValueError`` when they are
        none.
        """
        fields = fields or {}
        self.added = int(fields.get(COUNT, b"0"))
        blocks = sorted(int(name) for name in fields if name != COUNT)
        self._first = blocks[0] * BLOCK if blocks else 0
        self._order = array("Q", b"".join(fields[b"%d" % number] for number in blocks))
        if self._first + len(self._order) != self.added:
            raise ValueError(
                f"{len(self._order)} ids from number {self._first} on, and {self.added} were added"
            )
        self._known = set(self._order[-LIMIT:])
        self._stored = self.added

    def take(self, id_: str) -> bool:
        """Whether the id is new; it is remembered then, and the oldest forgotten."""
        (short,) = array("Q", sha256(id_.encode("utf-8", "surrogatepass")).digest()[:8])
        if short in self._known:
            return False
        self._order.append(short)
        self._known.add(short)
        self.added += 1
        if len(self._known) > LIMIT:
            self._known.discard(self._order[-LIMIT - 1])
        return True

    def changes(self) -> tuple[dict[bytes, bytes], list[bytes]]:
        """Fields to put and fields to delete, since the last call or since they were read; empty
        when nothing was added.
        """
        if self.added == self._stored:
            return {}, []
        put = {COUNT: b"%d" % self.added}
        oldest = max(0, self.added - LIMIT) // BLOCK
        for number in range(max(oldest, self._stored // BLOCK), (self.added - 1) // BLOCK + 1):
            at = number * BLOCK - self._first
            put[b"%d" % number] = self._order[at : at + BLOCK].tobytes()
        # Only blocks that are stored: those in between came and went within this batch.
        removed = [
            b"%d" % number
            for number in range(self._first // BLOCK, min(oldest, (self._stored - 1) // BLOCK + 1))
        ]
        self._order = (
            self._order[oldest * BLOCK - self._first :]
            if oldest * BLOCK > self._first
            else self._order
        )
        self._first = max(self._first, oldest * BLOCK)
        self._stored = self.added
        return put, removed
