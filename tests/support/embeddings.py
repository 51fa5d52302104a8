"""Embedders for tests: a small encoder of generated weights with its tokenizer, and one that needs
no library.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from projections.errors import EmbeddingsUnavailable
from streams.embeddings.embedder import CachedEmbedder, Vectors, unit_vectors
from streams.embeddings.encoder_graph import Shape
from streams.embeddings.registry import Embeddings
from streams.settings.settings import Settings

SMALL = Shape(layers=2, heads=4)
WIDTH = 64
WORDS = ("tea", "coffee", "green", "black", "prefers", "likes", "order", "late", "is", "the", ".")


def small_weights(seed: int = 7) -> dict[str, np.ndarray]:
    """Weights of an encoder of the shape ``SMALL``, as a published one names them."""
    random = np.random.default_rng(seed)

    def drawn(*shape: int) -> np.ndarray:
        return random.normal(0, 0.3, shape).astype(np.float32)

    found = {
        "embeddings.word_embeddings.weight": drawn(len(WORDS) + 4, WIDTH),
        "embeddings.position_embeddings.weight": drawn(300, WIDTH),
        "embeddings.token_type_embeddings.weight": drawn(2, WIDTH),
    }
    sizes = {
        "attention.self.query": (WIDTH, WIDTH),
        "attention.self.key": (WIDTH, WIDTH),
        "attention.self.value": (WIDTH, WIDTH),
        "attention.output.dense": (WIDTH, WIDTH),
        "intermediate.dense": (4 * WIDTH, WIDTH),
        "output.dense": (WIDTH, 4 * WIDTH),
    }
    normals = ["embeddings.LayerNorm"]
    for layer in range(SMALL.layers):
        name = f"encoder.layer.{layer}"
        for part, (rows, columns) in sizes.items():
            found[f"{name}.{part}.weight"] = drawn(rows, columns)
            found[f"{name}.{part}.bias"] = drawn(rows)
        normals += [f"{name}.attention.output.LayerNorm", f"{name}.output.LayerNorm"]
    for name in normals:
        found[f"{name}.weight"] = 1 + drawn(WIDTH)
        found[f"{name}.bias"] = drawn(WIDTH)
    return found


def as_safetensors(weights: dict[str, np.ndarray]) -> bytes:
    """The weights as a safetensors file."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, tensor in weights.items():
        raw = tensor.astype("<f4").tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [len(body), len(body) + len(raw)],
        }
        body += raw
    packed = json.dumps(header).encode()
    return len(packed).to_bytes(8, "little") + packed + body


def small_tokenizer() -> bytes:
    """A tokenizer of the words that the small encoder knows."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
    tokenizer = Tokenizer(WordLevel({name: i for i, name in enumerate(names)}, "[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()  # type: ignore[assignment]
    tokenizer.post_processor = TemplateProcessing(  # type: ignore[assignment]
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return str(tokenizer.to_str()).encode()


class WordVectors:
    """An embedder in which texts of the same words, whatever their order, have the same vector, and
    a word and its synonym too. ``asked`` is what it was asked for; ``away`` makes it fail.
    """

    batch = 16

    def __init__(
        self, model: str = "words-1", synonyms: dict[str, str] | None = None, width: int = 64
    ) -> None:
        self.model = model
        self.away = False
        self.asked: list[str] = []
        self._width = width
        self._synonyms = synonyms or {}

    async def embed(self, texts: Sequence[str], tenant: str) -> Vectors:
        if self.away:
            raise EmbeddingsUnavailable("embeddings 'words' do not answer")
        assert len(texts) <= self.batch
        self.asked += texts
        return unit_vectors([self._vector(text) for text in texts], len(texts), "words")

    def _vector(self, text: str) -> np.ndarray:
        total = np.full(self._width, 1e-3)
        for word in text.lower().replace(".", " ").replace("?", " ").split():
            name = f"{self.model}\n{self._synonyms.get(word, word)}".encode()
            seed = int.from_bytes(blake2b(name, digest_size=8).digest(), "big")
            total += np.random.default_rng(seed).normal(size=self._width)
        return total


class Fixed(Embeddings):
    """Embeddings of these embedders; the first is the one to use."""

    def __init__(self, *inner: WordVectors) -> None:
        super().__init__(Settings())
        self._by_model = {one.model: CachedEmbedder(one) for one in inner}
        self.current = self._by_model[inner[0].model]
        self.reason = ""
