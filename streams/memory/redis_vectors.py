"""The vectors of a store in Redis: each model's in an index of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from streams.embeddings.embedder import Vectors
from streams.memory.key_vectors import NEAREST, Member, hits_of, said_by, same_length, text_rows
from streams.memory.key_words import code_of, of_whom
from streams.memory.redis_keys import StoreKeys, tags_query
from streams.memory.redis_place import StorePlace
from streams.memory.redis_reads import ReadByKey
from streams.memory.store import Filter, Hit
from streams.memory.vector_index import NewVector
from streams.memory.word_index import decode_scope

_member = msgspec.msgpack.Decoder(Member).decode
_LOOKED_AT = 500


class RedisVectors:
    """The vectors of one store. Calls may come from any thread."""

    def __init__(self, place: StorePlace) -> None:
        self._place = place

    @property
    def model(self) -> str | None:
        """The model whose vectors are searched; None before the first is complete."""
        found = self._place.read(lambda client, keys: client.get(keys("model")))
        return None if found is None else str(found.decode())

    @property
    def count(self) -> int:
        """How many there are, of all models."""

        def work(client: Any, keys: StoreKeys) -> int:
            models = ReadByKey(client, keys).models()
            return sum(client.scard(keys.with_vector(model)) for model in models)

        return self._place.read(work)

    @property
    def epoch(self) -> tuple[int, int]:
        """Another one whenever texts that have vectors may have lost them."""
        return self._place.read(
            lambda client, keys: (keys.number, int(client.get(keys("gone")) or 0))
        )

    def hold(self) -> bool:
        """Become, or stay, the one process that makes them; False while another does."""
        return self._place.hold("vectors")

    def missing(self, model: str, after: int, limit: int) -> list[tuple[int, str, str]]:
        """Rows ``(number, scope, text)`` of texts behind a number without a model's vector."""

        def work(client: Any, keys: StoreKeys) -> list[tuple[int, str, str]]:
            found: list[tuple[int, str, str]] = []
            there, start = ReadByKey(client, keys), after
            while len(found) < limit:
                members = client.zrangebyscore(keys("t"), f"({start}", "+inf", 0, _LOOKED_AT)
                if not members:
                    break
                texts = [_member(one) for one in members]
                start = texts[-1][0]
                has = client.smismember(keys.with_vector(model), [one[0] for one in texts])
                lacking = [one for one, there_ in zip(texts, has, strict=True) if not there_]
                found += text_rows(there, lacking[: limit - len(found)])
            return found

        return self._place.read(work)

    def add(self, model: str, vectors: Sequence[NewVector]) -> None:
        """Add vectors; a text that was deleted meanwhile gets none.

        Raises:
            EmbeddingsUnavailable: they are not as long as the model's others.
            Healing: this process does not feed the store any more.
        """
        if not vectors:
            return
        self.hold()
        known = self._place.read(lambda client, keys: ReadByKey(client, keys).models())
        size = same_length(model, known.get(model), vectors)
        if not known.get(model):
            keys = self._place.keys
            self._place.server.make_index(keys.model(model), keys.model(model) + ":", _index(size))
        kept: list[tuple[NewVector, str]] = []

        def prepare(client: Any, keys: StoreKeys) -> None:
            numbers = [one.text for one in vectors]
            pipe = client.pipeline(transaction=False)
            for number in numbers:
                pipe.zrangebyscore(keys("t"), number, number)
            found = [_member(rows[0]) for rows in pipe.execute() if rows]
            names = said_by(ReadByKey(client, keys), found)
            kept[:] = [(one, names[one.text]) for one in vectors if one.text in names]

        def fill(pipe: Any, keys: StoreKeys) -> None:
            if not known.get(model):
                pipe.hset(keys("m"), model, size)
            for one, name in kept:
                fields = {
                    "tenant": code_of(one.tenant),
                    "said": name,
                    "vector": one.vector.astype(np.float16).tobytes(),
                }
                if one.user is not None:
                    fields["user"] = code_of(one.user)
                pipe.hset(f"{keys.model(model)}:{one.text}", mapping=fields)
            if kept:
                pipe.sadd(keys.with_vector(model), *(one.text for one, _ in kept))

        self._place.write(("m", "gone"), prepare, fill)

    def use(self, model: str) -> None:
        """Search the vectors of a model from now on; those of others are deleted."""
        others = self._place.read(lambda client, keys: ReadByKey(client, keys).models())
        others.pop(model, None)

        def fill(pipe: Any, keys: StoreKeys) -> None:
            pipe.hsetnx(keys("m"), model, 0)
            pipe.set(keys("model"), model)
            if others:
                pipe.hdel(keys("m"), *others)

        self._place.write(("m",), lambda client, keys: None, fill)
        for other in others:
            self._delete(other)

    def _delete(self, model: str) -> None:
        self._place.server.drop_index(self._place.keys.model(model))

        def work(client: Any, keys: StoreKeys) -> None:
            name = keys.with_vector(model)
            while numbers := client.spop(name, 1_000):
                client.unlink(*(f"{keys.model(model)}:{int(number)}" for number in numbers))

        self._place.read(work)

    def nearest(self, only: Filter, vector: Vectors, limit: int) -> list[Hit]:
        """The records whose text is nearest to a vector of the model in use, best first; a hit's
        score is the cosine.
        """
        model = self.model
        if model is None:
            return []
        keys, asked = self._place.keys, tags_query(of_whom(only))
        most = max(NEAREST, 4 * limit)
        _, near = self._place.server.search(
            keys.model(model), f"({asked})=>[KNN {most} @vector $asked AS far]",
            "PARAMS", 2, "asked", vector.astype(np.float16).tobytes(), "SORTBY", "far",
            "LIMIT", 0, most, "RETURN", 2, "said", "far",
        )  # fmt: skip
        names = [(one.fields[b"said"].decode(), 1 - float(one.fields[b"far"])) for one in near]
        return hits_of(
            lambda work: self._place.read(lambda client, keys: work(ReadByKey(client, keys))),
            only,
            names,
            limit,
        )

    def copy(self, other: RedisVectors) -> None:
        """Take over the vectors of equal texts in another store of the same Redis."""
        model = other.model
        if model is None:
            return
        after = 0
        while rows := self.missing(model, after, _LOOKED_AT):
            after = rows[-1][0]
            self.add(model, other._of_texts(model, self._places(rows), rows))
        self.use(model)

    def _places(self, rows: Sequence[tuple[int, str, str]]) -> list[tuple[str, str]]:
        def work(client: Any, keys: StoreKeys) -> list[tuple[str, str]]:
            pipe = client.pipeline(transaction=False)
            for number, _, _ in rows:
                pipe.zrangebyscore(keys("t"), number, number)
            return [_member(found[0])[1:] for found in pipe.execute()]

        return self._place.read(work)

    def _of_texts(
        self,
        model: str,
        places: Sequence[tuple[str, str]],
        rows: Sequence[tuple[int, str, str]],
    ) -> list[NewVector]:
        """The vectors that equal texts of these ids have here, under the numbers of ``rows``."""

        def work(client: Any, keys: StoreKeys) -> list[NewVector]:
            kept = ReadByKey(client, keys).kept(list(dict.fromkeys(places)))
            numbers = [
                kept[place].texts.get(text) if place in kept else None
                for place, (_, _, text) in zip(places, rows, strict=True)
            ]
            pipe = client.pipeline(transaction=False)
            for number in numbers:
                pipe.hget(f"{keys.model(model)}:{number}", "vector")
            found = []
            for (number, packed, _), stored in zip(rows, pipe.execute(), strict=True):
                if stored is not None:
                    scope = decode_scope(packed)
                    vector = np.frombuffer(stored, np.float16).astype(np.float32)
                    found.append(NewVector(number, scope.tenant, scope.user, vector))
            return found

        return self._place.read(work)


def _index(size: int) -> tuple[str, ...]:
    """The fields of the index of a model's vectors."""
    options = f"TYPE FLOAT16 DIM {size} DISTANCE_METRIC COSINE"
    return ("tenant TAG", "user TAG", f"vector VECTOR HNSW {len(options.split())} {options}")
