"""What makes vectors of texts, and a cache before it.

Vectors have length 1: their product is the cosine. Those of different models are never compared, so
each has its model's name and version.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Protocol

import numpy as np
import numpy.typing as npt

from projections.errors import EmbeddingsUnavailable

Vectors = npt.NDArray[np.float32]
"""One row a text."""
CACHED = 4_096
"""Vectors that a cache holds, about 6 MB of them."""


class Embedder(Protocol):
    """Makes vectors of texts. Any number of calls may run at once."""

    @property
    def model(self) -> str:
        """The model's name and version: vectors of equal ones may be compared."""

    @property
    def batch(self) -> int:
        """How many texts it takes at once."""

    async def embed(self, texts: Sequence[str], tenant: str) -> Vectors:
        """The vector of each text, in their order. ``tenant``: whose they are, and who pays.

        Raises:
            EmbeddingsUnavailable: there is none now; the message says why.
        """


class CachedEmbedder:
    """An embedder that is asked once for texts that come again soon, and for no more at once than
    it takes. What is cached is a tenant's own, in this process' memory alone, and goes with an
    erasure (:meth:`forget`).
    """

    def __init__(self, inner: Embedder, size: int = CACHED) -> None:
        self._inner = inner
        self._size = size
        self._cache: OrderedDict[bytes, Vectors] = OrderedDict()
        self._forgotten = 0

    @property
    def model(self) -> str:
        return self._inner.model

    @property
    def batch(self) -> int:
        return self._inner.batch

    def forget(self) -> None:
        """Drop all that is cached, and what calls under way bring."""
        self._cache.clear()
        self._forgotten += 1

    async def check(self, tenant: str) -> None:
        """Return if the model takes a plain text now, asked anew.

        Raises:
            EmbeddingsUnavailable: it does not.
        """
        await self._inner.embed(["text"], tenant)

    async def embed(self, texts: Sequence[str], tenant: str) -> Vectors:
        names = [_name(tenant, text) for text in texts]
        known = {name: self._cache[name] for name in names if name in self._cache}
        missing = {name: text for name, text in zip(names, texts, strict=True) if name not in known}
        begun, asked = self._forgotten, list(missing)
        for start in range(0, len(asked), self.batch):
            part = asked[start : start + self.batch]
            vectors = await self._inner.embed([missing[name] for name in part], tenant)
            known.update(zip(part, vectors, strict=True))
        for name in dict.fromkeys(names) if begun == self._forgotten else ():
            self._cache[name] = known[name]
            self._cache.move_to_end(name)
        while len(self._cache) > self._size:
            self._cache.popitem(last=False)
        return np.stack([known[name] for name in names]) if names else np.empty((0, 0), np.float32)


def unit_vectors(rows: object, count: int, what: str) -> Vectors:
    """Vectors of length 1 from what a model answered.

    Raises:
        EmbeddingsUnavailable: they are not ``count``, not of one dimension, not numbers, or 0.
    """
    # NumPy reads true as 1, and "1" too.
    if isinstance(rows, list) and not all(map(_only_numbers, rows)):
        raise EmbeddingsUnavailable(f"{what}: its vectors are no numbers of one length")
    try:
        with np.errstate(over="ignore"):
            vectors = np.asarray(rows, np.float32)
    except (ValueError, TypeError, OverflowError):
        raise EmbeddingsUnavailable(f"{what}: its vectors are no numbers of one length") from None
    if vectors.ndim != 2 or len(vectors) != count or vectors.shape[1] == 0:
        raise EmbeddingsUnavailable(
            f"{what} answered {' x '.join(map(str, vectors.shape))} numbers for {count} texts"
        )
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not lengths.all():
        raise EmbeddingsUnavailable(f"{what} answered a vector that has no direction")
    made: Vectors = vectors / lengths
    return made


def _only_numbers(row: object) -> bool:
    return not isinstance(row, list) or set(map(type, row)) <= {int, float}


def _name(tenant: str, text: str) -> bytes:
    encoded = f"{tenant}\n{text}".encode("utf-8", "surrogatepass")
    return blake2b(encoded, digest_size=20).digest()
