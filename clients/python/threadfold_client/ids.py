"""Ids the client makes, so that a repeated call repeats its events."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Mapping
from typing import Any


def new_id() -> str:
    """A new id in the form of a version 7 UUID (RFC 9562): 48 bits of Unix time in ms, then random
    bits.
    """
    random_bits = secrets.randbits(74)
    value = (
        (time.time_ns() // 1_000_000 & (1 << 48) - 1) << 80
        | 0x7 << 76
        | (random_bits >> 62) << 64
        | 0b10 << 62
        | random_bits & (1 << 62) - 1
    )
    return str(uuid.UUID(int=value))


def with_id(item: Mapping[str, Any] | Any) -> Any:
    """A copy of the event or message, with a new id if it has none; what is no object is returned
    as it is.
    """
    if not isinstance(item, Mapping):
        return item
    return dict(item) if item.get("id") is not None else {**item, "id": new_id()}
