"""Chunks: runs of tail entries as they are stored, so that a read joins bytes and a write touches
the end only.

A chunk keeps what is known of its entries in columns, and their bodies one after the other, joined
by commas: where it holds nothing but rendered messages (``mixed`` is false), its bodies are a piece
of the rendered JSON array as they stand.
"""

from __future__ import annotations

from itertools import accumulate, compress
from operator import sub
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from projections.window.entry import LAST_RENDERED, RANGES, Details, Entry, Kind

SMALL = 4_080
"""Bytes up to which entries are gathered in one chunk; with its key and header that is within an
allocator's 4 KiB class.
"""
MERGED = 8
"""Small chunks in a row that are joined into one; the whole is within the 32 KiB class."""

PER_ENTRY = 9
"""About the bytes an entry takes in a chunk beside its body."""


class Chunk(Struct, array_like=True):
    """Columns of entries: offsets (the first, then differences), kinds, tokens, body sizes, what
    few entries have, bodies.
    """

    mixed: bool
    offsets: list[int]
    kinds: bytes
    tokens: list[int]
    sizes: list[int]
    extras: dict[int, Details]
    bodies: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Chunk)
decode_chunk = _decoder.decode
"""Decode a stored chunk; raises :class:`msgspec.DecodeError` when the bytes are not one."""


class _Counted(Struct, array_like=True):
    """The first columns of a chunk."""

    mixed: bool
    offsets: msgspec.Raw
    kinds: bytes


_counted = msgspec.msgpack.Decoder(_Counted).decode


def entry_count(value: bytes) -> int:
    """How many entries a stored chunk has; raises like :data:`decode_chunk`."""
    return len(_counted(value).kinds)


def stored_size(entry: Entry) -> int:
    """About how many bytes an entry takes in a chunk; chunks are divided by it."""
    size = len(entry.body) + PER_ENTRY
    if entry.calls:
        size += sum(len(id_) + len(name) + 38 for id_, name, _ in entry.calls)
    size += 2 * len(entry.positions or ()) + 2 * len(entry.gone or ())
    if entry.variants:
        size += sum(len(variant) + 10 for _, variant, _ in entry.variants)
    return size + len(entry.reasoning)


def encode_chunk(entries: list[Entry]) -> bytes:
    """The stored form of a run of entries."""
    offsets = [e.offset for e in entries]
    kinds = bytes([e.kind for e in entries])
    bodies = [e.body for e in entries]
    extras = {
        i: _details(e)
        for i, e in enumerate(entries)
        if e.calls
        or e.link
        or e.variants
        or e.pinned
        or e.reasoning
        or e.error
        or e.usage_excess is not None
    }
    mixed = max(kinds) > LAST_RENDERED
    if mixed:
        extras |= {i: _details(e) for i, e in enumerate(entries) if e.kind in RANGES}
        mixed = any(e.kind > LAST_RENDERED and e.body for e in entries)
    return _encoder.encode(
        Chunk(
            mixed,
            [*offsets[:1], *map(sub, offsets[1:], offsets)],
            kinds,
            [e.tokens for e in entries],
            list(map(len, bodies)),
            extras,
            b",".join(filter(None, bodies)),
        )
    )


_DETAILS = Details.__struct_fields__


def _details(entry: Entry) -> Details:
    return Details(**{name: getattr(entry, name) for name in _DETAILS})


def entries_of(chunk: Chunk) -> list[Entry]:
    """The entries of a chunk; raises :class:`ValueError` when its columns disagree."""
    n = len(chunk.offsets)
    if not n == len(chunk.kinds) == len(chunk.tokens) == len(chunk.sizes):
        raise ValueError("the columns of a chunk are not of one length")
    entries, offset, at = [], 0, 0
    extras, bodies = chunk.extras, chunk.bodies
    for i in range(n):
        offset += chunk.offsets[i]
        size = chunk.sizes[i]
        body = bodies[at : at + size] if size else b""
        if size:
            at += size + 1
        details = asdict(extras[i]) if i in extras else {}
        entries.append(Entry(offset, chunk.kinds[i], chunk.tokens[i], body, **details))
    if at and at != len(bodies) + 1:
        raise ValueError("the bodies of a chunk are not as long as it says")
    return entries


class _Bodies(Struct, array_like=True):
    """A chunk of which nothing but the offsets and the bodies is decoded."""

    mixed: bool
    offsets: list[int]
    kinds: msgspec.Raw
    tokens: msgspec.Raw
    sizes: list[int]
    extras: msgspec.Raw
    bodies: bytes


_decode_bodies = msgspec.msgpack.Decoder(_Bodies).decode


class Split(NamedTuple):
    """The messages of a stored chunk: ``system`` ones, and rendered ones ``joined`` by commas, each
    with its event's offset.
    """

    system: tuple[bytes, ...]
    joined: bytes
    system_offsets: tuple[int, ...]
    offsets: list[int]


def split_chunk(value: bytes, skip: int) -> Split:
    """The messages of a stored chunk, its first ``skip`` entries left out.

    Raises:
        ValueError, msgspec.DecodeError: it is no chunk.
    """
    if not skip:
        quick = _decode_bodies(value)
        if not quick.mixed:
            offsets = accumulate(quick.offsets)
            with_body = compress(offsets, quick.sizes) if 0 in quick.sizes else offsets
            return Split((), quick.bodies, (), list(with_body))
    entries = entries_of(decode_chunk(value))[skip:]
    system = [e for e in entries if e.kind == Kind.SYSTEM]
    shown = [e for e in entries if e.kind <= LAST_RENDERED and e.body]
    return Split(
        tuple([e.body for e in system]),
        b",".join([e.body for e in shown]),
        tuple([e.offset for e in system]),
        [e.offset for e in shown],
    )
