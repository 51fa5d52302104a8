"""Cursors: opaque texts that name a place in one list of one conversation or tenant.

A check in the cursor detects a cursor of another conversation, tenant or route. The check is no
secret and grants nothing: each reader checks what its caller may read.
"""

from __future__ import annotations

import base64
import binascii
from hashlib import sha256

from projections.errors import InvalidPosition
from projections.names import quoted

_CHECK = 8


def write_cursor(about: str, packed: bytes) -> str:
    """A cursor of ``packed``. ``about`` names the list: a route and a key, for example."""
    return base64.urlsafe_b64encode(packed + _check(about, packed)).decode().rstrip("=")


def read_cursor(
    about: str,
    cursor: str,
    whose: str,
    use: str = "the one that its last page gave",
    size: int | None = None,
) -> bytes:
    """The bytes that :func:`write_cursor` packed: ``size`` of them, if it is given.

    Raises:
        InvalidPosition: it is not a cursor of ``about``. The message names ``whose`` it should be,
            and what to ``use``.
    """
    try:
        raw = base64.b64decode(
            cursor.encode() + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True
        )
    except (binascii.Error, ValueError):
        raw = b""
    packed, check = raw[:-_CHECK], raw[-_CHECK:]
    sized = len(raw) > _CHECK if size is None else len(packed) == size
    if not sized or check != _check(about, packed):
        raise InvalidPosition(f"cursor {quoted(cursor, 40)} is not one of {whose}: use {use}")
    return packed


def _check(about: str, packed: bytes) -> bytes:
    return sha256(about.encode("utf-8", "surrogatepass") + b"\n" + packed).digest()[:_CHECK]
