"""How names and words stand in the index of an engine: as letters and digits alone.

So what is asked for is no part of a query's syntax, and every store finds a text by the same words,
which are stems already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import sha256

from projections.memory.words import stems_of
from streams.memory.kept import Words
from streams.memory.store import Filter

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


def of_whom(only: Filter) -> Iterator[tuple[str, list[str]]]:
    """What leaves out other tenants' and users' rows, before anything is looked for: columns of an
    engine, each with the codes of which a row has one.
    """
    yield "tenant", [code_of(only.tenant)]
    if only.user is not None:
        yield "user", [code_of(only.user)]


def conditions(only: Filter) -> Iterator[tuple[str, list[str]]]:
    """The same for other channels, and for what a search does not want."""
    yield from of_whom(only)
    if only.channel is not None:
        yield "channel", [code_of(only.channel)]
    yield "kind", sorted(only.kinds) or ["none"]
    if only.types:
        yield "type", [code_of(one) for one in sorted(only.types)]
    if only.as_of is None and not only.expired:
        yield "stands", ["1"]
