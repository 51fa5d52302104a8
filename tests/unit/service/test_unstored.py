"""A tenant that saves faster than the memory store takes in waits, others do not, and nobody waits
for a store that is not fed now, nor for a partition that nobody folds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping

import pytest

from projections.errors import InvalidRequest, KafkaUnavailable, QuotaExceeded, RedisUnavailable
from projections.names import Position
from projections.storage.records import Checkpoint
from streams.encryption.payload_cipher import Unsealed
from streams.memory.feed import MemoryFeed
from streams.memory.sqlite_store import SqliteMemories
from streams.settings.settings import Settings
from tests.support.worker import until
from threadfold.service import fold_progress
from threadfold.service import unstored as module
from threadfold.service.fold_progress import FORGOTTEN, STILL
from threadfold.service.unstored import MOST, Unstored


class Feed(MemoryFeed):
    """A feed of no topic: what that has and what the store has is what the test says."""

    is_fed = True

    def __init__(self) -> None:
        super().__init__(Settings(), Unsealed(), SqliteMemories())
        self.end = self.stored = 0
        self.asked = 0
        self.fails = False

    async def ends_now(self, partitions: Iterable[int] | None = None) -> dict[int, int]:
        self.asked += 1
        if self.fails:
            raise KafkaUnavailable("Kafka is away")
        return {0: self.end}

    def has(self, positions: Mapping[int, int]) -> bool:
        return self.stored >= positions[0]


class Saves:
    """Saves of tenants in a log of one partition, and a clock."""

    def __init__(self) -> None:
        self.feed, self.now, self.end, self.folded = Feed(), 0.0, 1, 0
        self.looks, self.redis_is_away = 0, False
        self.unstored = Unstored(self.feed, self._reached, lambda: self.now)

    async def _reached(self, partition: int) -> Checkpoint:
        self.looks += 1
        if self.redis_is_away:
            raise RedisUnavailable("Redis is away")
        return Checkpoint(offset=self.folded)

    async def save(self, tenant: str, saves: int, *, fails: bool = False) -> None:
        async with self.unstored.room(tenant, saves) as note:
            if fails:
                raise InvalidRequest("memory 1: it is wrong")
            note([Position(0, self.end + n) for n in range(saves)])
            self.end += saves

    def fold(self, saves: int, *, repeats: bool = False) -> None:
        """Fold the next saves; those that are no repeats come to the topic."""
        self.folded += saves
        self.feed.end += 0 if repeats else saves

    async def looked(self) -> None:
        """Wait for two looks: the first may have been under way."""
        looks = self.looks
        await until(lambda: asyncio.sleep(0, self.looks >= looks + 2))


@pytest.fixture
async def saves(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Saves]:
    monkeypatch.setattr(fold_progress, "LOOK", 0.001)
    saves = Saves()
    yield saves
    await saves.unstored.stop()


async def is_refused(saves: Saves, tenant: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PATIENCE", 0.03)
        with pytest.raises(QuotaExceeded, match=f"tenant {tenant} .* wait .* nothing of this"):
            await saves.save(tenant, 1)


async def passes(saves: Saves, tenant: str) -> None:
    await asyncio.wait_for(saves.save(tenant, 1), 5)


async def test_a_tenant_with_many_unstored_saves_waits_and_another_passes(saves: Saves) -> None:
    await saves.save("much", MOST)
    await saves.save("much", 100)
    waits = asyncio.create_task(saves.save("much", 1))
    await passes(saves, "little")
    saves.fold(MOST + 101)
    await until(lambda: asyncio.sleep(0, saves.feed.asked > 0))
    assert not waits.done()
    saves.feed.stored = saves.feed.end
    await asyncio.wait_for(waits, 5)


async def test_saves_count_before_they_are_folded_though_the_store_has_all_of_the_topic(
    saves: Saves,
) -> None:
    await saves.save("much", MOST + 1)
    assert saves.feed.stored == saves.feed.end
    await is_refused(saves, "much")
    saves.now = STILL  # longer than it may take from the log to the topic, if nobody looks
    await is_refused(saves, "much")


async def test_lists_at_once_are_no_more_than_the_bound_and_one_list(saves: Saves) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(saves.save("much", 250))
        while saves.folded < 20 * 250:
            await asyncio.sleep(0)
            assert saves.unstored.waiting("much") <= MOST + 250
            saves.fold(min(50, saves.end - 1 - saves.folded))
            saves.feed.stored = saves.feed.end


async def test_saves_that_are_refused_do_not_count(saves: Saves) -> None:
    with pytest.raises(InvalidRequest):
        await saves.save("wrong", 500, fails=True)
    assert saves.unstored.waiting("wrong") == 0
    await passes(saves, "wrong")


async def test_repeats_count_until_they_are_folded(saves: Saves) -> None:
    await saves.save("repeats", 500)
    await is_refused(saves, "repeats")
    saves.fold(500, repeats=True)
    await passes(saves, "repeats")
    assert saves.unstored.waiting("repeats") == 1


async def test_saves_count_until_a_slow_store_has_them_and_what_others_save_later_is_no_matter(
    saves: Saves,
) -> None:
    await saves.save("much", 500)
    saves.fold(500)
    saves.feed.stored = 499
    await is_refused(saves, "much")
    saves.now = FORGOTTEN - 1
    await is_refused(saves, "much")
    saves.feed.end, saves.feed.stored = 2_000, 500
    await passes(saves, "much")


async def test_nothing_counts_for_ever_where_the_topic_is_another_one(saves: Saves) -> None:
    await saves.save("much", 500)
    saves.fold(500)
    await is_refused(saves, "much")
    saves.now = FORGOTTEN + 1
    await passes(saves, "much")


async def test_nobody_waits_for_a_store_that_is_not_fed(saves: Saves) -> None:
    await saves.save("much", MOST + 1)
    waits = asyncio.create_task(saves.save("much", 1))
    await saves.looked()
    assert not waits.done()
    saves.feed.is_fed = False
    await asyncio.wait_for(waits, 5)
    saves.fold(MOST + 2)
    await passes(saves, "much")
    await until(lambda: asyncio.sleep(0, saves.unstored.waiting("much") <= 1))


async def test_nobody_waits_for_a_partition_that_nobody_folds_nor_while_redis_is_away(
    saves: Saves,
) -> None:
    await saves.save("much", MOST + 1)
    waits = asyncio.create_task(saves.save("much", 1))
    await saves.looked()
    saves.now = STILL + 1
    await asyncio.wait_for(waits, 5)
    saves.fold(100)
    await saves.save("much", MOST + 1)
    saves.redis_is_away = True
    await passes(saves, "much")


async def test_saves_still_count_where_the_end_of_the_topic_was_unknown(saves: Saves) -> None:
    await saves.save("much", MOST + 1)
    saves.fold(MOST + 1)
    saves.feed.fails = True
    await is_refused(saves, "much")
    saves.feed.fails, saves.feed.stored = False, saves.feed.end
    await passes(saves, "much")


async def test_saves_of_a_tenant_that_saves_no_more_are_forgotten_some_time(
    saves: Saves, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold_progress, "MANY", 10)
    for number in range(11):
        await saves.save(f"t-{number}", 1)
        saves.fold(1)
    saves.feed.stored = saves.feed.end
    await saves.save("last", 1)
    await until(lambda: asyncio.sleep(0, not saves.unstored.waiting("t-0")))
