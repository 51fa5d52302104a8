"""A tenant that saves faster than the memory store takes in waits, others do not, and nobody waits
for a store that is not fed now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType

import pytest

from projections.errors import InvalidRequest, QuotaExceeded
from projections.memory.news import Dropped
from projections.names import Key
from streams.encryption.payload_cipher import Unsealed
from streams.memory.feed import MemoryFeed
from streams.memory.sqlite_store import SqliteMemories
from streams.settings.settings import Settings
from tests.support.worker import until
from threadfold.service import unstored as module
from threadfold.service.unstored import FORGOTTEN, MOST, Unstored


class Feed(MemoryFeed):
    """A feed of no topic: what it has is what the test says."""

    is_fed = True
    behind = 0
    ends: Mapping[int, int] = MappingProxyType({0: 100})

    def __init__(self) -> None:
        super().__init__(Settings(), Unsealed(), SqliteMemories())
        self.took = asyncio.Event()
        self.reached = 0

    async def advanced(self) -> None:
        await self.took.wait()
        self.took.clear()

    async def looked(self) -> bool:
        return not self.took.is_set()

    def has(self, positions: Mapping[int, int]) -> bool:
        return self.reached >= positions[0]

    def take_in(self, tenant: str, count: int) -> None:
        assert self.on_stored is not None
        self.on_stored([Dropped(Key(tenant, "log"), n) for n in range(count)])
        self.took.set()


class Saves:
    """Saves of tenants that a feed takes in, and a clock."""

    def __init__(self) -> None:
        self.feed, self.now = Feed(), 0.0
        self.unstored = Unstored(self.feed, lambda: self.now)
        self.feed.behind = 1

    async def save(self, tenant: str, saves: int, *, fails: bool = False) -> None:
        async with self.unstored.room(tenant, saves):
            if fails:
                raise InvalidRequest("memory 1: it is wrong")


async def test_a_tenant_with_many_unstored_saves_waits_and_another_passes() -> None:
    saves = Saves()
    await saves.save("much", MOST)
    await saves.save("much", 100)
    waits = asyncio.create_task(saves.save("much", 1))
    await asyncio.wait_for(saves.save("little", 1), 1)
    saves.feed.take_in("little", 1)
    saves.feed.take_in("much", 99)
    await until(saves.feed.looked)
    assert not waits.done()
    saves.feed.take_in("much", 1)
    await asyncio.wait_for(waits, 1)


@pytest.mark.parametrize("state", ["all is stored", "not fed"])
async def test_nobody_waits_for_a_store_that_has_all_or_is_not_fed(state: str) -> None:
    saves = Saves()
    await saves.save("much", MOST + 1)
    waits = asyncio.create_task(saves.save("much", MOST + 1))
    if state == "not fed":
        saves.feed.is_fed = False
    else:
        saves.feed.behind = 0
    saves.feed.took.set()
    await asyncio.wait_for(waits, 1)


async def test_a_save_that_waits_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    saves = Saves()
    await saves.save("much", MOST + 1)
    with pytest.raises(QuotaExceeded, match=f"tenant much .*: {MOST + 1} wait .* nothing of this"):
        await saves.save("much", 1)
    await saves.save("little", 1)


async def test_saves_that_are_refused_keep_nobody_waiting_and_repeats_not_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    saves = Saves()
    with pytest.raises(InvalidRequest):
        await saves.save("wrong", 500, fails=True)
    await saves.save("wrong", 1)
    await saves.save("repeats", 500)
    with pytest.raises(QuotaExceeded):
        await saves.save("repeats", 1)
    saves.now, saves.feed.reached = FORGOTTEN + 0.1, 100
    await saves.save("repeats", 1)


async def test_saves_count_until_a_slow_store_has_them_however_long_that_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    saves = Saves()
    await saves.save("much", 500)
    saves.now, saves.feed.reached = 10 * FORGOTTEN, 99
    with pytest.raises(QuotaExceeded):
        await saves.save("much", 1)
    saves.feed.ends, saves.feed.reached = {0: 200}, 100  # others' saves came meanwhile
    await saves.save("much", 1)
