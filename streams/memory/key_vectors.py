"""What the vectors of a store that is kept by key are of, and which records a near one finds.

A vector keeps the id whose fact states its text, and a digest of the text. So it is a hit only
while the record says that text, and an equal text of another store has the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

from projections.errors import EmbeddingsUnavailable
from projections.memory.resolution import Record
from streams.memory.kept import texts_of
from streams.memory.key_reads import ReadsByKey, seen
from streams.memory.store import Filter, Hit
from streams.memory.vector_index import NewVector
from streams.memory.word_index import encode_scope

NEAREST = 200
"""Vectors that a search takes at least: some of their records may not be admitted."""
Member = tuple[int, str, str]
"""A text: its number, and the tenant and id whose facts state it."""


def same_length(model: str, known: int | None, vectors: Sequence[NewVector]) -> int:
    """How long a model's vectors are, ``known`` if some are there.

    Raises:
        EmbeddingsUnavailable: these are not as long as the model's others.
    """
    size = len(vectors[0].vector)
    length = known or size
    if any(len(one.vector) != length for one in vectors):
        raise EmbeddingsUnavailable(
            f"model {model} now makes vectors of {size} numbers; the stored ones have {length}:"
            " give the endpoint another name"
        )
    return length


def text_rows(there: ReadsByKey, members: Iterable[Member]) -> list[tuple[int, str, str]]:
    """Number, scope and text of texts that are there."""
    members = list(members)
    kept = there.kept(list(dict.fromkeys((tenant, one) for _, tenant, one in members)))
    found: list[tuple[int, str, str]] = []
    for number, tenant, memory_id in members:
        own = kept.get((tenant, memory_id))
        if own is not None:
            said = texts_of(own.all().values())
            text = next((text for text, n in own.texts.items() if n == number), None)
            if text is not None and text in said:
                found.append((number, encode_scope(said[text].scope), text))
    return found


def said_by(there: ReadsByKey, members: Iterable[Member]) -> dict[int, str]:
    """By the numbers of texts that are there: what their vectors are named."""
    members = list(members)
    ids = {number: memory_id for number, _, memory_id in members}
    return {number: said(ids[number], text) for number, _, text in text_rows(there, members)}


def said(memory_id: str, text: str) -> str:
    """What a vector is named: the id, and a digest of the text that its facts state."""
    return f"{memory_id} {sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def hits_of(
    read: Callable[[Callable[[ReadsByKey], dict[str, Record]]], dict[str, Record]],
    only: Filter,
    near: Sequence[tuple[str, float]],
    limit: int,
) -> list[Hit]:
    """The records that still say what vectors are named, best first. ``near`` has names and
    cosines.
    """
    ids = list(dict.fromkeys(name.partition(" ")[0] for name, _ in near))
    places = [(only.tenant, memory_id) for memory_id in ids]
    records = read(lambda there: {one.id: one for one in seen(there, only, places)})
    found: dict[str, Hit] = {}
    for name, cosine in near:
        record = records.get(name.partition(" ")[0])
        if record is not None and record.id not in found and said(record.id, record.text) == name:
            found[record.id] = Hit(record, cosine, cosine)
    return list(found.values())[:limit]
