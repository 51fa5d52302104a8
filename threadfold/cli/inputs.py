"""Reads JSON lines of events, messages or conversations; an error names the line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from projections.errors import InvalidEvent, MalformedInput
from projections.events.json_text import decode
from projections.events.known_fields import explain_unknown, unknown_field
from projections.window.bodies import MESSAGE_FIELDS, to_flat


def open_lines(path: Path | None) -> Iterator[tuple[int, bytes]]:
    """The lines of a file (None or ``-``: stdin) with their numbers from 1, without blank ones.

    Raises:
        MalformedInput: the file cannot be read.
    """
    if path is None or str(path) == "-":
        yield from _lines(sys.stdin.buffer)
        return
    try:
        with path.open("rb") as file:
            yield from _lines(file)
    except OSError as error:
        raise MalformedInput(
            f"{path} cannot be read: {(error.strerror or str(error)).lower()}"
        ) from error


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(file, 1):
        text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if text.strip():
            yield number, text


def parse_object(line: bytes, where: str) -> dict[str, Any]:
    """The JSON object on a line.

    Raises:
        MalformedInput: the line is not UTF-8, not JSON (as strictly read as over HTTP), or not an
            object.
    """
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise MalformedInput(f"{where}: it is not UTF-8 (byte {error.start + 1})") from None
    value = decode(line.rstrip(b"\r\n"), f"{where}: it", sys.maxsize, one_line=True)
    if not isinstance(value, dict):
        raise MalformedInput(f"{where}: expected a JSON object, got another JSON value")
    return value


def flat_event(value: dict[str, Any], where: str) -> dict[str, Any]:
    """A flat event as it is; an OpenAI-format message (``role`` and no ``type``) as the event it
    means.

    Raises:
        InvalidEvent: as :func:`message_event` says.
    """
    return message_event(value, where) if "type" not in value and "role" in value else value


def message_event(message: object, where: str) -> dict[str, Any]:
    """The event that an OpenAI-format message means.

    Raises:
        InvalidEvent: the message has an unknown field or role; the event's own check finds other
            faults.
    """
    field = unknown_field(message, MESSAGE_FIELDS)
    if field is not None:
        raise InvalidEvent(f"{where}: {explain_unknown(field, 'a message', MESSAGE_FIELDS)}")
    return to_flat(message, where)
