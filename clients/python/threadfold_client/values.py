"""What a caller hands in to be appended: items of JSON values. What JSON does not have is refused,
where an encoder would write text or null in its place.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from math import isfinite
from typing import Any
from uuid import UUID

import msgspec

from threadfold_client.errors import Invalid

_TEXT = frozenset({str})
_PLAIN = frozenset({str, int, bool, type(None)})
_TURNED_INTO_TEXT = (
    bytes,
    bytearray,
    memoryview,
    datetime.datetime,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    UUID,
    Decimal,
)


def items_of(given: Any, noun: str) -> list[Any]:
    """One item or several as a list; their values are checked.

    Raises:
        Invalid: it is neither, or a value is none of JSON's; the error names its item and field.
    """
    if isinstance(given, Mapping):
        listed = [given]
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes | bytearray):
        listed = list(given)
    else:
        article = "an" if noun[0] in "aeiou" else "a"
        raise _invalid(
            f"expected {article} {noun} (a dictionary) or a list of them, got {_name(given)}"
        )
    for number, item in enumerate(listed, 1):
        check_values(item, noun, number)
    return listed


def check_values(item: Any, noun: str, number: int) -> None:
    """Check the values of an item; raises :class:`Invalid` as :func:`items_of`."""
    try:
        if _is_plain(item):
            return
        found = _first_wrong(dict(item) if isinstance(item, Mapping) else item, "")
    except RecursionError:
        raise _invalid(f"{noun} {number}: it is nested too deep") from None
    if found is not None:
        place, reason = found
        raise _invalid(f"{noun} {number}: {f'field {place}: ' if place else ''}{reason}")


def _is_plain(value: Any) -> bool:
    """Whether it has only values of JSON's own types: nearly every item does, and this is fast."""
    kind = type(value)
    if kind is dict:
        return _TEXT.issuperset(map(type, value)) and _are_plain(value.values())
    if kind is list:
        return _are_plain(value)
    return isfinite(value) if kind is float else kind in _PLAIN


def _are_plain(values: Collection[Any]) -> bool:
    return _PLAIN.issuperset(map(type, values)) or all(map(_is_plain, values))


def _first_wrong(value: Any, place: str) -> tuple[str, str] | None:
    """The place of the first value that JSON does not have, and what is wrong with it."""
    if type(value) in _PLAIN or isinstance(value, msgspec.Raw):
        return None
    if isinstance(value, dict):
        return _first_of_object(value, place)
    if isinstance(value, list | tuple):
        each = (_first_wrong(one, f"{place}[{i}]") for i, one in enumerate(value))
        return next((found for found in each if found is not None), None)
    if type(value) is float:
        return None if isfinite(value) else (place, f"expected a JSON value, got {value}")
    refused = place, f"expected a JSON value, got {_name(value)}"
    if isinstance(value, _TURNED_INTO_TEXT):
        return refused
    try:  # an enumeration's member, a set, an object with fields
        plain = msgspec.to_builtins(value, builtin_types=_TURNED_INTO_TEXT)
    except TypeError:
        return refused
    return _first_wrong(plain, place)


def _first_of_object(value: dict[Any, Any], place: str) -> tuple[str, str] | None:
    for key, one in value.items():
        if not _is_key(key):
            return place, f"expected text as a key, got {_name(key)}"
        found = _first_wrong(one, f"{place}.{key}" if place else str(key))
        if found is not None:
            return found
    return None


def _is_key(key: Any) -> bool:
    """Whether JSON can have it as a key: text, or a number as text."""
    if type(key) is str:
        return True
    if isinstance(key, _TURNED_INTO_TEXT) or (type(key) is float and not isfinite(key)):
        return False
    try:
        msgspec.json.encode({key: None})
    except TypeError:
        return False
    return True


def _name(value: Any) -> str:
    return type(value).__name__


def _invalid(detail: str) -> Invalid:
    return Invalid(detail, status=422, type="invalid-event", title="Invalid event")
