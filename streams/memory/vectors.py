"""Keeps a store's vectors up with its texts, and searches them.

Vectors are made behind the feed, in batches of one tenant: a record is found by its words at once,
and by its meaning shortly after. Where there are none, a search says why and goes by words alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Sequence
from itertools import groupby
from typing import Generic

from projections.errors import EmbeddingsUnavailable, ThreadfoldError
from projections.memory.identity import Scope
from streams.embeddings.embedder import CachedEmbedder
from streams.embeddings.registry import Embeddings
from streams.memory.store import Filter, H, TextVectors
from streams.memory.vector_index import NewVector
from streams.memory.word_index import decode_scope
from streams.runtime.tasks import end_tasks

logger = logging.getLogger(__name__)
BATCH = 256
"""Texts that are looked for at once."""
LOOK_EVERY = 0.5
"""Seconds between two looks for texts without a vector."""
AGAIN = 10.0
"""Seconds until it is tried again while no vectors can be made."""


class MemoryVectors(Generic[H]):
    """The vectors of one index. For one event loop; start it before use, stop it after."""

    def __init__(self, store: TextVectors[H], embeddings: Embeddings) -> None:
        self.made = 0
        """Vectors made so far."""
        self.reason = embeddings.reason
        """Why vectors cannot be made now; empty while they can, but for tenants in ``own``."""
        self.own: dict[str, str] = {}
        """Why no vectors are made for these tenants now, though they are for others."""
        self._store = store
        self._embeddings = embeddings
        self._epoch: tuple[int, int] | None = None
        self._done = 0
        """The number up to which all texts had vectors."""
        self._refused: set[tuple[int, str]] = set()
        """Texts, by number and content, that the model refused: none of them is asked for again."""
        self._task: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        """Whether all texts that there were have had their vectors made."""
        return self._epoch is not None

    def start(self) -> None:
        """Begin to keep up, once, where embeddings are configured."""
        if self._task is None and self._embeddings.current is not None:
            self._task = asyncio.create_task(self._run(self._embeddings.current), name="vectors")

    async def stop(self) -> None:
        """Stop, and end connections to endpoints."""
        await end_tasks([self._task])
        await self._embeddings.close()

    async def search(self, only: Filter, queries: Sequence[str], limit: int) -> list[H]:
        """The hits nearest to any of the queries, best first; a hit's score is its cosine.

        Raises:
            EmbeddingsUnavailable: they cannot be searched now; the message says why.
        """
        if self._embeddings.current is None:
            raise EmbeddingsUnavailable(self._embeddings.reason)
        model = await asyncio.to_thread(lambda: self._store.model)
        embedder = None if model is None else self._embeddings.of_model(model)
        if embedder is None:
            raise EmbeddingsUnavailable(
                self.own.get(only.tenant)
                or self.reason
                or f"vectors of model {self._embeddings.current.model} are being made"
            )
        vectors = await embedder.embed(queries, only.tenant)
        best: dict[Hashable, H] = {}
        for vector in vectors:
            for hit in await asyncio.to_thread(self._store.nearest, only, vector, limit):
                if hit.place not in best or hit.score > best[hit.place].score:
                    best[hit.place] = hit
        return sorted(best.values(), key=lambda hit: (-hit.score, str(hit.place)))[:limit]

    async def _run(self, embedder: CachedEmbedder) -> None:
        while True:
            wait = LOOK_EVERY
            try:
                if await asyncio.to_thread(self._store.hold):
                    await self._catch_up(embedder)
                self.reason, wait = "", AGAIN if self.own else LOOK_EVERY
            except ThreadfoldError as error:
                if str(error) != self.reason:
                    logger.warning("no vectors of memories are made: %s", error)
                self.reason, wait = str(error), AGAIN
            except Exception as error:  # whatever it is, the gateway has to go on
                logger.exception("no vectors of memories are made")
                self.reason = f"an unexpected error ({type(error).__name__})"
                wait = AGAIN
            await asyncio.sleep(wait)

    async def _catch_up(self, embedder: CachedEmbedder) -> None:
        """Make the vectors that are missing; the model is in use once none is. A tenant whose
        vectors cannot be made, because its budget is used up, keeps no other waiting.
        """
        epoch = await asyncio.to_thread(lambda: self._store.epoch)
        if epoch != self._epoch:
            # Texts were deleted, for good: what was made of them goes, and numbers come again.
            self._embeddings.forget()
            self._refused.clear()
            self._done = 0
        after, failed = self._done, dict[str, EmbeddingsUnavailable]()
        while rows := await asyncio.to_thread(self._store.missing, embedder.model, after, BATCH):
            after = rows[-1][0]
            failed |= await self._make(embedder, rows)
        self.own = {tenant: str(error) for tenant, error in failed.items() if error.own}
        if away := next((error for error in failed.values() if not error.own), None):
            raise away
        if await asyncio.to_thread(lambda: self._store.model) != embedder.model:
            await asyncio.to_thread(self._store.use, embedder.model)
            logger.info("the long-term memory is searched by vectors of %s", embedder.model)
        if not self.own:  # else all of these are looked for again
            self._epoch, self._done = epoch, after

    async def _make(
        self, embedder: CachedEmbedder, rows: Sequence[tuple[int, str, str]]
    ) -> dict[str, EmbeddingsUnavailable]:
        """Make the vectors of these texts; returns why some tenants' could not be made."""
        failed: dict[str, EmbeddingsUnavailable] = {}
        scoped = [
            (decode_scope(scope), number, text)
            for number, scope, text in rows
            if (number, text) not in self._refused
        ]
        scoped.sort(key=lambda row: (row[0].tenant, row[1]))
        for tenant, group in groupby(scoped, key=lambda row: row[0].tenant):
            own = list(group)
            for start in range(0, len(own), embedder.batch):
                part = own[start : start + embedder.batch]
                try:
                    new = await self._vectors_of(embedder, part)
                except EmbeddingsUnavailable as error:
                    failed[tenant] = error
                    break
                await asyncio.to_thread(self._store.add, embedder.model, new)
                self.made += len(new)
        return failed

    async def _vectors_of(
        self, embedder: CachedEmbedder, part: Sequence[tuple[Scope, int, str]]
    ) -> list[NewVector]:
        """The vectors of one tenant's texts, but of those that the model refuses although it takes
        others: halves are asked for, down to the text.
        """
        tenant = part[0][0].tenant
        try:
            found = await embedder.embed([text for *_, text in part], tenant)
        except EmbeddingsUnavailable as error:
            if not error.refused:
                raise
            if len(part) > 1:
                middle = len(part) // 2
                first = await self._vectors_of(embedder, part[:middle])
                return first + await self._vectors_of(embedder, part[middle:])
            await embedder.check(tenant)
            logger.info("a text has no vector: %s", error, extra={"tenant": tenant})
            self._refused.add(part[0][1:])
            return []
        return [
            NewVector(number, tenant, scope.user, vector, text)
            for (scope, number, text), vector in zip(part, found, strict=True)
        ]
