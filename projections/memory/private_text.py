"""What is marked as private in a text, which is never stored."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MARK = re.compile(r"<(/?)\s{0,9}private\s{0,9}>", re.IGNORECASE)


def without_private(text: str) -> str:
    """A text without its parts between ``<private>`` and ``</private>``, and what these hold
    themselves; one that is not closed reaches to the end.
    """
    if "<" not in text:
        return text.strip()
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
    return "".join(kept).strip()


def all_without_private(texts: Iterable[str]) -> list[str]:
    """What is left of each text of which something is left."""
    return [left for left in map(without_private, texts) if left]
