"""How names and words stand in the index of an engine: as letters and digits alone.

So what is asked for is no part of a query's syntax, and every store finds a text by the same words,
which are stems already.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256

from projections.memory.words import stems_of
from streams.memory.kept import Words

FIELDS = ("text", "dates", "speaker", "tags")


@lru_cache(maxsize=65536)
def code_of(*parts: str) -> str:
    """What names these parts in keys and queries."""
    named = "\n".join(parts).encode("utf-8", "surrogatepass")
    return sha256(named).hexdigest()[:16]


@lru_cache(maxsize=65536)
def indexed_word(stem: str) -> str:
    """A word as the index has it: letters and digits alone."""
    if stem.isascii() and stem.isalnum():
        return stem
    return "u" + stem.encode("utf-8", "surrogatepass").hex()


def indexed_words(texts: Iterable[Words]) -> dict[str, str]:
    """The words by which texts of one id are found, by field."""
    words = dict.fromkeys(FIELDS, "")
    for one in texts:
        words["text"] += " " + " ".join(map(indexed_word, stems_of(one.text)))
        words["dates"] += " " + " ".join(map(indexed_word, stems_of(one.dates)))
        words["speaker"] += " " + " ".join(map(indexed_word, stems_of(one.speaker)))
        words["tags"] += " " + " ".join(map(indexed_word, one.tags))
    return words
