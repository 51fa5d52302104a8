"""Callers whom nobody knows yet are served a few at once, addresses in turn."""

from __future__ import annotations

import asyncio
from collections import Counter

from projections.errors import Overloaded
from threadfold.mcp.address_turns import AT_ONCE, MOST, OF_ADDRESS, AddressTurns


class Served:
    """Callers in the order in which they were served. Each takes one step."""

    def __init__(self) -> None:
        self.turns = AddressTurns()
        self.order: list[str] = []
        self.now = self.most = 0

    async def come(self, address: str) -> None:
        async with self.turns.turn(address):
            self.now += 1
            self.most = max(self.most, self.now)
            self.order.append(address)
            await asyncio.sleep(0)
            self.now -= 1

    def callers(self, address: str, many: int) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self.come(address)) for _ in range(many)]


async def test_a_few_are_served_at_once_and_addresses_take_turns() -> None:
    served = Served()
    many = [one for n in range(3) for one in served.callers(f"many {n}", OF_ADDRESS)]
    await asyncio.gather(*many, *served.callers("one", 1))
    assert served.most == AT_ONCE
    assert served.order.index("one") <= AT_ONCE + 4
    assert len(served.order) == 3 * OF_ADDRESS + 1


async def test_of_too_many_the_last_one_of_the_address_that_has_most_goes() -> None:
    served = Served()
    crowd = [served.callers(f"many {n}", OF_ADDRESS) for n in range(8)]
    new = served.callers("one", 1)
    every = [task for one in crowd for task in one]
    outcomes = await asyncio.gather(*every, *new, return_exceptions=True)
    assert Counter(map(type, outcomes))[Overloaded] == 8 * OF_ADDRESS + 1 - AT_ONCE - MOST
    assert outcomes[-1] is None and served.order.index("one") <= AT_ONCE + 10


async def test_who_leaves_takes_no_turn_and_keeps_none() -> None:
    served = Served()
    tasks = served.callers("a", AT_ONCE + 20)
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    tasks = served.callers("a", AT_ONCE + 20)
    for _ in range(2):  # the first are done: turns are being passed on
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    served.most = served.now = 0
    await asyncio.gather(*served.callers("b", 2 * AT_ONCE))
    assert served.most == AT_ONCE
