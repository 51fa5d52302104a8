"""Refusals that are held back: paced for each tenant, bounded, and no other tenant's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from threadfold.gateway.back_pressure import LEAST, LONGEST, PACE, SHARE, BackPressure


async def test_a_tenants_refusals_go_out_at_a_pace_and_anothers_do_not_wait_for_them() -> None:
    back_pressure = BackPressure(1_000)
    begun = time.monotonic()
    noisy = [asyncio.create_task(back_pressure.hold("noisy")) for _ in range(60)]
    await asyncio.sleep(0)
    assert await back_pressure.hold("quiet")
    # Timers fire in their order, however late a busy machine is.
    assert sum(task.done() for task in noisy) < 40, "held for its own time only"
    assert all(await asyncio.gather(*noisy))
    assert time.monotonic() - begun >= LEAST + 59 / PACE - 0.01


async def test_beyond_what_is_held_the_answer_goes_out_at_once() -> None:
    back_pressure = BackPressure(1_000)
    held = [asyncio.create_task(back_pressure.hold("noisy")) for _ in range(1_000 // SHARE)]
    await asyncio.sleep(0)
    async with asyncio.timeout(0):  # what waits for anything is cancelled
        assert not await back_pressure.hold("noisy")
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    assert back_pressure.held == {}
    assert await back_pressure.hold("noisy")


async def test_a_refusal_whose_client_has_left_takes_no_place() -> None:
    back_pressure, leave = BackPressure(2), list[Callable[[], None]]()
    held = asyncio.create_task(back_pressure.hold("noisy", leave.append))
    await asyncio.sleep(0)
    assert not await back_pressure.hold("noisy")
    leave[0]()
    async with asyncio.timeout(LEAST / 2):
        await held
    assert back_pressure.held == {}
    assert await back_pressure.hold("noisy")


async def test_refusals_whose_clients_have_left_make_later_ones_wait_no_longer() -> None:
    back_pressure = BackPressure(4_000)
    stays = asyncio.create_task(back_pressure.hold("noisy"))
    await asyncio.sleep(0)
    for _ in range(500):
        leave = list[Callable[[], None]]()
        gone = asyncio.create_task(back_pressure.hold("noisy", leave.append))
        await asyncio.sleep(0)
        leave[0]()
        await gone
    async with asyncio.timeout(LONGEST / 2):
        assert await back_pressure.hold("noisy")
    assert await stays


@pytest.mark.long
async def test_no_refusal_is_held_much_longer_than_the_longest_time() -> None:
    now = 0.0
    back_pressure = BackPressure(8_000, lambda: now)
    held = [asyncio.create_task(back_pressure.hold("noisy")) for _ in range(3_000)]
    await asyncio.sleep(0)
    last = asyncio.create_task(back_pressure.hold("noisy"))
    async with asyncio.timeout(3 * LONGEST):
        await last
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
