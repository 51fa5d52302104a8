"""The work on requests begins in turns of their tenants, and is counted by the time that it takes."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from contextlib import suppress

import pytest
from starlette.requests import ClientDisconnect

from tests.support.busy import busy
from tests.support.worker import until
from threadfold.gateway.loop_turns import MOST_OWED
from threadfold.gateway.work_turns import WorkTurns, timed


async def test_whatever_one_tenant_asks_for_at_once_another_is_next() -> None:
    turns, done = WorkTurns(), list[str]()

    async def work(tenant: str) -> None:
        await asyncio.sleep(0)
        busy(0.003 if tenant == "many" else 0)
        done.append(tenant)

    for _ in range(3):  # also of those that come when the work of others is known
        tasks = [asyncio.create_task(turns.work("many", lambda: work("many"))) for _ in range(60)]
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(turns.work("one", lambda: work("one"))))
        await asyncio.gather(*tasks)
        assert done.index("one") <= 14
        done.clear()


async def test_work_that_took_longer_is_made_up_for_by_some_later_steps() -> None:
    turns, step, begun = WorkTurns(0.001), 0, list[int]()

    async def work() -> None:
        begun.append(step)
        busy(0.02)

    tasks = [asyncio.create_task(turns.work("a", work)) for _ in range(8)]
    while not all(task.done() for task in tasks):
        step += 1
        await asyncio.sleep(0)
    # A second one begins before it is known how long the first takes.
    pauses = [third - first for first, third in zip(begun, begun[2:], strict=False)]
    assert all(MOST_OWED <= pause <= 3 * MOST_OWED for pause in pauses)


async def test_work_whose_client_leaves_before_its_turn_is_not_begun() -> None:
    turns, begun, leaves = WorkTurns(), list[str](), list[Callable[[], bool]]()

    async def work(name: str) -> None:
        begun.append(name)
        busy(0.003)

    tasks = [asyncio.create_task(turns.work("a", lambda: work("a"))) for _ in range(20)]
    await asyncio.sleep(0)
    late = asyncio.create_task(turns.work("a", lambda: work("late"), on_left=leaves.append))
    await asyncio.sleep(0)
    assert leaves.pop()()
    with pytest.raises(ClientDisconnect):
        await late
    await asyncio.gather(*tasks)
    assert begun == ["a"] * 20


async def test_time_is_counted_but_not_that_of_waiting() -> None:
    counted = list[float]()

    async def work() -> str:
        busy(0.01)
        await asyncio.sleep(0.2)
        busy(0.01)
        return "done"

    assert await timed(work(), counted.append) == "done"
    assert 0.02 <= sum(counted) < 0.15
    assert len(counted) >= 2


async def test_errors_and_cancellations_reach_the_work_and_who_waits_for_it() -> None:
    handled = list[str]()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            handled.append("cancelled")
            await asyncio.sleep(0)
            raise

    task = asyncio.create_task(WorkTurns().work("a", work))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert handled == ["cancelled"]

    async def fails() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        await WorkTurns().work("a", fails)


async def test_what_failed_work_held_is_free_at_once() -> None:
    """Until the collector looked, a megabyte a refused body lay about."""

    class Body:
        pass

    held = list[weakref.ref[Body]]()

    def refuse(body: Body) -> None:
        held.append(weakref.ref(body))
        raise ValueError("it is refused")

    async def work() -> None:
        await asyncio.to_thread(refuse, Body())

    gc.disable()
    try:
        with suppress(ValueError):
            await timed(work(), list[float]().append)
        await until(lambda: asyncio.sleep(0, held[0]() is None), 5)
    finally:
        gc.enable()
