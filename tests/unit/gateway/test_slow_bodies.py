"""How slowly a body may come."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.written import answer_empty, connected
from threadfold.gateway import arrivals, body_pace, protocol
from threadfold.gateway.body_pace import BODY_GRACE, BODY_RATE, BodyPace
from threadfold.gateway.connections import tell_keyed


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


async def test_the_time_in_which_what_came_waits_to_be_read_does_not_count_for_a_slow_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals, "CRUMBS_REST", 1_000.0)
    monkeypatch.setattr(body_pace, "BODY_GRACE", 0.02)
    monkeypatch.setattr(body_pace, "BODY_RATE", 1 << 30)
    monkeypatch.setattr(protocol, "CHECK", 0.02)
    answered, took = asyncio.Event(), bytearray()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        tell_keyed(scope, "acme")
        more = True
        while more:
            message = await receive()
            took.extend(message["body"])
            more = message.get("more_body", False)
        await answer_empty(send)
        answered.set()

    connection, transport = connected(app)
    connection.data_received(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    await answered.wait()  # it has shown a key
    answered.clear()
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    connection.data_received(head + b"1\r\na\r\n" * 20_000 + b"0\r\n\r\n")
    async with asyncio.timeout(30):
        await answered.wait()
    assert transport.bytes.count(b"HTTP/1.1 200 ") == 2 and len(took) == 20_000
    connection.connection_lost(OSError())
