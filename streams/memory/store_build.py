"""Stores that are made from the topic of memories at a command: built beside the live one and
switched to, and compared with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from projections.errors import (
    InvalidSettings,
    KafkaUnavailable,
    RedisUnavailable,
    SearchUnavailable,
    TopicMismatch,
)
from projections.memory.identity import Scope
from projections.memory.news import News
from streams.encryption.payload_cipher import PayloadCipher
from streams.log.log import Row
from streams.memory.feed import MemoryFeed
from streams.memory.redis_store import RedisMemories
from streams.memory.sqlite_store import SqliteMemories
from streams.memory.store import MemoryStore
from streams.memory.store_folder import REDIS_STORE, folder_of
from streams.memory.stores import local_stores, redis_store
from streams.memory.word_index import encode_scope
from streams.runtime.tasks import end_tasks
from streams.settings.settings import Settings

PATIENCE = 20.0
"""Seconds without any record after which a build gives up."""
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Built:
    """A store that was built: how many records of the topic it took in, how many seconds that took,
    and the digest of each scope.
    """

    records: int
    seconds: float
    digests: Mapping[Scope, str]

    @property
    def digest(self) -> str:
        """One digest over all scopes."""
        lines = sorted(f"{encode_scope(scope)} {found}" for scope, found in self.digests.items())
        return sha256("\n".join(lines).encode()).hexdigest()


@dataclass(slots=True)
class StoreReport:
    """What a comparison of two stores found: how many scopes were compared, and which differ."""

    verified: int = 0
    differing: list[Scope] = field(default_factory=list)


class _BoundedFeed(MemoryFeed):
    """Feeds a store up to some offsets of the topic, and no further."""

    at_once = filled_with = 10_000
    rest = 0.0

    def __init__(
        self,
        settings: Settings,
        seals: PayloadCipher,
        store: MemoryStore,
        until: Mapping[int, int] | None,
    ) -> None:
        super().__init__(settings, seals, store)
        self._until = until
        self._applying: asyncio.Task[None] | None = None
        self.records = 0
        self.failure: Exception | None = None
        """What the store raised, if it cannot be fed any further."""
        self.ahead = False
        """Whether the topic ends before the offsets to reach."""

    @property
    def end(self) -> Mapping[int, int]:
        """The offsets to reach: those given, or the topic's end when it began."""
        return self._begun if self._until is None else self._until

    async def _open(self) -> None:
        await super()._open()
        if any(at > self._begun.get(partition, 0) for partition, at in self.end.items()):
            self.ahead = True

    async def _take(self, batches: Mapping[int, Sequence[Row]]) -> None:
        end = self.end
        kept = {
            partition: [row for row in rows if row.offset < end.get(partition, 0)]
            for partition, rows in batches.items()
        }
        self.records += sum(map(len, kept.values()))
        if any(kept.values()):
            await super()._take({partition: rows for partition, rows in kept.items() if rows})

    async def _apply(self, news: Sequence[News], checkpoints: Mapping[int, int]) -> None:
        """While a batch goes into the store, the next one is read."""
        await self.settled()
        self._applying = asyncio.create_task(super()._apply(news, checkpoints), name="apply")

    async def stop(self) -> None:
        """Stop feeding, once the store is left alone."""
        await super().stop()
        if self._applying is not None:
            await asyncio.wait([self._applying])

    async def settled(self) -> None:
        """Wait until the store has all that was read; raises what it raised."""
        applying = self._applying
        if applying is None:
            return
        try:
            # Several may wait for it, and one that is cancelled does not end it.
            await asyncio.shield(applying)
        except (RedisUnavailable, SearchUnavailable):
            raise  # it is tried again
        except Exception as error:
            self.failure = error
            raise
        finally:
            if applying.done() and self._applying is applying:
                self._applying = None


async def feed_until(
    settings: Settings,
    seals: PayloadCipher,
    store: MemoryStore,
    until: Mapping[int, int] | None = None,
    progress: Progress | None = None,
) -> int:
    """Feed a store up to these offsets, or to the topic's end; returns how many records it took in.

    Raises:
        KafkaUnavailable: the topic cannot be read.
    """
    feed = _BoundedFeed(settings, seals, store, until)
    feed.start()
    seen, since = -1, time.monotonic()
    try:
        while not feed.has(feed.end):
            if feed.failure is not None:
                raise feed.failure
            await asyncio.sleep(0.02)
            if feed.records != seen:
                seen, since = feed.records, time.monotonic()
                if progress is not None:
                    progress(seen, max(seen, sum(feed.end.values())))
            elif feed.ahead:
                raise TopicMismatch(
                    f"the memory store is ahead of topic {settings.topic('memories')}: this is"
                    " another topic, or the topic has lost its end. `threadfold memories rebuild"
                    " --from-logs`"
                    " fills it again"
                )
            elif time.monotonic() > since + PATIENCE:
                raise KafkaUnavailable(
                    f"nothing comes from topic {settings.topic('memories')} for {PATIENCE:g} s"
                    f" ({feed.reason or 'no cause is known'}): try again when Kafka answers"
                )
        await feed.settled()
    finally:
        await feed.stop()
    return feed.records


async def rebuild_store(
    settings: Settings, seals: PayloadCipher, progress: Progress | None = None
) -> Built:
    """Build a store from the topic beside the live one, then switch to it in one step. Whoever
    feeds the live one goes over to it; a crash before leaves the live one.

    Raises:
        InvalidSettings: no store is named that lasts.
        DataFolderInUse: another process builds one there.
        KafkaUnavailable: the topic cannot be read.
        RedisUnavailable, SearchUnavailable: Redis cannot have the store.
    """
    require_store(settings)
    if settings.memory_store == REDIS_STORE:
        return await _rebuild_in_redis(settings, seals, progress)
    started = time.monotonic()
    folder = folder_of(settings.memory_store)
    assert folder is not None  # require_store
    with folder.building() as path:
        store = local_stores(folder.kind)(path, building=True)
        try:
            records = await feed_until(settings, seals, store, progress=progress)
            await asyncio.to_thread(store.finish)
            seconds = time.monotonic() - started
            digests = await asyncio.to_thread(store.digests)
        finally:
            store.close()
    return Built(records, seconds, digests)


async def _rebuild_in_redis(
    settings: Settings, seals: PayloadCipher, progress: Progress | None
) -> Built:
    started = time.monotonic()
    live, store = redis_store(settings), redis_store(settings, building=True)
    try:
        await asyncio.to_thread(store.place.begin_building)
        keeping = asyncio.create_task(_keep_building(store))
        try:
            records = await feed_until(settings, seals, store, progress=progress)
            seconds = time.monotonic() - started
            digests = await asyncio.to_thread(store.digests)
            if await asyncio.to_thread(lambda: live.place.exists):
                await asyncio.to_thread(store.vectors.copy, live.vectors)
                # What came meanwhile: the live store has it.
                await feed_until(settings, seals, store)
            await asyncio.to_thread(store.place.switch)
            await asyncio.sleep(GO_OVER)
            await asyncio.to_thread(store.place.tidy)
        finally:
            await end_tasks([keeping])
            await asyncio.to_thread(store.place.end_building)
    finally:
        store.close()
        live.close()
    return Built(records, seconds, digests)


async def _keep_building(store: RedisMemories) -> None:
    while True:
        await asyncio.sleep(10.0)
        await asyncio.to_thread(store.place.go_on_building)


GO_OVER = 2.0
"""Seconds until a store that was switched from is deleted: readers have gone over by then."""


async def verify_store(
    settings: Settings,
    seals: PayloadCipher,
    tenant: str | None = None,
    progress: Progress | None = None,
) -> StoreReport:
    """Compare the live store with one that is fed from the topic's beginning up to just where the
    live one is, scope by scope, while it is fed.

    What differs is compared a second time: the key of what is being erased goes a moment before the
    live store hears of it.

    Raises:
        InvalidSettings: no folder of stores is named, or it has none.
        KafkaUnavailable: the topic cannot be read.
    """
    report = await _verified(settings, seals, tenant, progress)
    if report.differing:
        await asyncio.sleep(AGAIN)
        report = await _verified(settings, seals, tenant, progress)
    return report


AGAIN = 1.5
"""Seconds until what differs is compared once more."""


async def _verified(
    settings: Settings, seals: PayloadCipher, tenant: str | None, progress: Progress | None
) -> StoreReport:
    async with live_copy(settings) as live, _scratch() as fresh:
        digests = await asyncio.to_thread(live.digests)
        until = {partition: at + 1 for partition, at in live.checkpoints().items()}
        await feed_until(settings, seals, fresh, until, progress)
        return compare(digests, fresh.digests(), tenant)


def compare(
    one: Mapping[Scope, str], other: Mapping[Scope, str], tenant: str | None = None
) -> StoreReport:
    """Compare the digests of two stores, of one tenant or of all."""
    scopes = sorted(
        (scope for scope in one.keys() | other.keys() if tenant in (None, scope.tenant)),
        key=lambda scope: tuple(part or "" for part in scope),
    )
    differing = [scope for scope in scopes if one.get(scope) != other.get(scope)]
    return StoreReport(len(scopes), differing)


def require_store(settings: Settings) -> None:
    """Raises :class:`InvalidSettings` if no store is named that lasts."""
    if not settings.memory_store:
        raise InvalidSettings(
            "setting 'memory_store' (THREADFOLD_MEMORY_STORE) names no folder, nor redis: each"
            " gateway feeds a temporary store at its start, and there is none to rebuild or verify"
        )


@asynccontextmanager
async def live_copy(settings: Settings) -> AsyncIterator[MemoryStore]:
    """What the live store has now, also while a gateway feeds it. The one in Redis is read where it
    is: it moves on.
    """
    require_store(settings)
    store = (
        await _live_in_redis(settings)
        if settings.memory_store == REDIS_STORE
        else await _live_in_folder(settings)
    )
    try:
        yield store
    finally:
        store.close()


async def _live_in_redis(settings: Settings) -> MemoryStore:
    store = redis_store(settings)
    if not await asyncio.to_thread(lambda: store.place.exists):
        store.close()
        raise InvalidSettings(f"Redis has {_NONE_YET}")
    return store


async def _live_in_folder(settings: Settings) -> MemoryStore:
    folder = folder_of(settings.memory_store)
    live = None if folder is None else folder.live
    if live is None:
        raise InvalidSettings(f"{settings.memory_store} has {_NONE_YET}")
    return await copy_of(live)


_NONE_YET = (
    "no memory store yet: the first call of a gateway makes one, or `threadfold memories rebuild`"
)


async def copy_of(path: Path) -> MemoryStore:
    """What a store's file or folder has now; raises :class:`InvalidSettings` if that cannot be
    read.
    """
    store = await asyncio.to_thread(local_stores(path.suffix).copied, path)
    if store is None:
        raise InvalidSettings(
            f"the memory store {path} cannot be read: it is damaged, or of another release."
            " `threadfold memories rebuild` makes another one"
        )
    return store


@asynccontextmanager
async def _scratch() -> AsyncIterator[SqliteMemories]:
    store = SqliteMemories()
    try:
        yield store
    finally:
        store.close()
