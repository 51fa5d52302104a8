"""The skills that are like one that a model imagined (hypothetical document embeddings), by words
and by meaning.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from projections.errors import EmbeddingsUnavailable
from projections.memory.recall import Channel, Recalled
from projections.memory.words import stems_of
from streams.memory.search_models import Imagined
from streams.memory.store import Filter, Hit, MemoryStore

H = TypeVar("H", covariant=True)


class VectorSearch(Protocol[H]):
    """Finds records or turns by the meaning of their texts, where embeddings are configured."""

    async def search(self, only: Filter, queries: Sequence[str], limit: int) -> Sequence[H]:
        """The hits nearest to any of the queries, best first; a hit's score is its cosine.

        Raises:
            EmbeddingsUnavailable: they cannot be searched now.
        """


async def skills_like(
    imagined: Imagined,
    store: MemoryStore,
    vectors: VectorSearch[Hit] | None,
    only: Filter,
    count: int,
    best: float,
) -> list[tuple[Channel, list[Recalled]]]:
    """What each channel finds of the skills that a filter admits.

    They fit no better than the ``best`` that the query itself found, where it found any. An
    imagined skill has many words, of which some are met by chance: so they are as relevant as the
    share of its words that they have.
    """
    skills = replace(only, kinds=("skill",))
    words = list(dict.fromkeys(stems_of(f"{imagined.intent} {imagined.steps}")))
    hits = await asyncio.to_thread(store.search, skills, words, count)
    scale = min(1.0, best / hits[0].score) if hits and best else 1.0
    alike = [Recalled(hit.record, scale * hit.score, min(hit.relevance, hit.score)) for hit in hits]
    found: list[tuple[Channel, list[Recalled]]] = [("text", alike)]
    if vectors is not None:
        with contextlib.suppress(EmbeddingsUnavailable):  # the query's own search said so
            alike = [
                near_hit(hit) for hit in await vectors.search(skills, [imagined.intent], count)
            ]
            found.append(("vectors", alike))
    return found


def near_hit(hit: Hit) -> Recalled:
    """A hit of vectors; its score is its cosine."""
    return Recalled(hit.record, relevance=hit.relevance, cosine=hit.score)
