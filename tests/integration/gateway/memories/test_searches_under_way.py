"""How many searches and reads of one tenant are under way at a time, and what ends them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.memory_routes import World
from tests.support.worker import until
from threadfold.service.memories import READS
from threadfold.service.recall import Recall


class Slow:
    """Searches that end when they may; of each tenant those under way are counted."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.under_way: dict[str, int] = {}
        self._ask = Recall.ask

    async def __call__(self, recall: Recall, question: Any, weights: Any) -> Any:
        tenant = question.only.tenant
        self.under_way[tenant] = self.under_way.get(tenant, 0) + 1
        try:
            await self.may_end.wait()
            return await self._ask(recall, question, weights)
        finally:
            self.under_way[tenant] -= 1


@pytest.fixture
def slow(world: World, monkeypatch: pytest.MonkeyPatch) -> Slow:
    made = Slow()
    monkeypatch.setattr(Recall, "ask", lambda *args: made(*args))
    return made


async def test_few_searches_of_a_tenant_are_under_way_and_others_go_on(
    world: World, slow: Slow
) -> None:
    many = [asyncio.create_task(world.search("tea")) for _ in range(2 * READS)]
    await until(lambda: asyncio.sleep(0, slow.under_way.get("acme") == READS))
    others = asyncio.create_task(world.search("tea", key="rival"))
    await until(lambda: asyncio.sleep(0, slow.under_way.get("rival") == 1))
    assert slow.under_way["acme"] == READS
    slow.may_end.set()
    await asyncio.gather(*many, others)


async def test_a_search_ends_when_its_client_leaves(world: World, slow: Slow) -> None:
    searching = asyncio.create_task(world.search("tea"))
    await until(lambda: asyncio.sleep(0, slow.under_way.get("acme") == 1))
    searching.cancel()
    await until(lambda: asyncio.sleep(0, slow.under_way.get("acme") == 0))
