"""Free-form JSON inside events (metadata, policies, tool schemas, files): what of it can be kept in
a window without loss.

JSON allows more than the window's storage does: numbers of any size, nesting of any depth. What
goes beyond is refused on append and is a dead letter on the log, because a fold that fails on it
would stop its whole partition.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

MAX_DEPTH = 64
_LEAST, _MOST = -(2**63), 2**64 - 1
_PLAIN = frozenset({str, int, bool, type(None)})
_packed = msgspec.msgpack.Encoder().encode


def why_not_kept(value: object) -> str | None:
    """Why a decoded JSON value cannot be kept, or None when it can.

    Kept are integers of 64 bits, finite numbers, well-formed text and at most :data:`MAX_DEPTH`
    levels of arrays and objects.
    """
    try:
        # Refuses larger integers and text with surrogates, a hundred times as fast as Python.
        _packed(value)
        if _is_plain(value, 0):
            return None
    except (OverflowError, TypeError, ValueError, RecursionError):
        pass  # the walk finds out why
    return _why_not(value, 0)


def _is_plain(value: object, depth: int) -> bool:
    """Whether there are finite numbers and text alone in few levels. A loop without calls: events
    have thousands of values, and a worker looks at each.
    """
    kind = type(value)
    if kind is dict:
        assert isinstance(value, dict)
        if any(type(name) is not str for name in value):
            return False
        items: Iterable[object] = value.values()
    elif kind is list:
        assert isinstance(value, list)
        items = value
    else:
        return kind in _PLAIN or (kind is float and math.isfinite(value))  # type: ignore[arg-type]
    if depth >= MAX_DEPTH:
        return False
    for item in items:  # noqa: SIM110 (a generator takes twice as long)
        if type(item) not in _PLAIN and not _is_plain(item, depth + 1):
            return False
    return True


def _why_not(value: object, depth: int) -> str | None:
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
        return next((why for item in items if (why := _why_not(item, depth + 1)) is not None), None)
    if isinstance(value, list):
        return next((why for item in value if (why := _why_not(item, depth + 1)) is not None), None)
    return f"a {type(value).__name__} is not JSON"


def _well_formed(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
