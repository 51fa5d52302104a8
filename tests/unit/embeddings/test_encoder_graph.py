"""The encoder that is made of published weights computes what BERT is defined to compute."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from streams.embeddings.encoder_graph import Shape, read_weights, write_model
from tests.support.embeddings import SMALL, as_safetensors, small_weights

onnxruntime = pytest.importorskip("onnxruntime", reason="the extra embeddings is not installed")
pytest.importorskip("onnx", reason="the extra embeddings is not installed")
TEXTS = [[2, 8, 6, 4, 14, 3], [2, 10, 3], [2, 3]]


def normal(w: dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    spread = np.sqrt(x.var(-1, keepdims=True) + 1e-12)
    return (x - x.mean(-1, keepdims=True)) / spread * w[f"{name}.weight"] + w[f"{name}.bias"]


def encode(w: dict[str, np.ndarray], ids: list[int], shape: Shape) -> np.ndarray:
    """BERT by its definition, one text, in 64-bit floats."""
    w = {name: value.astype(np.float64) for name, value in w.items()}

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    x = w["embeddings.word_embeddings.weight"][ids]
    x = x + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = normal(w, "embeddings.LayerNorm", x + w["embeddings.token_type_embeddings.weight"][0])
    size = x.shape[1] // shape.heads
    for layer in range(shape.layers):
        name = f"encoder.layer.{layer}"
        q, k, v = (linear(f"{name}.attention.self.{one}", x) for one in ("query", "key", "value"))
        mixed = np.empty_like(x)
        for head in range(shape.heads):
            own = slice(head * size, (head + 1) * size)
            scores = np.exp(q[:, own] @ k[:, own].T / math.sqrt(size))
            mixed[:, own] = scores / scores.sum(1, keepdims=True) @ v[:, own]
        out = linear(f"{name}.attention.output.dense", mixed)
        x = normal(w, f"{name}.attention.output.LayerNorm", out + x)
        wide = linear(f"{name}.intermediate.dense", x)
        wide = wide * 0.5 * (1 + np.vectorize(math.erf)(wide / math.sqrt(2)))
        x = normal(w, f"{name}.output.LayerNorm", linear(f"{name}.output.dense", wide) + x)
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


def run(model: Path, texts: list[list[int]]) -> np.ndarray:
    longest = max(map(len, texts))
    ids = np.array([one + [0] * (longest - len(one)) for one in texts])
    mask = np.array([[1] * len(one) + [0] * (longest - len(one)) for one in texts])
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(None, {"ids": ids, "mask": mask})[0]
    return found


@pytest.mark.parametrize(("whole", "least"), [(True, 0.999_999), (False, 0.99)])
def test_its_vectors_are_those_of_the_definition(tmp_path: Path, whole: bool, least: float) -> None:
    weights = small_weights()
    write_model(weights, SMALL, tmp_path / "m.onnx", whole=whole)
    found = run(tmp_path / "m.onnx", TEXTS)
    exact = np.stack([encode(weights, ids, SMALL) for ids in TEXTS])
    assert np.linalg.norm(found, axis=1) == pytest.approx(1, abs=1e-5)
    assert (found * exact).sum(1).min() > least


def test_a_vector_does_not_depend_on_the_texts_beside_it(tmp_path: Path) -> None:
    write_model(small_weights(), SMALL, tmp_path / "m.onnx")
    together = run(tmp_path / "m.onnx", TEXTS)
    alone = np.concatenate([run(tmp_path / "m.onnx", [ids]) for ids in TEXTS])
    assert together == pytest.approx(alone, abs=1e-5)


def test_weights_are_read_as_they_were_written() -> None:
    weights = small_weights()
    read = read_weights(as_safetensors(weights))
    assert read.keys() == weights.keys()
    assert all((read[name] == weights[name]).all() for name in weights)
