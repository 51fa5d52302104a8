"""Free-form JSON inside events (metadata, policies, tool schemas, files): what of it can be kept in
a window without loss.

JSON allows more than the window's storage does: numbers of any size, nesting of any depth. What
goes beyond is refused on append and is a dead letter on the log, because a fold that fails on it
would stop its whole partition.
"""

from __future__ import annotations

import math

MAX_DEPTH = 64
_LEAST, _MOST = -(2**63), 2**64 - 1


def why_not_kept(value: object, depth: int = 0) -> str | None:
    """Why a decoded JSON value cannot be kept, or None when it can.

    Kept are integers of 64 bits, finite numbers, well-formed text and at most :data:`MAX_DEPTH`
    levels of arrays and objects.
    """
    if isinstance(value, str):
        return (
            None
            if value.isascii() or _well_formed(value)
            else "text with a lone surrogate is not Unicode"
        )
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return None if _LEAST <= value <= _MOST else "an integer is over 64 bits"
    if isinstance(value, float):
        return None if math.isfinite(value) else "NaN and infinity are not JSON"
    if isinstance(value, dict | list) and depth >= MAX_DEPTH:
        return f"it is nested more than {MAX_DEPTH} levels deep"
    if isinstance(value, dict):
        items = (item for pair in value.items() for item in pair)
        return next(
            (why for item in items if (why := why_not_kept(item, depth + 1)) is not None), None
        )
    if isinstance(value, list):
        return next(
            (why for item in value if (why := why_not_kept(item, depth + 1)) is not None), None
        )
    return f"a {type(value).__name__} is not JSON"


def _well_formed(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
