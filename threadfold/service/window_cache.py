"""A reader's cache of windows: reading a window again transfers only the fields that changed.

The head of a stored window names each other field by a checksum (``projections.storage.layout``).
Most fields never change again, so a reader needs the head and the newest one or two chunks: a few
kilobytes instead of 150. The head is read every time. A field whose checksum is not the head's is
not used.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from projections.formats.context_document import (
    Piece,
    bodies_of,
    is_joined,
    join_context,
    piece_of,
)
from projections.names import Key
from projections.storage.chunks import SMALL
from projections.storage.layout import BASE, HEAD, Base, Head, checksum, decode_base
from streams.runtime.keyed_limit import KeyedLimit
from threadfold.service.documents import beside

_OPENING = b'{"messages":['
Place = tuple[int, Key]
"""A window's generation and conversation."""


@dataclass(slots=True)
class Kept:
    """The cached parts of one window: the base with its checksum, pieces by chunk number, and the
    messages of its context that was read last.
    """

    base_checksum: bytes
    base: Base
    pieces: dict[int, Piece]
    bodies: list[bytes]
    size: int
    names: list[bytes] = field(init=False)
    """The fields to read: the head, the chunk after the newest cached one, and that one while it
    may grow.
    """

    def __post_init__(self) -> None:
        newest = max(self.pieces, default=-1)
        self.names = [HEAD, b"%d" % (newest + 1)]
        if newest >= 0 and len(self.pieces[newest].joined) < SMALL:
            self.names.append(b"%d" % newest)

    def missing(self, head: Head, fields: Mapping[bytes, bytes]) -> list[bytes]:
        """The fields that a context of this head needs, beyond the cache and ``fields``."""
        first = min(head.chunks, default=-1)
        names = [
            b"%d" % n
            for n, s in head.chunks.items()
            if not self._has(n, s, head.skip if n == first else 0)
        ]
        if self.base_checksum != head.base:
            names.append(BASE)
        return [name for name in names if name not in fields]

    def _has(self, number: int, checksum: bytes, skip: int) -> bool:
        piece = self.pieces.get(number)
        return piece is not None and piece.checksum == checksum and piece.skip == skip


class WindowCache:
    """The parts of the windows read last, up to a number of bytes. For one event loop."""

    def __init__(self, max_bytes: int, turns: KeyedLimit | None = None) -> None:
        """Args: ``max_bytes`` of message text, about; 0 caches nothing. ``turns``: within one of
        its tenant's a large document is joined.
        """
        self._max = max_bytes
        self._turns = KeyedLimit(1) if turns is None else turns
        self._kept: OrderedDict[Place, Kept] = OrderedDict()
        self.size = 0
        self.hits = self.misses = 0
        self.prefix_kept = self.prefix_changed = 0
        """Bytes of messages of contexts that were read before, by whether the next context begins
        with them.
        """

    def get(self, place: Place) -> Kept | None:
        """The cached parts of a window, None if there are none."""
        kept = self._kept.get(place)
        if kept is None:
            self.misses += 1
        else:
            self.hits += 1
            self._kept.move_to_end(place)
        return kept

    def drop(self, place: Place) -> None:
        """Drop a window."""
        kept = self._kept.pop(place, None)
        if kept is not None:
            self.size -= kept.size

    def clear(self) -> None:
        """Drop all windows."""
        self._kept.clear()
        self.size = 0

    async def context(
        self,
        place: Place,
        partition: int,
        head: Head,
        fields: Mapping[bytes, bytes],
        max_tokens: int | None,
    ) -> bytes | None:
        """The context document of a window with this head, from ``fields`` and the cache. New parts
        are cached. A large document is joined in a thread, within its tenant's turn.

        Returns None if the window must be read whole and rendered: it needs shortening, or a field
        is not the head's (the window changed between two reads).

        Raises:
            ValueError, KeyError, msgspec.DecodeError: a field is corrupt.
            Overloaded: no turn came in time.
        """
        if not is_joined(head, max_tokens):
            if head.erased:
                self.drop(place)
            return None
        kept = self._kept.get(place)
        size = sum(map(len, fields.values())) + (kept.size if kept is not None else 0)
        make = partial(_joined, partition, head, fields, kept)
        joined = await beside(size, self._turns, place[1].tenant, make)
        if joined is None:
            return None
        document, now, same = joined
        if kept is not None:
            self.prefix_kept += same
            self.prefix_changed += sum(map(len, kept.bodies)) - same
        if now is not kept:
            self._keep(place, now)
        return document

    def _keep(self, place: Place, kept: Kept) -> None:
        self.drop(place)
        if kept.size > self._max:
            return
        self._kept[place] = kept
        self.size += kept.size
        while self.size > self._max:
            self.size -= self._kept.popitem(last=False)[1].size


def _joined(
    partition: int, head: Head, fields: Mapping[bytes, bytes], kept: Kept | None
) -> tuple[bytes, Kept, int] | None:
    """The context document, the parts it is joined of (``kept`` itself if they are the same), and
    how much of the cached messages it begins with; None if a field is not the head's.
    """
    first = min(head.chunks, default=-1)
    pieces: dict[int, Piece] = {}
    for number in sorted(head.chunks):
        skip = head.skip if number == first else 0
        piece = _piece(partition, number, head.chunks[number], skip, fields, kept)
        if piece is None:
            return None
        pieces[number] = piece
    if kept is not None and kept.base_checksum == head.base:
        base = kept.base
    elif BASE in fields and checksum(fields[BASE]) == head.base:
        base = decode_base(fields[BASE])
    else:
        return None
    bodies = bodies_of(partition, head, base, list(pieces.values()))
    document = join_context(partition, head, base, list(pieces.values()), bodies)
    same = 0 if kept is None else _begins_with(document, bodies, kept.bodies)
    if kept is None or base is not kept.base or pieces != kept.pieces:
        kept = Kept(head.base, base, pieces, bodies, _size(base, pieces))
    return document, kept, same


def _begins_with(document: bytes, bodies: Sequence[bytes], before: Sequence[bytes]) -> int:
    """How many bytes of the messages ``before`` a context document begins with; one that differs
    counts as far as it is the same. The document is joined of ``bodies``.
    """
    same, at, equal = 0, len(_OPENING), 0
    # Most are the same object as before: a long document is not read again for them.
    while equal < min(len(bodies), len(before)) and bodies[equal] == before[equal]:
        same += len(before[equal])
        at += len(before[equal]) + 1
        equal += 1
    for body in before[equal:]:
        if not document.startswith(body, at):
            return same + _same(body, document[at : at + len(body)])
        same += len(body)
        at += len(body) + 1
    return same


def _same(one: bytes, other: bytes) -> int:
    """The length of what both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def _piece(
    partition: int,
    number: int,
    checksum: bytes,
    skip: int,
    fields: Mapping[bytes, bytes],
    kept: Kept | None,
) -> Piece | None:
    """The piece of a chunk with this checksum: the cached one, or from the field."""
    known = kept.pieces.get(number) if kept is not None else None
    if known is not None and known.checksum == checksum and known.skip == skip:
        return known
    value = fields.get(b"%d" % number)
    if value is None:
        return None
    piece = piece_of(partition, value, skip)
    return piece if piece.checksum == checksum else None


def _size(base: Base, pieces: dict[int, Piece]) -> int:
    texts = [item.body for item in base.state.pinned]
    size = 1_000 + sum(map(len, texts)) + (len(base.summary.text) if base.summary else 0)
    for piece in pieces.values():
        size += 200 + len(piece.joined) + len(piece.positions) + sum(map(len, piece.system))
    return size
