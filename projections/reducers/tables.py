"""The head of a list or a table: a deterministic summary of a tool's result, with how many items
there were and where the whole stands.
"""

from __future__ import annotations

from typing import Any

import msgspec

from projections.events.json_depth import nested_beyond
from projections.events.json_limits import MAX_DEPTH

_encode = msgspec.json.Encoder().encode


def head_of(text: str, top: int, position: str) -> str | None:
    """The first ``top`` items of a JSON list (or of the longest list in a JSON object), or rows of
    a table; None where it is neither.

    A table is lines of Markdown (``| a | b |``) or of the same number of comma-, semicolon- or
    tab-separated cells; its heading stays beside the rows. Also None where there are no more than
    ``top``.
    """
    value = _value(text)
    if value is None:
        heading, rows = _table(text)
        if len(rows) <= top:
            return None
        return "\n".join([*heading, *rows[:top]]) + _note(top, len(rows), "rows", position)
    name, items = _longest(value)
    if len(items) <= top:
        return None
    if value is items:
        return _shown(items[:top]) + _note(top, len(items), "items", position)
    shown = {**value, name: items[:top]}
    return _shown(shown) + _note(top, len(items), f"items of {name}", position)


def items_in(text: str) -> int:
    """How many items or rows :func:`head_of` finds: for that many it returns None, and for fewer it
    does not.
    """
    value = _value(text)
    if value is None:
        return len(_table(text)[1])
    return len(_longest(value)[1])


def _value(text: str) -> Any:
    """The list or object that a JSON text is; None where it is another text."""
    raw = text.encode("utf-8", "surrogatepass")
    if text.lstrip()[:1] not in ("[", "{") or nested_beyond(raw, MAX_DEPTH):
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError):
        return None


def _longest(value: Any) -> tuple[str, list[Any]]:
    """The list that a JSON value is, or the longest of an object with its name; an empty one where
    there is none.
    """
    if isinstance(value, list):
        return "", value
    pairs = value.items() if isinstance(value, dict) else ()
    lists = [(name, items) for name, items in pairs if isinstance(items, list)]
    return max(lists, key=lambda pair: len(pair[1]), default=("", []))


def _shown(value: Any) -> str:
    return _encode(value).decode()


def _note(top: int, total: int, what: str, position: str) -> str:
    return f"\n[the first {top} of {total} {what}: the whole stands at position {position}]"


def _table(text: str) -> tuple[list[str], list[str]]:
    """The lines of a table's heading, and its rows; none where a text is no table."""
    lines = text.splitlines()
    heading = _heading(lines)
    if not heading:
        return [], []
    return lines[:heading], [line for line in lines[heading:] if line.strip()]


def _heading(lines: list[str]) -> int:
    """How many lines the heading of a table takes, 0 where the lines are no table."""
    shown = [line for line in lines if line.strip()]
    if len(shown) < 3:
        return 0
    first = next(i for i, line in enumerate(lines) if line.strip())
    if all(line.lstrip().startswith("|") for line in shown):
        ruled = first + 1 < len(lines) and not set(lines[first + 1].strip()) - set("|-: ")
        return first + (2 if ruled else 1)
    for separator in ("\t", ";", ","):
        cells = shown[0].count(separator)
        if cells and all(line.count(separator) == cells for line in shown):
            return first + 1
    return 0
