"""Parts of words without which a pattern cannot match: to look for them costs far less than to try
the pattern at each letter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence


class Hinted:
    """A pattern that ignores case, and what must stand in a text that it matches: some hint."""

    __slots__ = ("_hints", "_pattern")

    def __init__(self, pattern: str, hints: str) -> None:
        """Args: ``hints``: in lower case, with ``|`` between them."""
        self._pattern = re.compile(pattern, re.IGNORECASE)
        self._hints = tuple(hints.split("|"))

    def found_in(self, text: str) -> bool:
        """Whether the pattern matches somewhere."""
        return has_any(folded(text), self._hints) and self._pattern.search(text) is not None


def folded(text: str) -> str:
    """A text in lower case, as patterns that ignore case read it."""
    if text.isascii():
        return text.lower()
    # A pattern takes these for an s and an i; lower() does not, or makes two of one.
    return text.replace("\u017f", "s").replace("\u0131", "i").replace("\u0130", "i").lower()


def has_any(text: str, hints: Sequence[str]) -> bool:
    """Whether some hint stands in a folded text."""
    for hint in hints:  # noqa: SIM110 - it costs half of what any() does
        if hint in text:
            return True
    return False
