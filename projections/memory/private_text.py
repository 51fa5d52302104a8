"""What is marked as private in a text, which is never stored."""

from __future__ import annotations

import re
from collections.abc import Iterable

_BEGINS = ("<", "\uff1c", "&", "\\u003c", "\\u003C")
"""How a mark begins: also as a wide letter, and as encoders of HTML and JSON write it."""
_AMP = "&(?:amp;){0,3}"
"""Of an HTML reference that may have been escaped again."""


def _sign(letters: str, name: str, code: int) -> str:
    """A pattern of one sign, however it is written."""
    numbers = rf"#0{{0,5}}{code}|#x0{{0,5}}{code:x}"
    return rf"(?:[{letters}]|{_AMP}(?:{name}|{numbers});?|\\u00{code:x})"


_OPENS = _sign("<\uff1c", "lt", 0x3C)
_CLOSES = _sign(">\uff1e", "gt", 0x3E)
_SLASH = _sign("/", "sol", 0x2F)
_UNSEEN = r"[\x00-\x1f\u00ad\u200b-\u200f\u2060\ufeff]"
_GAP = rf"(?:\s|{_UNSEEN})"
"""What is not seen, or seen as a blank."""
_WORD = f"{_UNSEEN}*".join("private")
_REST = r"[^<>\uff1c\uff1e&\\]*"
_MARK = re.compile(
    rf"{_OPENS}{_GAP}*{_WORD}(?:{_CLOSES}|(?:{_GAP}|/){_REST}(?:{_CLOSES})?)"
    rf"|{_OPENS}{_GAP}*\\?({_SLASH}){_GAP}*{_WORD}(?:{_GAP}{_REST})?{_CLOSES}",
    re.IGNORECASE,
)
"""A mark that opens, however it goes on; or one that closes."""


def is_marked(text: str) -> bool:
    """Whether a text may have such a mark."""
    return any(begin in text for begin in _BEGINS)


def without_private(text: str) -> str:
    """A text without its parts between ``<private>`` and ``</private>``, and what these hold
    themselves; one that is not closed reaches to the end.
    """
    if not is_marked(text):
        return text.strip()
    left = _without_marked(text)
    # What stood around may be a mark by now.
    opened = next((mark for mark in _MARK.finditer(left) if not mark[1]), None)
    return (left if opened is None else left[: opened.start()]).strip()


def _without_marked(text: str) -> str:
    kept, begin, depth = list[str](), 0, 0
    for mark in _MARK.finditer(text):
        if not mark[1]:
            if not depth:
                kept.append(text[begin : mark.start()])
            depth += 1
        elif depth:
            depth, begin = depth - 1, mark.end()
    if not depth:
        kept.append(text[begin:])
    return "".join(kept)


def all_without_private(texts: Iterable[str]) -> list[str]:
    """What is left of each text of which something is left."""
    return [left for left in map(without_private, texts) if left]
