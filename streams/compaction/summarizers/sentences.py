"""Texts of chat messages and tool results, split into sentences of bounded length.

Takes whatever comes: prose in any language, lists, tables, code, JSON, a megabyte on a single line.
A sentence holds no line break and at most :data:`MAX_CHARS` characters; the order is the text's;
the time is linear in its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

MAX_CHARS = 320
"""Characters of the longest sentence: about 80 tokens of English, so that one sentence never takes
a whole budget.
"""

TEXT_CHARS = 200_000
"""Characters of a text that are looked at; of a longer one the first three quarters of them, and
its last quarter.
"""

_END = re.compile(
    # It begins with one set of characters, so that the search skips all others fast.
    r"([.!?…。！？｡؟।](?:"
    r"(?<=[.!?…])(?<![ (\n][A-Z\d]\.)(?<![ (\n](?:Mr|Ms|Dr|St|No|Nr|vs|\d\d)\.)"
    r"(?<![ (\n](?:Mrs|etc|e\.g|i\.e|\d\d\d)\.)(?<![ (\n]Prof\.)(?<![ (\n]approx\.)"
    r"[\"')\]*_»”’]{0,4}(?= +[^a-z\s])"
    r"|(?<=[。！？｡؟।])(?=[^。！？｡”」』）)\n]))) *"
)
_SPLIT = "\x1f"
"""Stands between two sentences of a row; no row has it, for it is no printable character."""
_MARKUP = re.compile(r"^(?:[-*+•>#|]{1,6} ?)+")
_NOTHING = re.compile(r"[\s!-/:-@\[-`{-~\u2010-\u2027\u2500-\u257f]*")
_BREAKS = ("; ", ", ", " | ", " ", ";", ",", "，", "、", "；")
_BULLETS = ("-", "*", "•", "+")
_MARKS = " -*+•>#|"
_BULLET_CHARS = 80
_LIST_CHARS = 200
_INLINE_CHARS = 120


def split_sentences(text: str) -> list[str]:
    """The sentences of a text in its order; those of only punctuation are left out.

    JSON becomes one sentence a record, ``key: value`` with its path, since keys and braces rank
    badly as prose. Other text is split at line breaks and at ends of sentences, and what is longer
    than ``MAX_CHARS`` at the last comma or blank before it.
    """
    return split_texts([text])[0]


def split_texts(texts: Sequence[str]) -> list[list[str]]:
    """The sentences of each text, as :func:`split_sentences` finds them: one search for all of them
    costs a fraction of one for each.
    """
    found: list[list[str]] = []
    rows: list[str] = []
    owners: list[list[str]] = []
    for text in texts:
        if len(text) > TEXT_CHARS:
            text = text[: TEXT_CHARS * 3 // 4] + "\n" + text[-TEXT_CHARS // 4 :]
        records = _json_records(text)
        sentences: list[str] = []
        if records is not None:
            for record in records:
                _add(sentences, flatten(record))
        elif _is_row(text):
            rows.append(text)
            owners.append(sentences)
        else:
            listed = list(_joined_lists(text.splitlines()))
            rows += listed
            owners += [sentences] * len(listed)
        found.append(sentences)
    # A row begins with a line break, so that an abbreviation is seen where a row begins, too.
    text = _END.sub(lambda match: match[1] + _SPLIT, "\n" + "\n".join(rows))
    for sentences, row in zip(owners, text[1:].split("\n") if rows else (), strict=True):
        if _SPLIT not in row:
            _add(sentences, row)
            continue
        for piece in row.split(_SPLIT):
            _add(sentences, piece)
    return found


def flatten(text: str) -> str:
    """The text on one line: every run of blanks and line breaks is one space, control characters
    and surrogates are left out.
    """
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c in "\u200c\u200d" else " " for c in text)
    return " ".join(text.split())


def _is_row(text: str) -> bool:
    """Whether a text is one line of prose as it is, without blanks or marks to be taken off."""
    return (
        text.isprintable()
        and text[:1] not in _MARKS
        and text[-1] not in " |"
        and "  " not in text
        and "**" not in text
    )


def _add(sentences: list[str], text: str) -> None:
    """Put a flat text at the end, in pieces of at most ``MAX_CHARS``, without those that say
    nothing.
    """
    if len(text) <= MAX_CHARS and text[:1].isalnum():
        sentences.append(text if text[-1] != " " else text.rstrip())
        return
    sentences += [piece for piece in _bounded(text.strip()) if not _NOTHING.fullmatch(piece)]


def _joined_lists(lines: list[str]) -> Iterator[str]:
    """The lines without list marks, each with the short bullets below it: a price apart from its
    flight says nothing.
    """
    held = ""
    for line in lines:
        if _is_row(line):
            flat = bare = line
        else:
            flat = flatten(line)
            bare = _MARKUP.sub("", flat).replace("**", "").strip("| ")
        bullet = flat[:1] in _BULLETS and len(bare) <= _BULLET_CHARS
        if bullet and held and bare and len(held) + len(bare) <= _LIST_CHARS:
            held += (" " if held.endswith(":") else ", ") + bare
            continue
        if held:
            yield held
        held = bare
    if held:
        yield held


def _bounded(text: str) -> Iterator[str]:
    """The text in pieces of at most ``MAX_CHARS``, cut where it reads best in the second half of
    each.
    """
    start = 0
    while len(text) - start > MAX_CHARS:
        end = start + MAX_CHARS
        for mark in _BREAKS:
            place = text.rfind(mark, start + MAX_CHARS // 2, end)
            if place >= 0:
                end = place + len(mark)
                break
        yield text[start:end].strip()
        start = end
    yield text[start:].strip()


def _json_records(text: str) -> list[str] | None:
    """The records of a JSON object or array as lines, or None if the text is not one."""
    if text[:1].isalnum() or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        root = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None  # not JSON (or cut, or absurdly nested): it is read as prose
    lines: list[str] = []
    stack: list[tuple[str, Any]] = [("", root)]
    while stack:
        path, node = stack.pop()
        items = list(node.items()) if isinstance(node, dict) else [("", item) for item in node]
        scalars: list[str] = []
        nested: list[tuple[str, Any]] = []
        for key, value in items:
            short = _inline(value)
            if short is None:
                nested.append((f"{path} {key}".strip()[-60:], value))
            elif short:
                scalars.append(f"{key}: {short}" if key else short)
        if scalars:
            lines.append(f"{path}: {', '.join(scalars)}" if path else ", ".join(scalars))
        stack.extend(reversed(nested))
    return lines


def _inline(value: Any) -> str | None:
    """A scalar, or a small flat object or list, as text; empty for nothing; None for what needs
    lines of its own.
    """
    if not isinstance(value, dict | list):
        return _scalar(value)
    parts = list(value.items()) if isinstance(value, dict) else [("", item) for item in value]
    if len(parts) > 8 or any(isinstance(item, dict | list) for _, item in parts):
        return None
    said = [(key, _scalar(item)) for key, item in parts]
    text = ", ".join(f"{key} {value}".strip() for key, value in said if value)
    return (f"({text})" if text else "") if len(text) <= _INLINE_CHARS else None


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
