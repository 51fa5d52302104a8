"""The image of a window: the bytes it is compared, copied and kept in memory as."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from projections.window.entry import Entry
from projections.window.meta import PROGRESS, Meta
from projections.window.recent_ids import RecentIds

_AT = PROGRESS.index("rollback")
_ORDER = (*PROGRESS[:_AT], "base", "summary", *PROGRESS[_AT:])
"""The fields of the meta in the order in which they are stored."""
_TYPES = {field.name: field for field in msgspec.structs.fields(Meta)}
LAST = _ORDER[-1]
"""It is stored only where it says something: windows without it keep the bytes they always had."""
_Stored = msgspec.defstruct(
    "StoredMeta",
    [(name, _TYPES[name].type) for name in _ORDER[:-1]] + [(LAST, _TYPES[LAST].type, None)],
    array_like=True,
)
_encode = msgspec.msgpack.Encoder().encode
_decode_meta = msgspec.msgpack.Decoder(_Stored).decode
encode_entry: Callable[[Entry], bytes] = _encode
decode_entry = msgspec.msgpack.Decoder(Entry).decode


class _Parts(msgspec.Struct, array_like=True):
    meta: bytes
    tail: list[bytes]
    recent_ids: bytes


_decode_parts = msgspec.msgpack.Decoder(_Parts).decode


def encode_meta(meta: Meta) -> bytes:
    """The stored form of a window's meta, for an image or a snapshot."""
    order = _ORDER[:-1] if getattr(meta, LAST) is None else _ORDER
    return _encode([getattr(meta, name) for name in order])


def decode_meta(value: bytes) -> Meta:
    """The meta of its stored form; raises :class:`msgspec.DecodeError` when it is not one."""
    stored: Any = _decode_meta(value)
    return Meta(**{name: getattr(stored, name) for name in _ORDER})


def encode_image(meta: Meta, tail: list[Entry], recent_ids: RecentIds) -> bytes:
    """The image of a window of these parts."""
    return _encode(
        (encode_meta(meta), [encode_entry(entry) for entry in tail], recent_ids.packed())
    )


def decode_image(value: bytes) -> tuple[Meta, list[Entry], RecentIds]:
    """The parts of an image; raises :class:`msgspec.DecodeError` when it is not one."""
    parts = _decode_parts(value)
    meta = decode_meta(parts.meta)
    recent_ids = RecentIds(parts.recent_ids, meta.events)
    return meta, [decode_entry(entry) for entry in parts.tail], recent_ids
