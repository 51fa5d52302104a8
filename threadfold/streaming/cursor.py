"""Where a tenant's summaries stream stands: one offset for each partition of the topic, as one
opaque text.
"""

from __future__ import annotations

from collections.abc import Sequence

from projections.errors import InvalidPosition
from threadfold.service import cursors

WHOSE = "this tenant's summaries"


def write_cursor(topic: str, tenant: str, offsets: Sequence[int]) -> str:
    """The cursor of these next offsets; another tenant's, or another topic's, is an error."""
    return cursors.write_cursor(_about(topic, tenant), b"".join(map(_varint, offsets)))


def read_cursor(topic: str, tenant: str, partitions: int, cursor: str) -> list[int]:
    """The next offset of each partition.

    Raises:
        InvalidPosition: it is not a cursor of this tenant's stream.
    """
    packed = cursors.read_cursor(
        _about(topic, tenant), cursor, WHOSE, "the id of an event of this stream"
    )
    offsets = _varints(packed)
    if offsets is None or len(offsets) != partitions:
        raise not_as_now()
    return offsets


def not_as_now() -> InvalidPosition:
    """The error of a cursor that names a place which the topic, as it is, does not have."""
    return InvalidPosition(
        f"the cursor is not one of {WHOSE} as it is now: start again, from the beginning or from"
        " now"
    )


def _about(topic: str, tenant: str) -> str:
    return f"summaries\n{topic}\n{tenant}"


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
