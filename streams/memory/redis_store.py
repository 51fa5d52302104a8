"""The memory store in Redis, for gateways on more than one machine: one copy for all of them.

Facts and records stand under keys (``streams.memory.redis_keys``); the query engine finds records
by words, after tags for the tenant, the user and the channel have left all others out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from projections.memory.news import News
from streams.memory.key_changes import Changes, changes_of
from streams.memory.key_reads import ReadsByKey
from streams.memory.key_words import conditions, indexed_word
from streams.memory.keyed_store import KeyedMemories, Ranked, candidates
from streams.memory.redis_keys import StoreKeys, tags_query, write
from streams.memory.redis_place import StorePlace
from streams.memory.redis_reads import ReadByKey
from streams.memory.redis_vectors import RedisVectors
from streams.memory.store import Filter

T = TypeVar("T")
AT_ONCE = 50
"""News that are taken in with one transaction."""


class RedisMemories(KeyedMemories):
    """Records in Redis. Calls may come from any thread.

    Whoever feeds it holds the lease of its :attr:`place`; others read. It is made where there is
    none.
    """

    def __init__(self, url: str, prefix: str, *, building: bool = False) -> None:
        """Args: ``prefix`` is the deployment's. What is being built counts once it is switched to.

        Raises:
            InvalidSettings: the address is none.
        """
        self.place = StorePlace(url, prefix, building=building)
        self.vectors = RedisVectors(self.place)
        """The vectors of its texts."""

    def close(self) -> None:
        self.place.close()

    def drop(self) -> None:
        self.place.drop()

    # -- feeding

    def apply(self, news: Sequence[News], checkpoints: Mapping[int, int]) -> None:
        # A few at a time: Redis serves windows between them. The checkpoints come last, and news
        # that are taken in twice change nothing.
        parts = [news[at : at + AT_ONCE] for at in range(0, len(news), AT_ONCE)] or [news]
        for part in parts[:-1]:
            self._apply(part, {})
        self._apply(parts[-1], checkpoints)

    def _apply(self, news: Sequence[News], checkpoints: Mapping[int, int]) -> None:
        changes, models = Changes(), dict[str, int]()

        def prepare(client: Any, keys: StoreKeys) -> Mapping[int, int]:
            nonlocal changes, models
            there = ReadByKey(client, keys)
            changes, models = changes_of(news, there), there.models()
            return checkpoints

        def fill(pipe: Any, keys: StoreKeys) -> None:
            write(pipe, keys, changes, checkpoints, models)

        self.place.write(("m",), prepare, fill)

    # -- reading

    def _read(self, work: Callable[[ReadsByKey], T]) -> T:
        return self.place.read(lambda client, keys: work(ReadByKey(client, keys)))

    def _ranked(self, only: Filter, stems: Sequence[str]) -> Ranked:
        asked = tags_query(conditions(only))
        either = "|".join(map(indexed_word, stems))
        keys, field = self.place.keys, "records" if only.as_of is None else "kept"
        total, found = self.place.server.search(
            keys.records, f"{asked} ({either})", "SCORER", "BM25", "LIMIT", 0, candidates(only),
            "RETURN", 1, field,
        )  # fmt: skip
        having = None if total <= len(found) else self._having(keys, asked, stems)
        return Ranked([one.fields.get(field.encode(), b"") for one in found], having)

    def _having(self, keys: StoreKeys, asked: str, stems: Sequence[str]) -> dict[str, int]:
        """How many records of those that are asked for have each stem."""
        return {
            stem: self.place.server.search(
                keys.records, f"{asked} {indexed_word(stem)}", "LIMIT", 0, 0
            )[0]
            for stem in stems
        }
