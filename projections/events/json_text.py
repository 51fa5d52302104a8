"""JSON as callers send it: bounded before it is parsed, and decoded strictly.

A parser makes an object of every value, so what a text costs follows from its values and not from
its bytes: 60 MB of ``[]`` are 30 million lists. The bounds here cost a search through the bytes.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import msgspec

from projections.errors import InvalidRequest, MalformedInput

MAX_VALUES = 100_000
"""Values (texts, numbers, objects, arrays) that one text may hold."""
MAX_DEPTH = 500
"""Levels of arrays and objects that are parsed. What a caller may nest freely has far fewer: their
own check names the event.
"""
_EXPLAINED = 1 << 20
_NESTED = frozenset((dict, list))
"""The types of decoded values that hold others. To look a type up takes a fifth of ``isinstance``,
of which a body asks for each of its values.
"""
_ARRAY = re.compile(rb"[ \t\r\n]*\[")
_HALF_PAIR, _AT_END = re.compile(rb"\\u[dD][89abAB]"), 12
"""Where a text ends soon after half of a surrogate pair, the decoder says that it is truncated."""
PIECE = 1 << 20
"""Bytes of a text that are looked at together."""


def values_at_most(text: bytes) -> int:
    """A bound of the values and keys a JSON text holds, from the bytes that separate them. Such
    bytes inside of strings count, too.
    """
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{") + text.count(b":")


def check_values(text: bytes, most: int = MAX_VALUES) -> None:
    """Raises :class:`InvalidRequest` if a JSON text holds more than ``most`` values and keys."""
    if holds_more(text, most):
        raise _too_many(most)


def holds_more(text: bytes, most: int) -> bool:
    """Whether a JSON text holds more than ``most`` values and keys."""
    if len(text) < most or values_at_most(text) <= most:
        return False
    try:
        return _outside_strings(text, most).values > most
    except InvalidRequest:
        return True


class _Outside(NamedTuple):
    """What stands outside of a JSON text's strings: a bound of its values and keys, colons, and
    white space.
    """

    values: int
    colons: int
    spaces: int


def _outside_strings(text: bytes, most: int) -> _Outside:
    """Count outside of a JSON text's strings, a piece of it at a time: large texts are not copied.

    Raises:
        InvalidRequest: there are more than ``most`` strings.
    """
    values, colons, spaces, quotes, inside, begin = 1, 0, 0, 0, False, 0
    while begin < len(text):
        piece = text[begin : begin + PIECE]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            piece = text[begin : begin + PIECE + 1]  # with what its last character escapes
        begin += len(piece)
        if b"\\" in piece:
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.split(b'"')
        quotes += len(parts) - 1
        if quotes > 2 * most:
            raise _too_many(most)
        outside = b"".join(parts[inside::2])
        values += values_at_most(outside) - 1
        colons += outside.count(b":")
        spaces += len(outside) - len(outside.translate(None, b" \t\r\n"))
        inside ^= len(parts) % 2 == 0
    return _Outside(values, colons, spaces)


def bytes_at_least(text: bytes) -> int:
    """A bound of the bytes that a JSON text has once it is decoded and written as short as it can
    be. Raises :class:`InvalidRequest` as :func:`check_values` does.
    """
    short = 5 * text.count(b"\\u") + text.count(b"\\/")
    return len(text) - short - _outside_strings(text, MAX_VALUES).spaces


def _too_many(most: int) -> InvalidRequest:
    return InvalidRequest(
        f"the body holds more than {most} JSON values: send it in several requests"
    )


def decode(
    text: bytes, what: str = "the body", most: int = MAX_VALUES, *, one_line: bool = False
) -> Any:
    """Decode JSON strictly: no NaN, no half surrogate pairs, no key twice in one object, nothing
    after the value.

    Args: ``one_line``: the text is a line of a file, so that a message names the column alone.

    Raises:
        MalformedInput: it is not such a text, or nests too deeply; the message says where.
        InvalidRequest: it holds more than ``most`` values.
    """
    if not text:
        raise MalformedInput(f"{what} is empty: JSON was expected")
    check_values(text, most)
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        raise MalformedInput(f"{what} is nested more than {MAX_DEPTH} levels deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = _explain(text, error, one_line=one_line)
        raise MalformedInput(f"{what} is not JSON: {why}") from None
    key = _repeated_key(text, _keys(value, what), most)
    if key is not None:
        raise MalformedInput(f"{what} has the key {key[:60]!r} twice in one object")
    return value


_raw_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


def count_items(text: bytes) -> int:
    """How many items a JSON array has, none of them decoded; 0 where the text is none."""
    try:
        return len(_raw_items(text))
    except (msgspec.DecodeError, RecursionError):
        return 0


def items_of(text: bytes, what: str = "the body") -> list[bytes] | None:
    """The items of a JSON array, none of them decoded; None where the text is no array.

    Raises:
        MalformedInput: it is not JSON, as far as that is seen without decoding.
        InvalidRequest: it holds more than :data:`MAX_VALUES` values.
    """
    if _ARRAY.match(text) is None:
        return None
    check_values(text)
    try:
        return [bytes(item) for item in _raw_items(text)]
    except RecursionError:
        raise MalformedInput(f"{what} is nested more than {MAX_DEPTH} levels deep") from None
    except msgspec.DecodeError as error:
        raise MalformedInput(f"{what} is not JSON: {_explain(text, error)}") from None


def _repeated_key(text: bytes, keys: int, most: int) -> str | None:
    """A key that stands twice in one object of the text, of which a parser kept ``keys``."""
    # Each key has a colon behind it. Colons inside of strings make the first count too large.
    if text.count(b":") == keys or _outside_strings(text, most).colons == keys:
        return None
    found: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                found.append(key)
            seen.add(key)

    json.loads(text, object_pairs_hook=look)
    return found[0] if found else None


def _keys(value: object, what: str) -> int:
    """How many keys the objects of a decoded value have together."""
    count, levels, level = 0, 0, [value]
    while level:
        if levels == MAX_DEPTH:
            raise MalformedInput(f"{what} is nested more than {MAX_DEPTH} levels deep")
        levels += 1
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                count += len(one)
                inner += [item for item in one.values() if type(item) in _NESTED]
            elif isinstance(one, list):
                inner += [item for item in one if type(item) in _NESTED]
        level = inner
    return count


def _explain(text: bytes, error: Exception, *, one_line: bool = False) -> str:
    """Where it is malformed. Only the standard library's decoder tells line and column, so it is
    asked about short texts.
    """
    try:
        decoded = text.decode()
    except UnicodeDecodeError as unicode_error:
        return f"it is not UTF-8 at byte {unicode_error.start}"
    if len(text) <= _EXPLAINED:
        try:
            json.loads(decoded)
        except json.JSONDecodeError as found:
            line = "" if one_line else f"line {found.lineno}, "
            return f"{found.msg[:1].lower()}{found.msg[1:]} ({line}column {found.colno})"
        except (RecursionError, ValueError):
            return _plain(error)
    if "truncated" in str(error) and _HALF_PAIR.search(text[-_AT_END:]):
        return "an escape \\u… is half of a surrogate pair"
    return _plain(error)


def _plain(error: Exception) -> str:
    text = str(error).removeprefix("JSON is malformed: ")
    return text[:1].lower() + text[1:]
