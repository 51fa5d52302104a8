"""Requests without a key begin a few in each step of the event loop, addresses in turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from projections.errors import Unauthorized
from streams.settings.settings import Settings
from tests.support.busy import busy
from threadfold.gateway import create_gateway
from threadfold.gateway.credentials import Credentials
from threadfold.gateway.loop_turns import Turns


def ignore(_call: Callable[[], None]) -> None:
    """The client stays."""


async def test_a_few_begin_in_each_step_and_addresses_take_turns() -> None:
    turns, begun, step = Turns(2), list[tuple[int, str]](), 0

    async def ask(address: str) -> None:
        assert await turns.take(address, ignore)
        begun.append((step, address))

    tasks = [asyncio.create_task(ask("many")) for _ in range(20)]
    tasks += [asyncio.create_task(ask("one"))]
    while len(begun) < len(tasks):
        step += 1
        await asyncio.sleep(0)
    by_step = [[address for at, address in begun if at == n] for n in range(step + 1)]
    assert max(map(len, by_step)) <= 4  # those of one step, and those whose turn it made
    assert step >= 9
    assert [address for _, address in begun].index("one") <= 4


async def test_after_a_step_with_work_others_alone_have_time_for_a_while() -> None:
    turns, begun, all_begun = Turns(1, rest=2.0), list[float](), asyncio.Event()

    def work() -> float:
        begun.append(time.perf_counter())
        busy(0.005)
        if len(begun) == 4:
            all_begun.set()
        return 1

    for address in "abcd":
        turns.run(address, work)
    await asyncio.wait_for(all_begun.wait(), 30)
    pauses = [after - before - 0.005 for before, after in pairwise(begun)]
    assert min(pauses) >= 0.009, "twice the step, but for how exact a timer is"


async def test_a_rest_has_an_end_and_nothing_is_left_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("threadfold.gateway.loop_turns.LONGEST_REST", 0.001)
    turns = Turns(1, rest=1_000.0)
    async with asyncio.timeout(30):
        for _ in range(20):
            assert await turns.take("a")


async def test_who_leaves_before_the_turn_takes_none() -> None:
    turns = Turns(1)
    await turns.take("a", ignore)
    gone, stays = (asyncio.create_task(turns.take("a", ignore)) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait_for(stays, 5)
    for _ in range(3):
        await asyncio.sleep(0)
    await asyncio.wait_for(turns.take("b", ignore), 5)


async def test_requests_whose_key_is_refused_are_answered_a_few_in_a_step() -> None:
    app = create_gateway(Settings.load(env={}, kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0"))
    step, answered = 0, list[int]()

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 401
            answered.append(step)

    scope = {"type": "http", "method": "GET", "path": "/v1/me", "query_string": b"", "headers": []}
    tasks = [
        asyncio.create_task(app({**scope, "client": ("10.0.0.1", 1)}, receive, send))
        for _ in range(100)
    ]
    while not all(task.done() for task in tasks):
        step += 1
        await asyncio.sleep(0)
    assert len(answered) == 100
    assert max(answered.count(n) for n in range(step + 1)) <= 8


async def test_signatures_that_were_not_checked_are_checked_a_few_in_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signed = {"jwt_issuer": "them", "jwt_audience": "us", "jwt_keys": "https://127.0.0.1:1/keys"}
    app = create_gateway(
        Settings.load(env={}, kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0", **signed)
    )
    step, looked = 0, list[int]()

    async def identify(*_: object) -> None:
        looked.append(step)
        busy(0.002)
        raise Unauthorized("no")

    async def send(message: Any) -> None:
        assert message.get("status", 401) == 401

    async def receive() -> Any:
        return {"type": "http.request"}

    monkeypatch.setattr(Credentials, "identify", identify)
    # {"alg":"ES256","kid":"a"}: whether that key exists is not known before a fetch.
    header = (b"authorization", b"Bearer eyJhbGciOiJFUzI1NiIsImtpZCI6ImEifQ.e30.AAAA")
    scope = {"type": "http", "method": "GET", "path": "/v1/me", "query_string": b""}
    tasks = [
        asyncio.create_task(
            app({**scope, "headers": [header], "client": (f"10.0.0.{n}", 1)}, receive, send)
        )
        for n in range(30)
    ]
    while not all(task.done() for task in tasks):
        step += 1
        await asyncio.sleep(0)
    assert len(looked) == 30
    assert step >= 15
    assert max(looked.count(n) for n in range(step + 1)) <= 4


async def test_groups_take_turns_and_so_do_the_addresses_of_each() -> None:
    turns, begun = Turns(1), list[str]()

    async def ask(group: str, address: str) -> None:
        assert await turns.take(address, ignore, group=group)
        begun.append(f"{group} {address}")

    tasks = [asyncio.create_task(ask("acme", "many")) for _ in range(50)]
    tasks += [asyncio.create_task(ask("", f"address {n}")) for n in range(50)]
    tasks += [asyncio.create_task(ask("acme", "one")), asyncio.create_task(ask("beta", "one"))]
    await asyncio.wait_for(asyncio.gather(*tasks), 10)
    assert len(begun) == 102
    assert begun.index("acme one") < 12
    assert begun.index("beta one") < 12


async def test_who_has_left_is_told_so_at_once() -> None:
    turns, leave = Turns(1), list[Callable[[], None]]()
    assert await turns.take("a", leave.append)
    assert not leave
    waiting = [asyncio.create_task(turns.take("a", leave.append)) for _ in range(50)]
    await asyncio.sleep(0)
    for one in leave[10:]:
        one()
    for _ in range(20):
        await asyncio.sleep(0)
    assert [task.result() for task in waiting].count(False) >= 35
    assert await turns.take("b", ignore)


async def test_work_that_goes_on_waits_behind_others() -> None:
    turns, done = Turns(1), list[str]()

    def begin(name: str, pieces: int) -> None:
        def work() -> float:
            done.append(name)
            if done.count(name) < pieces:
                turns.run(name, work)
            return 1

        turns.run(name, work)

    begin("long", 6)
    begin("short", 2)
    for _ in range(10):
        await asyncio.sleep(0)
    assert done == ["long", "long", "short", "long", "short", *["long"] * 3]
