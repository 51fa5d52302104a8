"""The clients that calls of tools share."""

from __future__ import annotations

import asyncio

import pytest

from threadfold.mcp import callers as module
from threadfold.mcp.callers import Callers
from threadfold_client import AsyncClient


async def test_a_client_in_use_stays_open_while_calls_with_many_keys_begin_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[AsyncClient] = []

    async def close(client: AsyncClient) -> None:
        closed.append(client)
        await asyncio.sleep(0)

    monkeypatch.setattr(module, "KEPT", 2)
    monkeypatch.setattr(AsyncClient, "close", close)
    callers, go_on = Callers("http://127.0.0.1:1"), asyncio.Event()

    async def call(number: int) -> AsyncClient:
        async with callers.client({"authorization": f"Bearer key{number}"}) as client:
            await go_on.wait()
            assert client not in closed
        return client

    async def calls(numbers: range) -> list[AsyncClient]:
        go_on.clear()
        tasks = [asyncio.create_task(call(number)) for number in numbers]
        for _ in range(20):
            await asyncio.sleep(0)
        go_on.set()
        return await asyncio.gather(*tasks)

    first = await calls(range(12))
    again = await calls(range(6, 18))
    assert len(set(closed)) == len(closed), "each is closed once"
    made = {*first, *again}
    await calls(range(18, 19))
    assert len(made) - len(closed) <= 2, "of those that nobody uses, a few are kept"
