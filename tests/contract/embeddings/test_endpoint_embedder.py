"""Vectors by an OpenAI-compatible endpoint: a real HTTP server, which misbehaves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from projections.errors import EmbeddingsUnavailable
from streams.compaction.summarizers import attempts
from streams.embeddings.registry import Embeddings
from streams.settings.settings import Settings
from tests.support.model_server import (
    Behaviour,
    breaks_off,
    fails,
    gives,
    makes_vectors,
    model_server,
    stalls,
)
from tests.support.ports import closed_port

SECRET = "sk-very-secret-key"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "PAUSE", 0.02)


def embeddings(url: str, **changes: Any) -> Embeddings:
    options = {"base_url": url, "model": "embed-1", "key": SECRET} | changes
    settings = Settings.load(
        env={}, embeddings={"small": options}, memory_embeddings="small", summary_time_cap=5.0
    )
    return Embeddings(settings)


async def embed(found: Embeddings, texts: list[str]) -> Any:
    assert found.current is not None
    try:
        return await found.current.embed(texts, "acme")
    finally:
        await found.close()


async def test_texts_go_in_batches_and_vectors_come_in_their_order() -> None:
    async with model_server(makes_vectors) as server:
        found = embeddings(server.url, batch=2, dimensions=4)
        vectors = await embed(found, ["a", "bbb", "cc", "dddd", ""])
    assert [call["input"] for call in server.calls] == [["a", "bbb"], ["cc", "dddd"], [" "]]
    assert server.calls[0]["model"] == "embed-1" and server.calls[0]["dimensions"] == 4
    assert server.headers[0]["Authorization"] == f"Bearer {SECRET}"
    assert vectors.shape == (5, 4)
    # The server says a text's length in the first number, as a share of the second.
    assert [round(row[0] / row[1]) for row in vectors] == [1, 3, 2, 4, 1]


async def test_a_failure_is_tried_again() -> None:
    async with model_server(fails(503), breaks_off, makes_vectors) as server:
        await embed(embeddings(server.url), ["a"])
    assert len(server.calls) == 3


def answer(*vectors: Any, **changes: Any) -> Behaviour:
    data = [{"index": i, "embedding": vector} for i, vector in enumerate(vectors)]
    return gives(json.dumps({"object": "list", "data": data} | changes))


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (answer([1.0, 2.0]), "answered 1 vectors for 2 texts"),
        (answer([1.0, 2.0], [1.0]), "no numbers of one length"),
        (answer([1.0, 2.0], ["a", "b"]), "no numbers"),
        (answer([1.0, 0.0], [0.0, 0.0]), "no direction"),
        (answer(data=[{"index": 0, "embedding": [1.0]}] * 2), "vectors for 2 texts"),
        (answer(data="none"), "no list of vectors"),
        (gives("[1]"), "no list of vectors"),
        (fails(401), r"answered 401 \(oops\): check its base_url, model and key"),
        (fails(400), r"answered 400 \(oops\)"),
    ],
)
async def test_an_answer_that_is_no_vectors_is_refused(behaviour: Behaviour, said: str) -> None:
    async with model_server(behaviour) as server:
        with pytest.raises(EmbeddingsUnavailable, match=said) as caught:
            await embed(embeddings(server.url), ["a", "b"])
    assert "embeddings 'small'" in str(caught.value) and SECRET not in str(caught.value)


async def test_a_model_that_changes_its_vectors_length_is_refused() -> None:
    async with model_server(answer([1.0, 2.0]), answer([1.0, 2.0, 3.0])) as server:
        found = embeddings(server.url)
        assert found.current is not None
        await found.current.embed(["a"], "acme")
        with pytest.raises(EmbeddingsUnavailable, match="3 numbers, where it is 2"):
            await embed(found, ["b"])


async def test_one_that_is_away_is_left_alone_after_failures_in_a_row() -> None:
    found = embeddings(f"http://127.0.0.1:{closed_port()}/v1")
    assert found.current is not None
    for _ in range(3):
        with pytest.raises(EmbeddingsUnavailable, match=r"cannot be reached|circuit"):
            await found.current.embed(["a"], "acme")
    with pytest.raises(EmbeddingsUnavailable, match=r"circuit of .* is open"):
        await embed(found, ["a"])


async def test_what_is_refused_of_one_tenant_takes_the_endpoint_from_no_other() -> None:
    async with model_server(*[fails(400)] * 8, makes_vectors) as server:
        found = embeddings(server.url)
        assert found.current is not None
        for n in range(8):
            with pytest.raises(EmbeddingsUnavailable, match="answered 400"):
                await found.current.embed([f"refused {n}"], "acme")
        assert len(await found.current.embed(["a"], "other")) == 1
        await found.close()
    assert len(server.calls) == 9


async def test_one_that_stalls_is_given_up() -> None:
    async with model_server(stalls) as server:
        with pytest.raises(EmbeddingsUnavailable, match="did not answer within"):
            await embed(embeddings(server.url, timeout=0.1), ["a"])
