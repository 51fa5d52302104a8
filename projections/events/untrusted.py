"""How bytes that others wrote are decoded: records of topics, values of Redis, bodies of answers.

Anything may stand there. Whatever a decoder says of it, to its caller it is one error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, overload

import msgspec

from projections.events.error_places import place_in
from projections.events.json_depth import nested_beyond

MAX_NESTING = 128
"""Levels of arrays and objects in a whole record."""
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec's decoders raise; orjson's and the standard library's raise nothing else that is no
``ValueError``.
"""
_QUOTED = re.compile(r" value (?=['\"])")
T = TypeVar("T")
Decode: TypeAlias = Callable[[bytes | msgspec.Raw | None], T]


class Undecodable(ValueError):
    """Bytes are not what they should be; the message says what is wrong. A record of the log is a
    dead letter then, any other is passed over: never an exception to a user.
    """


@overload
def json_decoder(type_: type[T]) -> Decode[T]: ...


@overload
def json_decoder(type_: Any = Any) -> Decode[Any]: ...


def json_decoder(type_: Any = Any) -> Decode[Any]:
    """A function that decodes JSON as ``type_``; it raises :class:`Undecodable` for anything else,
    and for no value.
    """
    decode = refusing(msgspec.json.Decoder(type_).decode)

    def decode_json(value: bytes | msgspec.Raw | None) -> Any:
        if isinstance(value, bytes):  # a part of one was looked at with it
            check_nesting(value)
        return decode(value)

    return decode_json


def refusing(decode: Callable[[bytes | msgspec.Raw], T]) -> Decode[T]:
    """A decoder of msgspec that raises :class:`Undecodable` for what it cannot decode, and for no
    value.
    """

    def decode_or_refuse(value: bytes | msgspec.Raw | None) -> T:
        try:
            return decode(value or b"")
        except DECODE_ERRORS as error:
            raise Undecodable(without_text(error)) from None

    return decode_or_refuse


def check_nesting(value: bytes) -> None:
    """Raise :class:`Undecodable` for JSON that nests too deep.

    Python's own limit depends on the caller's stack: the same record would be an event here and
    none there.
    """
    # Objects alone take five bytes a level: most records are shorter than that, and their brackets
    # need not be counted.
    if (len(value) > 5 * MAX_NESTING or b"[" in value) and nested_beyond(value, MAX_NESTING):
        raise Undecodable(f"it is nested more than {MAX_NESTING} levels deep")


def without_text(error: Exception) -> str:
    """A decoder's complaint without what it quotes of the payload: dead letters and logs outlive an
    erasure.
    """
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 ({error.reason})"
    text = str(error)
    quoted, place = _QUOTED.search(text), place_in(text)
    end = place.start() if place else len(text)
    if quoted is None or text[end - 1] not in "'\"":
        return text
    return f"{text[: quoted.start()]} value{text[end:]}"
