"""Waiting for checkpoints: one poller a partition, only while somebody waits."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from projections.errors import RedisUnavailable, WaitTimedOut
from projections.names import Key, Position
from projections.storage.records import Checkpoint
from tests.support.worker import until
from threadfold.service import checkpoint_waits
from threadfold.service.checkpoint_waits import LONGEST_RETRY, CheckpointWaits


class Checkpoints:
    """The part of a store that is waited on, moved by the test."""

    def __init__(self) -> None:
        self.at: dict[tuple[int, int], Checkpoint] = {}
        self.looks: Counter[tuple[int, int]] = Counter()
        self.broken = False

    async def checkpoint(self, generation: int, partition: int) -> Checkpoint | None:
        self.looks[generation, partition] += 1
        if self.broken:
            raise RedisUnavailable("away")
        return self.at.get((generation, partition))


async def test_each_waiter_returns_when_its_own_position_is_reached_and_looks_are_shared() -> None:
    store = Checkpoints()
    waiting = CheckpointWaits(store, lambda: 1)
    store.at[1, 0] = Checkpoint(offset=4)
    early = [asyncio.create_task(waiting.wait_for(Position(0, 5), 5)) for _ in range(50)]
    late = asyncio.create_task(waiting.wait_for(Position(0, 6), 5))
    await asyncio.sleep(0.02)
    assert store.looks[1, 0] < 20
    store.at[1, 0] = Checkpoint(offset=5)
    await asyncio.gather(*early)
    assert not late.done()
    store.at[1, 0] = Checkpoint(offset=9)
    await late
    looks = store.looks[1, 0]
    await asyncio.sleep(0.1)
    assert store.looks[1, 0] == looks, "nobody waits, so nobody looks"


@pytest.fixture
def soon_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a checkpoint stands still, the third look comes too late."""
    monkeypatch.setattr(checkpoint_waits, "GROWTH", 1e9)
    monkeypatch.setattr(checkpoint_waits, "LAST_INTERVAL", 1_000.0)


@pytest.mark.usefixtures("soon_rare")
async def test_who_begins_to_wait_is_not_kept_by_one_who_waits_long() -> None:
    store = Checkpoints()
    waiting = CheckpointWaits(store, lambda: 1)
    store.at[1, 0] = Checkpoint(offset=4)
    late = asyncio.create_task(waiting.wait_for(Position(0, 9), 60))
    async with asyncio.timeout(20):
        await until(lambda: asyncio.sleep(0, store.looks[1, 0] >= 2))
        for offset in (5, 6, 7):
            await asyncio.sleep(0.01)
            store.at[1, 0] = Checkpoint(offset=offset)
            await waiting.wait_for(Position(0, offset), 60)
        assert not late.done()
    await waiting.stop()
    with pytest.raises(WaitTimedOut):
        await late


class GoesOn(Checkpoints):
    """At each look the partition is one event further, beside a rollback."""

    async def checkpoint(self, generation: int, partition: int) -> Checkpoint | None:
        one = self.at[generation, partition]
        self.at[generation, partition] = replace(one, ahead=one.ahead + 1)
        return await super().checkpoint(generation, partition)


@pytest.mark.usefixtures("soon_rare")
async def test_others_events_are_seen_at_once_while_a_rollback_is_under_way() -> None:
    store, back, other = GoesOn(), Key("acme", "back"), Key("rival", "other")
    waiting = CheckpointWaits(store, lambda: 1)
    store.at[1, 0] = Checkpoint(offset=4, ahead=5, rollbacks=((str(back), 5),))
    late = asyncio.create_task(waiting.wait_for(Position(0, 5), 60, back))
    async with asyncio.timeout(20):
        await waiting.wait_for(Position(0, 40), 60, other)
    assert not late.done()
    await waiting.stop()
    with pytest.raises(WaitTimedOut):
        await late


async def test_a_healing_partition_has_reached_nothing() -> None:
    store = Checkpoints()
    waiting = CheckpointWaits(store, lambda: 1)
    store.at[1, 0] = Checkpoint(offset=7, target=9)
    with pytest.raises(WaitTimedOut, match="0-5"):
        await waiting.wait_for(Position(0, 5), 0.05)
    await asyncio.sleep(0.1)
    looks = store.looks[1, 0]
    await asyncio.sleep(0.1)
    assert store.looks[1, 0] == looks, "the poller ends with its last waiter"


async def test_waiters_follow_a_switch_of_the_live_generation() -> None:
    store = Checkpoints()
    live = [1]
    waiting = CheckpointWaits(store, lambda: live[0])
    store.at[2, 3] = Checkpoint(offset=8)
    task = asyncio.create_task(waiting.wait_for(Position(3, 8), 5))
    await asyncio.sleep(0.02)
    assert not task.done()
    live[0] = 2
    await task


async def test_a_store_that_is_away_is_reported_to_all_and_the_next_caller_tries_again() -> None:
    store = Checkpoints()
    store.broken = True
    waiting = CheckpointWaits(store, lambda: 1)
    results = await asyncio.gather(
        *(waiting.wait_for(Position(0, 1), 5) for _ in range(3)), return_exceptions=True
    )
    assert [type(result) for result in results] == [RedisUnavailable] * 3
    store.broken = False
    store.at[1, 0] = Checkpoint(offset=1)
    await waiting.wait_for(Position(0, 1), 5)


async def test_stopping_tells_those_who_wait() -> None:
    waiting = CheckpointWaits(Checkpoints(), lambda: 1)
    task = asyncio.create_task(waiting.wait_for(Position(0, 1), 5))
    await asyncio.sleep(0)
    await waiting.stop()
    with pytest.raises(WaitTimedOut, match="stopping"):
        await task


async def test_while_a_conversation_is_restored_it_alone_is_waited_for() -> None:
    restored, other = Key("acme", "restored"), Key("acme", "other")
    store = Checkpoints()
    store.at[1, 0] = Checkpoint(offset=3, ahead=8, rollbacks=(("acme/restored", 6),))
    waiting = CheckpointWaits(store, lambda: 1)
    for name, offset in ((None, 3), (other, 8), (restored, 5), ("other", 8), ("acme", 5)):
        await waiting.wait_for(Position(0, offset), 5, name)
    refused = ((None, 4), (other, 9), (restored, 6), (restored, 8), ("acme", 6), ("other", 9))
    for name, offset in refused:
        with pytest.raises(WaitTimedOut):
            await waiting.wait_for(Position(0, offset), 0.05, name)


async def test_a_wait_that_ends_says_how_far_behind_the_partition_is_and_when_to_ask_again() -> (
    None
):
    store = Checkpoints()
    waiting = CheckpointWaits(store, lambda: 1)
    store.at[1, 0] = Checkpoint(offset=0)

    async def move() -> None:
        for offset in range(1, 100):
            await asyncio.sleep(0.01)
            store.at[1, 0] = Checkpoint(offset=offset)

    moving = asyncio.create_task(move())
    with pytest.raises(
        WaitTimedOut, match=r"events behind and applies about \d+ a second"
    ) as raised:
        await waiting.wait_for(Position(0, 500), 0.4)
    assert 2 <= raised.value.retry_after <= LONGEST_RETRY
    moving.cancel()
    with pytest.raises(WaitTimedOut, match=r"\d+ events behind and stands still") as raised:
        await CheckpointWaits(store, lambda: 1).wait_for(Position(0, 10**6), 0.2)
    assert raised.value.retry_after > 1
