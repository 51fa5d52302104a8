"""What is marked as private in a text, which is never stored."""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST_READ = 1 << 16
"""Characters of a long text that are read: 3 to 20 ms; marks in 8 MiB take 0.5 to 2 s, in which no
other thread runs.
"""
_OVERLAP = 512
"""Characters of a text's end in which a mark may close that opens before it."""
_BEGINS = ("<", "\uff1c", "&", "\\u003c", "\\u003C")
"""How a mark begins: also as a wide letter, and as encoders of HTML and JSON write it."""


def _sign(letters: str, name: str, code: int) -> str:
    """A pattern of one sign, however it is written; an HTML reference may have been escaped again.
    One set of characters comes first, so that a search skips all others fast.
    """
    numbers = rf"#0{{0,5}}{code}|#x0{{0,5}}{code:x}"
    return (
        rf"[{letters}&\\](?:(?<=[{letters}])|(?<=&)(?:amp;){{0,3}}(?:{name}|{numbers});?"
        rf"|(?<=\\)u00{code:x})"
    )


_OPENS = _sign("<\uff1c", "lt", 0x3C)
_CLOSES = _sign(">\uff1e", "gt", 0x3E)
_SLASH = _sign("/", "sol", 0x2F)
_HIDDEN = "".join(map(chr, range(0x20))) + "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
_UNSEEN = f"[{_HIDDEN}]"
_GAP = rf"[\s{_HIDDEN}]"
"""What is not seen, or seen as a blank."""
_LINES = "\t\n\r"
_HARD_TO_SEE = tuple(sign for sign in _HIDDEN if sign not in _LINES)
_WORD = f"{_UNSEEN}*".join("private")
_REST = r"[^<>\uff1c\uff1e&\\]*"
_MARK = re.compile(
    rf"{_OPENS}{_GAP}*(?:{_WORD}(?:{_CLOSES}|(?:{_GAP}|/){_REST}(?:{_CLOSES})?)"
    rf"|\\?({_SLASH}){_GAP}*{_WORD}(?:{_GAP}{_REST})?{_CLOSES})",
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


def begin_without_private(text: str, most: int = MOST_READ) -> str:
    """The same of the first ``most`` characters of a text of any length."""
    return without_private(text[:most])


def ends_without_private(text: str) -> str:
    """The same of a text of any length; of one over twice ``MOST_READ`` characters its beginning
    and its end, of so many each. The end only where no mark may stand before it.
    """
    if len(text) <= 2 * MOST_READ:
        return without_private(text)
    begin, end = begin_without_private(text), text[-MOST_READ:]
    if _may_open(text[:-MOST_READ], _squeezed(end).lstrip()[:_OVERLAP]):
        return begin
    return f"{begin} {without_private(end)}"


def _may_open(text: str, more: str) -> bool:
    """Whether there may be a mark in a long text that ``more`` follows. It is found much faster
    than marks are, in pieces: between them other threads run.
    """
    between = text[-_OVERLAP:] + more
    if not is_marked(text) and not is_marked(between):
        return False
    if any(sign in text or sign in between for sign in _HARD_TO_SEE):
        return True
    left = ""
    for at in range(0, len(text), MOST_READ):
        left = left[-len("private") :] + _squeezed(text[at : at + MOST_READ])
        if "private" in left:
            return True
    return "private" in left[-len("private") :] + more


def _squeezed(text: str) -> str:
    """A text without line breaks and tabs, in small letters; also those that only a search without
    case takes for an i.
    """
    for sign in _LINES:
        text = text.replace(sign, "")
    return text.replace("\u0130", "i").replace("\u0131", "i").lower()


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
