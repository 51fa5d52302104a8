"""A limit that several keys share."""

from __future__ import annotations

import asyncio
from collections import Counter

from streams.runtime.fair_limit import FairLimit


async def _hold(limit: FairLimit, key: str, order: list[str], release: asyncio.Event) -> None:
    async with limit.of(key):
        order.append(key)
        await release.wait()


class Work:
    """Work that waits for places and holds them until the test lets it go on."""

    def __init__(self, limit: FairLimit) -> None:
        self.limit = limit
        self.order: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.releases: list[asyncio.Event] = []

    async def begin(self, key: str, times: int = 1) -> None:
        for _ in range(times):
            self.releases.append(asyncio.Event())
            self.tasks.append(
                asyncio.create_task(_hold(self.limit, key, self.order, self.releases[-1]))
            )
        await asyncio.sleep(0)

    async def end_all(self) -> None:
        for release in self.releases:
            release.set()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def _one_by_one(limit: FairLimit, keys: list[str]) -> list[str]:
    order: list[str] = []

    async def use(key: str) -> None:
        async with limit.of(key):
            order.append(key)
            await asyncio.sleep(0)

    await asyncio.gather(*map(use, keys))
    return order


async def test_no_more_hold_a_place_than_there_are() -> None:
    work = Work(FairLimit(3))
    await work.begin("a", 10)
    assert len(work.order) == 3 and not work.limit.free
    await work.end_all()
    assert len(work.order) == 10 and work.limit.free


async def test_a_key_that_has_just_come_is_next_whatever_another_has_waiting() -> None:
    work = Work(FairLimit(2))
    await work.begin("a", 1_000)
    await work.begin("b", 2)
    work.releases[0].set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert work.order == ["a", "a", "b"]
    await work.end_all()


async def test_keys_take_turns_at_one_place() -> None:
    order = await _one_by_one(FairLimit(1), ["a"] * 50 + ["b"] * 5 + ["c"] * 5)
    assert Counter(order[:15]) == {"a": 5, "b": 5, "c": 5}


async def test_a_key_of_thrice_the_weight_has_thrice_the_turns_and_places() -> None:
    weights = {"a": 3.0, "b": 1.0}
    order = await _one_by_one(FairLimit(1, weights.__getitem__), ["b"] * 40 + ["a"] * 40)
    assert abs(Counter(order[:40])["a"] - 30) <= 1
    work = Work(FairLimit(8, weights.__getitem__))
    await work.begin("b", 20)
    await work.begin("a", 20)
    for release in work.releases[:20]:
        release.set()
        await asyncio.sleep(0)
    assert work.order.count("a") >= 6
    await work.end_all()


async def test_slow_work_of_one_key_does_not_collect_all_places() -> None:
    work = Work(FairLimit(8))
    await work.begin("slow", 100)
    done = 0

    async def quick() -> None:
        nonlocal done
        async with work.limit.of("quick"):
            await asyncio.sleep(0)
            done += 1

    waiting = [asyncio.create_task(quick()) for _ in range(40)]
    await asyncio.sleep(0)
    work.releases[0].set()  # one of the slow ends, and no other
    await asyncio.gather(*waiting)
    assert done == 40 and work.order.count("slow") == 9, "the ninth once nobody else waited"
    await work.end_all()


async def test_who_is_cancelled_while_it_waits_leaves_its_place_to_others() -> None:
    work = Work(FairLimit(1))
    await work.begin("a", 3)
    work.tasks[1].cancel()
    await asyncio.sleep(0)
    work.releases[0].set()
    await asyncio.sleep(0)
    work.tasks[2].cancel()  # as it is given the place
    await work.begin("b")
    await asyncio.sleep(0)
    assert work.order[-1] == "b"
    await work.end_all()
    assert work.limit.free
