"""The cache before an embedder, and what is accepted as vectors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from projections.errors import EmbeddingsUnavailable, InvalidSettings
from streams.embeddings.embedder import CachedEmbedder, Vectors, unit_vectors
from streams.settings.settings import Settings
from tests.support.embeddings import WordVectors


async def test_a_text_is_asked_for_once() -> None:
    inner = WordVectors()
    cache = CachedEmbedder(inner)
    first = await cache.embed(["green tea", "coffee", "green tea"], "acme")
    again = await cache.embed(["coffee", "black tea"], "acme")
    assert inner.asked == ["green tea", "coffee", "black tea"]
    assert (first[0] == first[2]).all() and (first[1] == again[0]).all()


async def test_tenants_share_nothing() -> None:
    inner = WordVectors()
    cache = CachedEmbedder(inner)
    await cache.embed(["tea"], "acme")
    await cache.embed(["tea"], "other")
    assert inner.asked == ["tea", "tea"]


async def test_it_asks_for_no_more_at_once_than_is_taken() -> None:
    inner = WordVectors()
    texts = [f"tea {n}" for n in range(3 * inner.batch + 1)]
    vectors = await CachedEmbedder(inner).embed(texts, "acme")
    assert inner.asked == texts and len(vectors) == len(texts)


async def test_the_oldest_leave_and_all_are_forgotten() -> None:
    inner = WordVectors()
    cache = CachedEmbedder(inner, size=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        await cache.embed([text], "acme")
    assert inner.asked == ["a", "b", "c", "b"]
    cache.forget()
    await cache.embed(["a"], "acme")
    assert inner.asked[-1] == "a"


async def test_what_is_under_way_during_an_erasure_is_not_kept() -> None:
    class Slow(WordVectors):
        async def embed(self, texts: Sequence[str], tenant: str) -> Vectors:
            cache.forget()
            return await super().embed(texts, tenant)

    inner = Slow()
    cache = CachedEmbedder(inner)
    await asyncio.gather(cache.embed(["a"], "acme"))
    await cache.embed(["a"], "acme")
    assert inner.asked == ["a", "a"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([[1.0, 2.0]], "answered 1 x 2 numbers for 2 texts"),
        ([[1.0], [1.0, 2.0]], "no numbers of one length"),
        ([["a", "b"], ["c", "d"]], "no numbers"),
        ([["1", "2"], ["3", "4"]], "no numbers"),
        ([[True, True], [1.0, 2.0]], "no numbers"),
        ([[1.0, float("nan")], [1.0, 2.0]], "no direction"),
        ([[1e39, 1.0], [1.0, 2.0]], "no direction"),
        ([[0.0, 0.0], [1.0, 2.0]], "no direction"),
        ([[], []], "2 x 0 numbers"),
        (None, "numbers"),
    ],
)
def test_what_is_no_vector_is_refused(rows: object, said: str) -> None:
    with pytest.raises(EmbeddingsUnavailable, match=said):
        unit_vectors(rows, 2, "m")


def test_vectors_have_length_1() -> None:
    assert np.linalg.norm(unit_vectors([[3.0, 4.0], [-1e-6, 0.0]], 2, "m"), axis=1) == (
        pytest.approx(1)
    )


GOOD = {"base_url": "http://h/v1", "model": "m"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"memory_embeddings": "small"}, "memory_embeddings.*must be one of minilm"),
        ({"embeddings": {"minilm": GOOD}}, "embeddings 'minilm' is built in"),
        ({"embeddings": {"a": GOOD | {"batch": 0}}}, "embeddings 'a': batch is 0"),
        ({"embeddings": {"a": GOOD | {"dimensions": -1}}}, "dimensions is -1"),
        ({"embeddings": {"a": GOOD | {"extra": {"input": 1}}}}, "extra may not set 'input'"),
        ({"embeddings": {"a": GOOD | {"base_url": "http://h?x"}}}, "where /embeddings is put"),
        ({"embeddings": 7}, r"table of endpoints by name, like \[embeddings"),
    ],
)
def test_a_mistake_in_the_settings_is_named(values: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        Settings.load(env={}, **values)


def test_an_endpoint_is_a_table_of_the_settings() -> None:
    settings = Settings.load(env={}, embeddings={"small": GOOD}, memory_embeddings="small")
    assert settings.embeddings["small"].url == "http://h/v1/embeddings"
