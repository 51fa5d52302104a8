"""A tenant's long requests have a pace while other tenants have requests, and none alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from starlette.requests import ClientDisconnect

from projections.errors import QuotaExceeded
from tests.support.busy import busy
from threadfold.gateway.long_turns import LEAST, LONG, MOST, PATIENCE, SHARE, LongTurns, is_long
from threadfold.gateway.work_turns import WorkTurns

TOOK = 0.005


async def learnt(turns: LongTurns, seconds: float) -> None:
    """Requests of the tenant `many`, alone, have taken so long."""
    for _ in range(40):
        (await turns.take("many"))(seconds)


async def begun(turns: LongTurns, count: int, tenant: str = "many") -> list[float]:
    """Seconds after which each of so many requests of a tenant begins, that come at once."""
    since, found = time.monotonic(), list[float]()

    async def take() -> None:
        turns.note(tenant)
        await turns.take(tenant)
        found.append(time.monotonic() - since)

    await asyncio.gather(*(take() for _ in range(count)))
    return found


async def test_long_requests_begin_one_after_the_other_while_others_have_requests() -> None:
    turns = LongTurns()
    await learnt(turns, TOOK)
    turns.note("other")
    found = await begun(turns, 6)
    assert all(at >= i * (TOOK - LEAST) * SHARE * 0.9 for i, at in enumerate(found))


async def test_requests_that_take_little_do_not_wait_for_one_another() -> None:
    turns = LongTurns()
    await learnt(turns, LEAST / 2)
    turns.note("other")
    assert max(await begun(turns, 2 * int(PATIENCE / LEAST))) < PATIENCE


async def test_a_tenant_that_is_alone_is_not_held_back() -> None:
    now = 0.0
    turns = LongTurns(lambda: now)
    turns.note("other")
    now = 2.0
    turns.note("many")
    ends = [await turns.take("many") for _ in range(1000)]
    for end in ends:
        end(TOOK)
    assert max(await begun(turns, 1000)) < 500 * TOOK * SHARE


async def test_what_took_longer_than_it_was_guessed_leaves_others_as_much_more_time() -> None:
    now = 0.0
    turns = LongTurns(lambda: now)
    turns.note("other")
    end = await turns.take("many")
    end(0.05)
    now = (0.05 - LEAST) * SHARE - 0.1
    turns.note("other")
    since = time.monotonic()
    await turns.take("many")
    assert time.monotonic() - since >= 0.09


async def test_an_event_loop_that_stood_still_holds_nobody_back_for_long() -> None:
    now = 0.0
    turns = LongTurns(lambda: now)
    turns.note("other")
    (await turns.take("many"))(3600.0)
    now = MOST * SHARE
    turns.note("other")
    async with asyncio.timeout(0.5):
        await turns.take("many")


async def test_one_that_would_wait_too_long_is_refused_and_other_tenants_are_not() -> None:
    turns = LongTurns(lambda: 0.0)
    await learnt(turns, TOOK)
    turns.note("other")
    waiting = [
        asyncio.create_task(turns.take("many"))
        for _ in range(int(2 * PATIENCE / ((TOOK - LEAST) * SHARE)))
    ]
    await asyncio.sleep(0)
    try:
        with pytest.raises(QuotaExceeded, match="tenant many has as many long requests"):
            await turns.take("many")
        async with asyncio.timeout(1):
            turns.note("many")
            await turns.take("other")
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_short_requests_of_a_tenant_pass_its_long_ones() -> None:
    turns, done = WorkTurns(), list[str]()

    async def work(name: str) -> None:
        busy(TOOK if name == "long" else 0)
        done.append(name)

    await turns.work("many", lambda: work("long"), long=True)
    await turns.work("other", lambda: work("other"))
    long = [
        asyncio.create_task(turns.work("many", lambda: work("long"), long=True)) for _ in range(3)
    ]
    await asyncio.sleep(0)
    await turns.work("many", lambda: work("short"))
    await asyncio.gather(*long)
    assert done.index("short") <= 3 and done.count("long") == 4


@pytest.mark.parametrize(
    ("name", "value", "long"),
    [
        (b"content-length", str(LONG).encode(), True),
        (b"content-length", str(LONG - 1).encode(), False),
        (b"transfer-encoding", b"chunked", True),
        (b"accept", b"*/*", False),
    ],
)
def test_a_request_is_long_by_its_body(name: bytes, value: bytes, long: bool) -> None:
    assert is_long({"headers": [(name, value)]}) is long


async def test_one_whose_client_leaves_gives_up_at_once_and_others_of_its_tenant_wait_less() -> (
    None
):
    turns, leaves = LongTurns(lambda: 0.0), list[Callable[[], bool]]()
    await learnt(turns, TOOK)
    turns.note("other")
    await turns.take("many")
    first = asyncio.create_task(turns.take("many", leaves.append))
    waiting = [asyncio.create_task(turns.take("many", leaves.append)) for _ in range(200)]
    await asyncio.sleep(0)
    assert [leave() for leave in leaves[1:]] == [True] * 200
    async with asyncio.timeout(1):
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(end) for end in ends} == {ClientDisconnect}
        await first
        await turns.take("many")
    assert not any(leave() for leave in leaves), "nobody waits any more"
