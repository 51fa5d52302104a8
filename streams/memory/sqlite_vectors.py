"""The vectors of the embedded store's texts: which are missing, and which records are nearest."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from streams.embeddings.embedder import Vectors
from streams.memory.sqlite_tables import record_said
from streams.memory.store import Filter, Hit
from streams.memory.vector_index import (
    NewVector,
    Signs,
    add_vectors,
    copy_vectors,
    deleted_vectors,
    model_in_use,
    texts_without,
    use_model,
)


class Turn(Protocol):
    """A store's connection, for one caller at a time."""

    def __call__(self, *, write: bool = False) -> AbstractContextManager[sqlite3.Connection]:
        """With ``write`` as a transaction."""


class SqliteVectors:
    """The vectors of one store. Calls may come from any thread."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._signs = Signs()
        self._begun = 0

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
    def epoch(self) -> tuple[int, int]:
        """Another one whenever texts that have vectors may have lost them."""
        with self._turn() as db:
            return self._begun, deleted_vectors(db)

    def missing(self, model: str, after: int, limit: int) -> list[Any]:
        """:func:`streams.memory.vector_index.texts_without`."""
        with self._turn() as db:
            return texts_without(db, model, after, limit)

    def add(self, model: str, vectors: Sequence[NewVector]) -> None:
        """Add vectors; a text that was deleted meanwhile gets none.

        Raises:
            EmbeddingsUnavailable: they are not as long as the model's others.
        """
        with self._turn(write=True) as db:
            add_vectors(db, model, vectors)

    def use(self, model: str) -> None:
        """Search the vectors of a model from now on; those of others are deleted."""
        with self._turn(write=True) as db:
            use_model(db, model)

    def copy(self, db: sqlite3.Connection, path: Path) -> None:
        """Copy the vectors of equal texts from another store's file."""
        copy_vectors(db, str(path))

    def nearest(self, only: Filter, vector: Vectors, limit: int) -> list[Hit]:
        """The records whose text is nearest to a vector of the model in use, best first; a hit's
        score is the cosine.
        """
        found: dict[int, Hit] = {}
        with self._turn() as db:
            for text, cosine in self._signs.nearest(db, vector, only.tenant, only.user):
                place = record_said(db, only, text)
                if place is not None and place[0] not in found:
                    found[place[0]] = Hit(place[1], cosine, cosine)
                if len(found) == limit:
                    break
        return list(found.values())
