"""How slowly a body may come."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.written import answer_empty, connected
from threadfold.gateway import body_pace, protocol
from threadfold.gateway.body_pace import BODY_GRACE, BODY_RATE, BodyPace


def outlasts(pieces: list[tuple[float, int]], then: float) -> bool:
    """Whether a body that comes in pieces (when, how large) is still awaited at a later time."""
    pace = BodyPace(0.0)
    for at, size in pieces:
        if pace.fault(at) is not None:
            return False
        pace.add(size, at)
    return pace.fault(then) is None


def test_a_body_that_stops_is_refused_however_much_of_it_came_before() -> None:
    much = [(float(at), 60 << 20) for at in range(3)]
    assert outlasts(much, 2 + BODY_GRACE)
    assert not outlasts(much, 2.1 + BODY_GRACE)
    drops = [(2 + 10.0 * i, 1) for i in range(1, 10)]
    assert not outlasts([*much, *drops], 90.0), "a byte now and then is no progress"


def test_a_body_at_the_least_rate_is_awaited_for_as_long_as_it_takes() -> None:
    assert outlasts([(float(at), BODY_RATE) for at in range(1, 1_000)], 1_000)
    assert not outlasts([(float(at), BODY_RATE // 2) for at in range(1, 1_000)], 1_000)


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
