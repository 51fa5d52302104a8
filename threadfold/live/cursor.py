"""Where a tenant's summaries stream stands: one offset for each partition of the topic, as one opaque text."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from hashlib import sha256

from projections.errors import InvalidPosition

_CHECK = 8


def write_cursor(topic: str, tenant: str, offsets: Sequence[int]) -> str:
    """The cursor of these next offsets; the check in it makes another tenant's, or another topic's, an error (it is no secret)."""
    packed = b"".join(map(_varint, offsets))
    return base64.urlsafe_b64encode(_check(topic, tenant, packed) + packed).rstrip(b"=").decode()


def read_cursor(topic: str, tenant: str, partitions: int, cursor: str) -> list[int]:
    """The next offset of each partition.

    Raises:
        InvalidPosition: it is not a cursor of this tenant's stream.
    """
    try:
        raw = base64.b64decode(cursor.encode() + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    check, packed = raw[:_CHECK], raw[_CHECK:]
    offsets = _varints(packed) if check and check == _check(topic, tenant, packed) else None
    if offsets is None or len(offsets) != partitions:
        shown = repr(cursor if len(cursor) <= 40 else cursor[:40] + "…")
        raise InvalidPosition(f"cursor {shown} is not one of this tenant's summaries: use the id of an event of this stream")
    return offsets


def _check(topic: str, tenant: str, packed: bytes) -> bytes:
    return sha256(b"summaries\n" + f"{topic}\n{tenant}\n".encode() + packed).digest()[:_CHECK]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varints(packed: bytes) -> list[int] | None:
    found: list[int] = []
    value = shift = 0
    for byte in packed:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            found.append(value)
            value = shift = 0
    return None if shift else found
