"""Vectors made in the process itself: MiniLM-L6 with 8-bit weights, run by onnxruntime.

``threadfold embeddings prepare`` makes the model's files, once a machine
(``streams.embeddings.prepare``). The extra ``embeddings`` has the libraries.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from projections.errors import EmbeddingsUnavailable
from streams.embeddings.embedder import Vectors, unit_vectors

FOLDER = "minilm-l6-v2-int8"
ENCODER, TOKENIZER, ABOUT = "encoder.onnx", "tokenizer.json", "about.json"
BATCH = 32
"""Texts of one run: about a tenth of a second of a core, so that a query never waits long."""


class About(msgspec.Struct, frozen=True):
    """What is recorded with a model's files. ``tokens``: a longer text is cut there;
    ``least_cosine``: to the vectors of the float weights, over the sample.
    """

    model: str
    dimension: int
    tokens: int
    least_cosine: float


class LocalEmbedder:
    """Runs the model of a folder, loaded when it is first needed, on one core a call."""

    batch = BATCH

    def __init__(self, folder: Path) -> None:
        """Raises EmbeddingsUnavailable where the folder holds no model."""
        self._folder = folder / FOLDER
        try:
            self.about = msgspec.json.decode((self._folder / ABOUT).read_bytes(), type=About)
        except (OSError, msgspec.DecodeError):
            raise EmbeddingsUnavailable(
                f"the embedding model is not in {folder}: run `threadfold embeddings prepare`"
            ) from None
        self._loading = threading.Lock()
        self._run: Callable[[Sequence[str]], Any] | None = None

    @property
    def model(self) -> str:
        return self.about.model

    async def embed(self, texts: Sequence[str], tenant: str) -> Vectors:
        return await asyncio.to_thread(self.vectors, texts)

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """The texts' vectors, in their order. It blocks: a few milliseconds a text."""
        with self._loading:
            run = self._run = self._run or load(
                self._folder / ENCODER, self._folder / TOKENIZER, self.about.tokens
            )
        # Texts of one length waste no work on padding.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        found = np.empty((len(texts), self.about.dimension), np.float32)
        for start in range(0, len(order), BATCH):
            part = order[start : start + BATCH]
            found[part] = run([texts[i] for i in part])
        return unit_vectors(found, len(texts), "the model of embeddings")


def load(encoder: Path, tokenizer: Path, tokens: int) -> Callable[[Sequence[str]], Any]:
    """A function from texts to their vectors, of a model's files.

    Raises:
        EmbeddingsUnavailable: the extra is not installed, or the files cannot be read.
    """
    try:
        import onnxruntime
        from tokenizers import Tokenizer
    except ImportError as error:
        raise EmbeddingsUnavailable(
            f"{error.name} is not installed: pip install 'threadfold[embeddings]'"
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        cut = Tokenizer.from_file(str(tokenizer))
        session = onnxruntime.InferenceSession(encoder, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - the libraries raise plain ones of their own
        raise EmbeddingsUnavailable(
            f"the embedding model in {encoder.parent} cannot be read"
            f" ({type(error).__name__}): run `threadfold embeddings prepare`"
        ) from None
    cut.no_padding()
    cut.enable_truncation(tokens)

    def run(texts: Sequence[str]) -> Any:
        # A lone surrogate is no text that the library takes.
        found = [cut.encode(text.encode("utf-8", "replace").decode()).ids for text in texts]
        ids = np.zeros((len(found), max(map(len, found))), np.int64)
        mask = np.zeros_like(ids)
        for row, own in enumerate(found):
            ids[row, : len(own)] = own
            mask[row, : len(own)] = 1
        return session.run(None, {"ids": ids, "mask": mask})[0]

    return run
