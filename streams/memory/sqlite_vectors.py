"""The vectors of an index's texts: which are missing, and what is nearest."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, Protocol

from streams.embeddings.embedder import Vectors
from streams.memory.store import Filter, H
from streams.memory.vector_index import (
    NewVector,
    Signs,
    add_vectors,
    deleted_vectors,
    model_in_use,
    texts_without,
    use_model,
)


class Turn(Protocol):
    """A store's connection, for one caller at a time."""

    def __call__(self, *, write: bool = False) -> AbstractContextManager[sqlite3.Connection]:
        """With ``write`` as a transaction."""


HitOf = Callable[[sqlite3.Connection, Filter], Callable[[int, float], H | None]]
"""For one search: what a text by its number is a hit of, where the filter admits it; its score is
the cosine.
"""


class SqliteVectors(Generic[H]):
    """The vectors of one index. Calls may come from any thread."""

    def __init__(self, turn: Turn, hit: HitOf[H]) -> None:
        self._turn = turn
        self._hit = hit
        self._signs = Signs()
        self._begun = 0
        self._gone = 0
        """How often a text was gone before its vector came: another one may have its number."""

    def begin(self) -> None:
        """Forget what is known of another file, or of what was erased."""
        self._signs = Signs()
        self._begun += 1

    @property
    def model(self) -> str | None:
        """The model whose vectors are searched; None before the first is complete."""
        with self._turn() as db:
            return model_in_use(db)

    @property
    def count(self) -> int:
        """How many there are, of all models."""
        with self._turn() as db:
            (count,) = db.execute("SELECT count(*) FROM vectors").fetchone()
            return int(count)

    @property
    def epoch(self) -> tuple[int, int]:
        """Another one whenever texts that have vectors may have lost them."""
        with self._turn() as db:
            return self._begun, deleted_vectors(db) + self._gone

    def hold(self) -> bool:
        """It is on the process whose store it is to make them."""
        return True

    def missing(self, model: str, after: int, limit: int) -> list[Any]:
        """The first rows ``(number, scope, text)`` of texts behind a number that have no vector of
        a model.
        """
        at: int | None = after
        rows: list[Any] = []
        while not rows and at is not None:
            with self._turn() as db:
                rows, at = texts_without(db, model, at, limit)
        return rows

    def add(self, model: str, vectors: Sequence[NewVector]) -> None:
        """Add vectors; a text that was deleted meanwhile gets none.

        Raises:
            EmbeddingsUnavailable: they are not as long as the model's others.
        """
        with self._turn(write=True) as db:
            if add_vectors(db, model, vectors) < len(vectors):
                self._gone += 1

    def use(self, model: str) -> None:
        """Search the vectors of a model from now on; those of others are deleted."""
        with self._turn(write=True) as db:
            use_model(db, model)

    def nearest(self, only: Filter, vector: Vectors, limit: int) -> list[H]:
        """The hits whose text is nearest to a vector of the model in use, best first."""
        found: dict[Hashable, H] = {}
        with self._turn() as db:
            hit_of = self._hit(db, only)
            for text, cosine in self._signs.nearest(db, vector, only.tenant, only.user):
                hit = hit_of(text, cosine)
                if hit is not None:
                    found.setdefault(hit.place, hit)
                if len(found) == limit:
                    break
        return list(found.values())
