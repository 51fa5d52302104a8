"""What a memory has that may say the same as what is learnt just now.

The work is bounded: of each new record the few nearest of its scope, by words; where embeddings are
configured, the cosine of their vectors says how alike they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import msgspec

from projections.errors import (
    EmbeddingsUnavailable,
    Healing,
    MemoryUnavailable,
    WaitTimedOut,
)
from projections.memory.fusion import NOTHING, Likeness, Near, Statement, considered
from projections.memory.identity import Scope
from projections.memory.resolution import Record
from projections.memory.similarity import meaning
from projections.memory.words import stems_of
from streams.embeddings.registry import Embeddings
from streams.encryption.payload_cipher import PayloadCipher
from streams.memory.erasures import Erased, erased_by
from streams.memory.store import Filter, MemoryStore
from streams.memory.store_folder import REDIS_STORE, folder_path
from streams.memory.stores import open_store
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)
NEAREST = 8
"""Records that a new one is compared with, beside those of its span."""


class Neighbours:
    """Finds them in a store that is fed from the topic of memories."""

    def __init__(
        self,
        store: MemoryStore,
        caught_up: Callable[[str, str | None], Awaitable[None]],
        embeddings: Embeddings | None = None,
        erased: Erased = None,
    ) -> None:
        """Args: ``caught_up`` waits until the store has all of a tenant's user that is on the
        topic. Nothing is near that ``erased`` logs say.
        """
        self._erased = erased
        self._store = store
        self._caught_up = caught_up
        self._embeddings = embeddings

    async def near(self, scope: Scope, new: Sequence[Statement], check: Callable[[], None]) -> Near:
        """What is near new records of a scope. ``check`` raises where an endpoint must not be sent
        them any more.

        Raises:
            Healing: the store is not up to date yet.
            KafkaUnavailable: the topic cannot be read now.
        """
        new = considered(new)
        if not new:
            return NOTHING
        try:
            await self._caught_up(scope.tenant, scope.user)
            found = await asyncio.to_thread(self._found, scope, new)
        except (WaitTimedOut, MemoryUnavailable) as error:
            raise Healing(str(error)) from None
        check()
        likeness = await self._likeness(scope.tenant, new, found)
        return Near(found.statements, found.composites, likeness)

    def _found(self, scope: Scope, new: Sequence[Statement]) -> Near:
        within = Filter(scope.tenant, scope.user, scope=scope, erased=self._erased)
        found: dict[str, list[Statement]] = {}
        for one in new:
            only = replace(within, kinds=("record",), types=(one.memory_type,))
            hits = self._store.search(only, stems_of(meaning(one.text)), NEAREST + 1)
            found[one.id] = [
                _statement(hit.record)
                for hit in hits
                if hit.record.topic is None and hit.record.id != one.id
            ]
        ids = {one.id for one in new} | {one.id for several in found.values() for one in several}
        return Near(found, self._store.composites_of(replace(within, kinds=("composite",)), ids))

    async def _likeness(self, tenant: str, new: Sequence[Statement], near: Near) -> Likeness | None:
        """The cosine of vectors, where they can be made; None: words alone say it."""
        if self._embeddings is None or self._embeddings.current is None:
            return None
        others = [one for several in near.statements.values() for one in several]
        texts = list(dict.fromkeys(one.text for one in (*new, *others)))
        if len(texts) < 2:
            return None
        try:
            vectors = await self._embeddings.current.embed(texts, tenant)
        except EmbeddingsUnavailable as error:
            logger.info("records are fused by their words: %s", error)
            return None
        finally:
            # Nobody tells a worker what is erased: it keeps nothing of a text.
            self._embeddings.forget()
        number = {text: i for i, text in enumerate(texts)}
        cosines = vectors @ vectors.T
        return lambda one, other: float(cosines[number[one], number[other]])


class OwnNeighbours(Neighbours):
    """Finds them in the store that all processes share, or in one of the process' own. It is fed
    from the first call on: from a copy of the folder of the setting ``memory_store``, if that is on
    this machine. Stop it after use.
    """

    def __init__(
        self, settings: Settings, seals: PayloadCipher, embeddings: Embeddings | None = None
    ) -> None:
        path = folder_path(settings.memory_store)
        if settings.memory_store != REDIS_STORE and (path is None or not path.is_dir()):
            settings = msgspec.structs.replace(settings, memory_store="")
        self._own, self._feed = open_store(settings, seals, hold=False)
        super().__init__(self._own, self._has_all_of, embeddings, erased_by(seals))

    async def _has_all_of(self, tenant: str, user: str | None) -> None:
        self._feed.start()
        await self._feed.has_all_of(tenant, user)

    async def stop(self) -> None:
        """Stop feeding, and close the store."""
        await self._feed.stop()
        self._own.close()
        if self._embeddings is not None:
            await self._embeddings.close()


def _statement(record: Record) -> Statement:
    return Statement(record.id, record.type, record.text, record.confirmed_at, record.trust)
