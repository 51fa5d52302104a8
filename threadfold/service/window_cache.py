"""What a reader keeps of the windows it has read, so that reading one again brings only what
changed.

A stored window's head names each of its other fields by a checksum of its bytes
(``projections.storage.layout``). Most fields of a window never change again, so a reader that has
them needs the head and the newest chunk or two: a few kilobytes in place of a hundred and fifty.
Nothing is ever served from here alone: the head is read each time, and a field that does not have
the head's checksum is not used.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from projections.formats.context_document import Piece, is_joined, join_context, piece_of
from projections.names import Key
from projections.storage.layout import BASE, HEAD, Base, Head, checksum, decode_base, decode_head

Place = tuple[int, Key]
"""A window's generation and conversation."""


@dataclass(slots=True)
class Kept:
    """What is known of one window: the base with its checksum, and pieces by chunk number."""

    base_checksum: bytes
    base: Base
    pieces: dict[int, Piece]
    size: int

    def names(self) -> list[bytes]:
        """The fields to ask for: the head, the newest chunk, and the one that may have come after
        it.
        """
        newest = max(self.pieces, default=-1)
        return [HEAD, *([b"%d" % newest] if newest >= 0 else []), b"%d" % (newest + 1)]

    def missing(self, head: Head, fields: Mapping[bytes, bytes]) -> list[bytes]:
        """The fields that a context of this head needs beside what is kept and what is in
        ``fields``.
        """
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
    """The fields of the windows read last, up to a number of bytes; for one event loop."""

    def __init__(self, max_bytes: int) -> None:
        """Args: ``max_bytes`` of message text, about; 0 keeps nothing."""
        self._max = max_bytes
        self._kept: OrderedDict[Place, Kept] = OrderedDict()
        self.size = 0

    def get(self, place: Place) -> Kept | None:
        """What is kept of a window."""
        kept = self._kept.get(place)
        if kept is not None:
            self._kept.move_to_end(place)
        return kept

    def drop(self, place: Place) -> None:
        """Keep nothing of a window any more."""
        kept = self._kept.pop(place, None)
        if kept is not None:
            self.size -= kept.size

    def clear(self) -> None:
        """Keep nothing."""
        self._kept.clear()
        self.size = 0

    def context(
        self, place: Place, partition: int, fields: Mapping[bytes, bytes], max_tokens: int | None
    ) -> bytes | None:
        """The context document from ``fields`` and what is kept; what is new of it is kept from now
        on.

        Returns None when the window has to be read whole and rendered: it is shortened somewhere,
        or a field is not that of its head (the window changed between two reads).

        Raises:
            ValueError, KeyError, msgspec.DecodeError: the fields are not what was stored.
        """
        head = decode_head(fields[HEAD])
        if not is_joined(head, max_tokens):
            if head.erased:
                self.drop(place)
            return None
        kept = self._kept.get(place)
        first = min(head.chunks, default=-1)
        pieces: dict[int, Piece] = {}
        for number in sorted(head.chunks):
            piece = _piece(
                partition,
                number,
                head.chunks[number],
                head.skip if number == first else 0,
                fields,
                kept,
            )
            if piece is None:
                return None
            pieces[number] = piece
        if kept is not None and kept.base_checksum == head.base:
            base = kept.base
        elif BASE in fields and checksum(fields[BASE]) == head.base:
            base = decode_base(fields[BASE])
        else:
            return None
        if kept is None or base is not kept.base or pieces != kept.pieces:
            self._keep(place, Kept(head.base, base, pieces, _size(base, pieces)))
        return join_context(partition, head, base, list(pieces.values()))

    def _keep(self, place: Place, kept: Kept) -> None:
        self.drop(place)
        if kept.size > self._max:
            return
        self._kept[place] = kept
        self.size += kept.size
        while self.size > self._max:
            self.size -= self._kept.popitem(last=False)[1].size


def _piece(
    partition: int,
    number: int,
    checksum: bytes,
    skip: int,
    fields: Mapping[bytes, bytes],
    kept: Kept | None,
) -> Piece | None:
    """The piece of a chunk: as it is kept, or from the field, if that is the one the head means."""
    known = kept.pieces.get(number) if kept is not None else None
    if known is not None and known.checksum == checksum and known.skip == skip:
        return known
    value = fields.get(b"%d" % number)
    if value is None:
        return None
    piece = piece_of(partition, value, skip)
    return piece if piece.checksum == checksum else None


def _size(base: Base, pieces: dict[int, Piece]) -> int:
    text = sum(len(item.body) for item in base.state.pinned) + (
        len(base.summary.text) if base.summary is not None else 0
    )
    return (
        1_000
        + text
        + sum(
            200 + len(piece.joined) + len(piece.positions) + sum(map(len, piece.system))
            for piece in pieces.values()
        )
    )
