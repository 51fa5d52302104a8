"""The vectors of a store in LanceDB: each model's in a table of their own.

A search leaves out other tenants' and users' vectors first, then compares with all that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from streams.embeddings.embedder import Vectors
from streams.memory.key_vectors import NEAREST, hits_of, said_by, same_length, text_rows
from streams.memory.key_words import code_of, of_whom
from streams.memory.lance_reads import LanceReads, Models
from streams.memory.lance_rows import MODELS, Row, pack, row, where
from streams.memory.store import Filter, Hit
from streams.memory.vector_index import NewVector
from streams.memory.word_index import decode_scope

LOOKED_AT = 2_000
"""Texts that are looked at together, for those without a vector."""


class Tables(Protocol):
    """A store's tables, for one caller at a time."""

    @property
    def reads(self) -> LanceReads:
        """A look at the rows."""

    def write(self, rows: list[Row]) -> None:
        """Write rows, in one commit."""

    def vectors(self, model: str) -> Any | None:
        """The table of a model's vectors; None where there is none."""

    def add_vectors(self, model: str, rows: pa.Table) -> None:
        """Add a model's vectors whose numbers are new."""

    def drop_vectors(self, model: str) -> None:
        """Delete a model's vectors."""


class LanceVectors:
    """The vectors of one store. Calls may come from any thread."""

    def __init__(self, turn: Callable[[], AbstractContextManager[Tables]]) -> None:
        self._turn = turn
        self._begun = 0
        self._gone = 0

    def begin(self) -> None:
        """Forget what is known of other tables."""
        self._begun += 1

    @property
    def model(self) -> str | None:
        """The model whose vectors are searched; None before the first is complete."""
        with self._turn() as tables:
            return tables.reads.models().in_use

    @property
    def count(self) -> int:
        """How many there are, of all models."""
        with self._turn() as tables:
            found = map(tables.vectors, tables.reads.models().sizes)
            return sum(one.count_rows() for one in found if one is not None)

    @property
    def epoch(self) -> tuple[int, int]:
        """Another one whenever texts that have vectors may have lost them."""
        return self._begun, self._gone

    def hold(self) -> bool:
        """It is on the process whose store it is to make them."""
        return True

    def missing(self, model: str, after: int, limit: int) -> list[tuple[int, str, str]]:
        """Rows ``(number, scope, text)`` of texts behind a number without a model's vector."""
        found: list[tuple[int, str, str]] = []
        with self._turn() as tables:
            reads, end, first = tables.reads, tables.reads.next_text(), after + 1
            while first < end and len(found) < limit:
                behind = min(first + LOOKED_AT, end)
                texts = reads.texts(first, behind)
                has = _numbers(tables.vectors(model), first, behind)
                lacking = [one for one in texts if one[0] not in has]
                found += text_rows(reads, lacking[: limit - len(found)])
                first = behind
        return found

    def add(self, model: str, vectors: Sequence[NewVector]) -> None:
        """Add vectors; a text that was deleted meanwhile gets none.

        Raises:
            EmbeddingsUnavailable: they are not as long as the model's others.
        """
        if not vectors:
            return
        with self._turn() as tables:
            models = tables.reads.models()
            size = same_length(model, models.sizes.get(model), vectors)
            names = said_by(tables.reads, tables.reads.texts_of(one.text for one in vectors))
            if not models.sizes.get(model):
                models.sizes[model] = size
                _note(tables, models)
            rows = [
                {
                    "number": one.text,
                    "tenant": code_of(one.tenant),
                    "user": None if one.user is None else code_of(one.user),
                    "said": names[one.text],
                    "vector": one.vector.astype(np.float16),
                }
                for one in vectors
                if one.text in names
            ]
            if rows:
                tables.add_vectors(model, pa.Table.from_pylist(rows, _schema(size)))

    def use(self, model: str) -> None:
        """Search the vectors of a model from now on; those of others are deleted."""
        with self._turn() as tables:
            sizes = tables.reads.models().sizes
            _note(tables, Models({model: sizes.get(model, 0)}, model))
            for other in sizes.keys() - {model}:
                tables.drop_vectors(other)

    def leave(self, tables: Tables, numbers: Sequence[int]) -> None:
        """Delete the vectors of texts that go."""
        for model in tables.reads.models().sizes if numbers else ():
            table = tables.vectors(model)
            if table is not None:
                table.delete(f"number IN ({', '.join(map(str, numbers))})")
                self._gone += 1

    def nearest(self, only: Filter, vector: Vectors, limit: int) -> list[Hit]:
        """The records whose text is nearest to a vector of the model in use, best first; a hit's
        score is the cosine.
        """
        with self._turn() as tables:
            models = tables.reads.models()
            table = None if models.in_use is None else tables.vectors(models.in_use)
            if table is None or models.sizes.get(models.in_use or "") != len(vector):
                return []
            found = (
                table.search(vector.astype(np.float32), vector_column_name="vector")
                .distance_type("cosine")
                .where(where(of_whom(only)), prefilter=True)
                .select(["said", "_distance"])
                .limit(max(NEAREST, 4 * limit))
                .to_arrow()
            )
            near = [(one["said"], 1 - one["_distance"]) for one in found.to_pylist()]
            return hits_of(lambda work: work(tables.reads), only, near, limit)

    def take_over(self, tables: Tables) -> None:
        """Take over the vectors that equal texts have in another store's tables."""
        models = tables.reads.models()
        for model, size in models.sizes.items():
            table, after = tables.vectors(model), 0
            if table is None or not size:
                continue
            stored = table.search().select(["said", "vector"]).limit(1 << 31).to_arrow()
            known = dict(zip(stored["said"].to_pylist(), stored["vector"].to_pylist(), strict=True))
            while rows := self.missing(model, after, LOOKED_AT):
                after = rows[-1][0]
                with self._turn() as own:
                    names = said_by(own.reads, own.reads.texts_of(one[0] for one in rows))
                new = [
                    NewVector(n, decode_scope(scope).tenant, decode_scope(scope).user, vector)
                    for n, scope, _ in rows
                    if (found := known.get(names.get(n, ""))) is not None
                    for vector in [np.asarray(found, np.float32)]
                ]
                self.add(model, new)
        if models.in_use is not None:
            self.use(models.in_use)


def _schema(size: int) -> pa.Schema:
    return pa.schema(
        [
            pa.field("number", pa.int64(), nullable=False),
            pa.field("tenant", pa.string()),
            pa.field("user", pa.string()),
            pa.field("said", pa.string()),
            pa.field("vector", pa.list_(pa.float16(), size)),
        ]
    )


def _note(tables: Tables, models: Models) -> None:
    tables.write([row(MODELS, MODELS, value=pack(models))])


def _numbers(table: Any | None, first: int, behind: int) -> set[int]:
    if table is None:
        return set()
    asked = table.search().where(f"number >= {first} AND number < {behind}").select(["number"])
    return set(asked.limit(1 << 31).to_arrow()["number"].to_pylist())
