"""Stubs: what is stored in place of the window of a conversation that sleeps, and the packed window
its snapshot carries.

A stub names the record of the snapshots topic that holds the window, and enough of the window to
tell whether what was found is it. The record's body is the window's stored fields as they were,
recent ids and text included, so what comes back is the same byte for byte, with one fetch and
without any event of the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

import cramjam
import msgspec
from msgspec import Struct

from projections.storage.card import CARD, LastMessage
from projections.storage.layout import HEAD, decode_head, last_message_of, pins_results

STUB = b"s"
"""The one field of a stub; no field of a window has this name."""
CHECKSUM_BYTES = 16
ZSTD = b"\x28\xb5\x2f\xfd"
"""How every zstd frame begins, and no field of a window does."""
LEVEL = 3
"""Of zstd: 0.6 ms for a window of 100 KB of chat, to 40 % of its size."""


class Stub(Struct, array_like=True, frozen=True):
    """A sleeping window: ``at`` is its snapshot's offset on the snapshots topic, ``checksum`` the
    first 16 bytes of its body's SHA-256.

    ``position``, ``count`` and ``digest`` (its first 16 bytes) are the window's; ``state`` and
    ``tokens`` its read header's, which lists show, with its ``card`` (field ``c``) and its ``last``
    message. ``pins``: whether it has pinned tool results; None in stubs of former releases.
    """

    at: int
    checksum: bytes
    position: int
    count: int
    digest: bytes
    state: str
    tokens: int
    card: bytes = b""
    last: LastMessage | None = None
    pins: bool | None = None

    def fits(self, position: int, count: int, digest: bytes) -> bool:
        """Whether a window of these figures is the one that sleeps."""
        return (position, count, digest[:CHECKSUM_BYTES]) == (
            self.position,
            self.count,
            self.digest,
        )


encode_stub = msgspec.msgpack.Encoder().encode
"""Encode a stub: 60 to 90 bytes, its card, and up to 80 characters of its last message."""
decode_stub = msgspec.msgpack.Decoder(Stub).decode
"""Decode field ``s``; raises :class:`msgspec.DecodeError`."""


def stub_of(fields: Mapping[bytes, bytes], at: int, body: bytes) -> Stub:
    """The stub of a window with these fields, whose packed form is ``body`` in the record at offset
    ``at``; raises like :func:`projections.storage.layout.load_window`.
    """
    head = decode_head(fields[HEAD])
    return Stub(
        at,
        checksum_of(body),
        head.position,
        head.count,
        head.digest[:CHECKSUM_BYTES],
        head.read_header.state,
        head.read_header.tokens,
        fields.get(CARD, b""),
        last_message_of(fields),
        pins_results(fields),
    )


def checksum_of(body: bytes) -> bytes:
    """What tells one packed window from another."""
    return sha256(body).digest()[:CHECKSUM_BYTES]


def pack(fields: dict[bytes, bytes], id_blocks: dict[bytes, bytes]) -> bytes:
    """A window's stored fields and its recent ids as one compressed value."""
    return bytes(cramjam.zstd.compress(msgspec.msgpack.encode((fields, id_blocks)), level=LEVEL))


def is_packed(body: bytes) -> bool:
    """Whether a snapshot's body is a packed window; one without its text is not
    (``projections.storage.snapshots``).
    """
    return body.startswith(ZSTD)


_packed = msgspec.msgpack.Decoder(tuple[dict[bytes, bytes], dict[bytes, bytes]])


def unpack(body: bytes) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """The fields and recent ids of :func:`pack`; raises :class:`ValueError` when the bytes are not
    its.
    """
    try:
        return _packed.decode(bytes(cramjam.zstd.decompress(body)))
    except cramjam.DecompressionError as error:
        raise ValueError(f"a packed window cannot be read: {error}") from None
