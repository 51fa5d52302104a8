"""Which record a text is: its scope and its normalised text, hashed.

The same words of the same user are one record, wherever and however often they are said. Nothing
here looks at a clock or a store, so every process names a record alike.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

import msgspec

from projections.events.memories import Learnt, MemoryFused, MemorySaved, SkillSaved
from projections.names import Key

_ASCII = re.compile(r"[a-z0-9]+|[$%+<=>]|(?<=[a-z0-9])#|(?<![a-z0-9])-(?=[0-9])")
_NO_SIGNS = "~|"
"""Of the mathematical signs those that people write for other ends."""
_MARKS_WITHIN = range(0x300, 0x1F000)
"""Where Unicode has its combining marks. To look at all of its characters takes 0.2 s."""


class Scope(NamedTuple):
    """Whose a record is. Records of different scopes never meet.

    ``conversation`` is None but for what an anonymous conversation taught, which nobody else may
    see.
    """

    tenant: str
    user: str | None = None
    channel: str | None = None
    conversation: str | None = None


def scope_of(key: Key, user: str | None, channel: str | None) -> Scope:
    """The scope of what a log teaches of a user in a channel."""
    anonymous = user is None and not key.of_user
    return Scope(key.tenant, user, channel, key.conversation if anonymous else None)


def normalize(text: str) -> str:
    """A text without what makes no difference: case, punctuation, blanks, forms of letters. Signs
    of currencies and of mathematics stay, and so do "C#" and "-5". Empty where it has no letters.
    """
    if text.isascii():
        found = _ASCII.findall(text.lower())
        return " ".join(found) if any(map(str.isalnum, found)) else ""
    folded = _folded(text)
    kept = "".join(
        c if _is_letter(c) else f" {c} " if _is_sign(folded, i) else " "
        for i, c in enumerate(folded)
    )
    return " ".join(kept.split()) if any(map(_is_letter, kept)) else ""


def letters_of(text: str) -> str:
    """The letters and digits of a text as :func:`normalize` writes them, and a blank for others."""
    return "".join(c if _is_letter(c) else " " for c in _folded(text))


def _folded(text: str) -> str:
    bounded = _too_many_marks().sub(r"\1", text)
    # One sign may stand for 18 letters (U+FDFA), and no text is made of such signs.
    plain = unicodedata.normalize("NFKC", bounded)[: 2 * len(text) + 100]
    return unicodedata.normalize("NFKC", plain.casefold())


@lru_cache(maxsize=1)
def _too_many_marks() -> re.Pattern[str]:
    """More than 30 combining marks in a row. No writing has them (UAX #15, Stream-Safe Text
    Format), and Unicode's order of them takes the square of their number.
    """
    marks = "".join(filter(_begins_with_a_mark, map(chr, _MARKS_WITHIN)))
    return re.compile(f"([{marks}]{{30}})[{marks}]+")


def _begins_with_a_mark(char: str) -> bool:
    return unicodedata.combining(unicodedata.normalize("NFKD", char)[0]) > 0


def _is_letter(char: str) -> bool:
    return char.isalnum() or unicodedata.combining(char) > 0


def _is_sign(text: str, at: int) -> bool:
    """Whether what stands there makes another text: "$5" is not "\u20ac5", "C++" not "C"."""
    char, after_letter = text[at], at > 0 and text[at - 1].isalnum()
    if char == "#":
        return after_letter
    if char == "-":
        return not after_letter and text[at + 1 : at + 2].isdigit()
    return char == "%" or (unicodedata.category(char) in ("Sc", "Sm") and char not in _NO_SIGNS)


def memory_id(scope: Scope, kind: str, name: str) -> str:
    """The id of a record: 64 hex digits of a SHA-256.

    Args:
        kind: ``record``, ``topic``, ``composite`` or ``skill``.
        name: the normalised text, or the topic.
    """
    return sha256(msgspec.json.encode([kind, *scope, name])).hexdigest()


def id_of(key: Key, data: Learnt) -> str | None:
    """The id that an event of a log has to give its record; None for one that only names another's.

    The event's own ``normalized_text`` counts: tables of letters differ between versions of Python.
    """
    scope = scope_of(key, data.user, data.channel)
    if isinstance(data, MemoryFused):
        return memory_id(scope, "composite", data.normalized_text)
    if isinstance(data, MemorySaved):
        if data.topic is not None:
            return memory_id(scope, "topic", data.topic)
        return memory_id(scope, "record", data.normalized_text)
    if isinstance(data, SkillSaved):
        return memory_id(scope, "skill", data.normalized_text)
    return None
