"""All who ask at the same time have one answer, and answers are made at a pace."""

from __future__ import annotations

import asyncio

import pytest

from streams.runtime.paced import Paced


class Maker:
    """Counts what it makes; each waits until it ``may`` end."""

    def __init__(self) -> None:
        self.made = 0
        self.under_way = 0
        self.begun, self.may = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> int:
        self.made += 1
        self.under_way += 1
        self.begun.set()
        assert self.under_way == 1
        try:
            number = self.made
            await self.may.wait()
            return number
        finally:
            self.under_way -= 1


async def test_those_who_ask_while_one_is_made_share_the_next_one() -> None:
    make = Maker()
    paced = Paced(make, 0.0)
    first = asyncio.create_task(paced.get())
    await make.begun.wait()
    later = [asyncio.create_task(paced.get()) for _ in range(5)]
    await asyncio.sleep(0)
    make.may.set()
    assert await first == 1
    assert await asyncio.gather(*later) == [2] * 5


async def test_one_is_begun_within_the_pause_at_most() -> None:
    make = Maker()
    make.may.set()
    paced = Paced(make, 0.2)
    begun = asyncio.get_running_loop().time()
    for number in (1, 2, 3):
        assert await paced.get() == number
    assert asyncio.get_running_loop().time() - begun >= 0.39


async def test_one_who_gives_up_takes_it_from_nobody() -> None:
    make = Maker()
    paced = Paced(make, 0.0)
    one, other = (asyncio.create_task(paced.get()) for _ in range(2))
    await make.begun.wait()
    one.cancel()
    make.may.set()
    assert await other == 1
    assert one.cancelled() or one.cancelling()


async def test_an_error_is_raised_to_those_who_asked_and_the_next_is_made() -> None:
    fails = [True, False]

    async def make() -> str:
        if fails.pop(0):
            raise ValueError("no")
        return "made"

    paced = Paced(make, 0.0)
    with pytest.raises(ValueError, match="no"):
        await paced.get()
    assert await paced.get() == "made"
