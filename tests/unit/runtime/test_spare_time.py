"""Work that can wait goes on beside other work, and never stops it."""

from __future__ import annotations

import asyncio
import time

import pytest

from streams.runtime.spare_time import SHARE, SpareTime


class Works:
    """Pieces of work that note when they began and how many were under way."""

    def __init__(self, spare: SpareTime, seconds: float) -> None:
        self.spare = spare
        self.seconds = seconds
        self.spans: list[tuple[float, float]] = []
        self.under_way = self.most = 0
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    async def one(self) -> None:
        async with self.spare.turn():
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            begin = time.perf_counter()
            self.begun.set()
            await asyncio.sleep(self.seconds)
            self.spans.append((begin, time.perf_counter()))
            self.under_way -= 1
            self.ended.set()


async def test_while_nothing_else_is_busy_all_goes_on_at_once() -> None:
    works = Works(SpareTime(lambda: False), 0.01)
    await asyncio.gather(*(works.one() for _ in range(20)))
    assert works.most == 20


async def test_while_others_are_busy_it_takes_a_tenth_of_the_time() -> None:
    works = Works(SpareTime(lambda: True), 0.02)
    await asyncio.gather(*(works.one() for _ in range(4)))
    assert works.most == 1
    for (begin, end), (following, _) in zip(works.spans, works.spans[1:], strict=False):
        assert following - begin >= 0.95 * (end - begin) / SHARE


async def test_what_waits_goes_on_as_soon_as_the_others_are_not_busy() -> None:
    busy = True
    works = Works(SpareTime(lambda: busy), 0.2)
    several = [asyncio.create_task(works.one()) for _ in range(10)]
    await works.ended.wait()
    busy = False
    begin = time.perf_counter()
    await asyncio.gather(*several)
    assert works.most > 1
    assert works.spans[-1][0] - begin < 9 * works.seconds, "the pause was over early"


async def test_work_that_fails_or_is_cancelled_gives_its_turn_back() -> None:
    spare = SpareTime(lambda: True)
    with pytest.raises(ZeroDivisionError):
        async with spare.turn():
            _ = 1 / 0
    works = Works(spare, 60.0)
    held = asyncio.create_task(works.one())
    await works.begun.wait()
    held.cancel()
    await asyncio.gather(held, return_exceptions=True)
    async with asyncio.timeout(30), spare.turn():
        pass
