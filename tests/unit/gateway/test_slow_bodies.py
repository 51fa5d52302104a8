"""How slowly a body may come."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.written import answer_empty, connected
from threadfold.gateway import body_pace, protocol


async def test_the_time_in_which_the_gateway_takes_nothing_does_not_count_for_a_slow_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grace, check = 0.5, 0.05
    monkeypatch.setattr(body_pace, "BODY_GRACE", grace)
    monkeypatch.setattr(body_pace, "BODY_RATE", 1 << 30)
    monkeypatch.setattr(protocol, "CHECK", check)
    taken, answered = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await taken.wait()
        while (await receive()).get("more_body"):
            pass
        await answer_empty(send)
        answered.set()

    connection, transport = connected(app)
    half = b"x" * 100_000
    connection.data_received(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n" + half)
    await asyncio.sleep(2 * grace)
    assert transport.paused and not transport.bytes
    taken.set()
    await asyncio.sleep(3 * check)
    assert not transport.paused
    connection.data_received(half)
    async with asyncio.timeout(5):
        await answered.wait()
    assert transport.bytes.startswith(b"HTTP/1.1 200 ")
    connection.connection_lost(OSError())
